/** A client whose listener does not answer, over both engines: it gives up, and both ends can be used further. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { ENGINES, expectSame, pattern, serving } from '../../fixtures/pair.ts';

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);

  it('a client gives up after UCX_TCP_CM_ANSWER_TIMEOUT, and connects later', async () => {
    const env = { UCX_TLS: 'tcp,self', UCX_TCP_CM_ANSWER_TIMEOUT: '100ms' };
    const node = fixture.node({ cards: 1 });
    const one = await fixture.openOn(node, { env });
    const two = await fixture.openOn(node, { env });
    const listener = one.worker.listener();
    const address = { address: '127.0.0.1', port: listener.port };
    const refused = failureOf(() => two.worker.connect(address));
    const unanswered = await listener.next();
    expect(await refused).toMatchObject({ code: 'ERR_TIMED_OUT', status: Status.TIMED_OUT });
    unanswered!.reject();
    const connecting = two.worker.connect(address);
    const request = await listener.next();
    const server = request!.accept();
    const client = await connecting;
    const received = new Uint8Array(1000);
    await serving({ one, two }, () =>
      Promise.all([client.tagSend(pattern(1000, 1), { tag: 1 }), one.worker.tagRecv(received, { tag: 1 })]),
    );
    expectSame(received, pattern(1000, 1));
    await Promise.all([client.close(), server.close()]);
    await listener.close();
  });
});
