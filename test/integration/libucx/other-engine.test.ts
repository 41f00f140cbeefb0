/** Worker addresses and remote keys of the other engine: each engine recognises and names them, in place of reading noise. */

import { describe, expect, it } from 'vitest';
import type { EngineName } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const fixture = useContexts();
const { skipReason } = installedLibucp();

const PAIRS: readonly (readonly [EngineName, EngineName])[] = [
  ['native', 'libucx'],
  ['libucx', 'native'],
];

describe.skipIf(skipReason !== undefined)('bytes of the other engine (needs libucp)', () => {
  it.each(PAIRS)('%s refuses a worker address and a key of %s, by name', async (engine, other) => {
    const near = await fixture.open({ context: { engine } });
    const far = await fixture.open({ context: { engine: other } });
    const key = far.context.packRkey(far.context.memMap({ allocate: 4096 }));
    const address = far.worker.address();
    const ends = `of the engine ${other}, but this context has the engine ${engine}: use one engine at both ends (UCX_ENGINE, or the option engine)`;
    const cases = [
      [() => near.worker.endpoint(address), 'ERR_ADDRESS_MALFORMED', `worker address is ${ends}`],
      [() => near.worker.endpoint(key), 'ERR_ADDRESS_MALFORMED', `worker address is a remote key, and ${ends}`],
      [() => near.endpoint.unpackRkey(key), 'ERR_RKEY_MALFORMED', `remote key is ${ends}`],
      [() => near.endpoint.unpackRkey(address), 'ERR_RKEY_MALFORMED', `remote key is a worker address, and ${ends}`],
    ] as const;
    for (const [call, code, message] of cases) expect(await failureOf(call)).toMatchObject({ code, message });
  });

  it('libucp is not given one as the address of a plain UCX program, which would end the process', async () => {
    const near = await fixture.open({ context: { engine: 'libucx' } });
    const far = await fixture.open({ context: { engine: 'native' } });
    const error = await failureOf(() => near.worker.endpoint(far.worker.address(), { rawAddress: true }));
    expect(error).toMatchObject({ code: 'ERR_ADDRESS_MALFORMED' });
    expect(error.message).toContain('of the engine native');
  });
});
