/** Addresses of listeners: that of all devices takes both families, and a link-local one needs its interface. Lengths in refusals. */

import { describe, expect, it } from 'vitest';
import type { EngineName } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const { skipReason } = installedLibucp();
const ENGINES: readonly EngineName[] = skipReason === undefined ? ['native', 'libucx'] : ['native'];
if (skipReason !== undefined) console.log(`engine libucx is skipped: ${skipReason}`);

describe.each(ENGINES)('over engine %s', { timeout: 20_000 }, (engine) => {
  const fixture = useContexts(engine);

  it.each([
    // libucp listens on one family.
    ['::', engine === 'native' ? ['127.0.0.1', '::1'] : ['::1']],
    ['0.0.0.0', ['127.0.0.1']],
  ])('a listener at %s is reached at %j', async (address, targets) => {
    const server = await fixture.openOn(fixture.node());
    const client = await fixture.openOn(fixture.node());
    const sources: string[] = [];
    const listener = server.worker.listener({
      address,
      onConnection: (request) => {
        sources.push(request.clientAddress.address);
        request.reject();
      },
    });
    const ending = new AbortController();
    const served = server.worker.serve(ending.signal).catch(() => {});
    for (const target of targets) {
      const error = await failureOf(() => client.worker.connect({ address: target, port: listener.port }));
      expect([target, error.code]).toEqual([target, 'ERR_REJECTED']);
    }
    expect(sources).toEqual(targets);
    ending.abort();
    await served;
    await listener.close();
  });

  it('a link-local address without an interface is refused with what is missing', async () => {
    const { worker } = await fixture.openOn(fixture.node());
    const error = await failureOf(() => worker.listener({ address: 'fe80::1' }));
    expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('fe80::1%eth0') });
  });

  it('a header that is too long is refused with its length', async () => {
    const { endpoint } = await fixture.openOn(fixture.node());
    const error = await failureOf(() => endpoint.amSendNbx(1, Buffer.alloc(4097), Buffer.alloc(0), 0, 0));
    expect(error.message).toMatch(/^header of 4097 bytes: at most 4096$/);
  });
});
