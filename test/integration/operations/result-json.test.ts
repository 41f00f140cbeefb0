/** Results of operations are shown in one line by console.log, and JSON has their facts: a bigint, which JSON does not have, as text. */

import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { type AmMessage, Context, type TagMessage } from '../../../src/index.ts';
import { ENGINES } from '../../fixtures/pair.ts';

const TAG = 0xffff_ffff_ffff_fff0n;

describe.each(ENGINES)('over the engine %s', (engine) => {
  it('results of messages, notifications, transfers and queries', { timeout: 20_000 }, async () => {
    await using context = await Context.create({ engine, env: { UCX_TLS: 'self,tcp' }, configDirectories: [] });
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const memory = context.memMap({ buffer: new Uint8Array(64) });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const json = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

    const [received, sent] = await Promise.all([
      worker.tagRecv(new Uint8Array(16), { tag: TAG }),
      endpoint.tagSend(new Uint8Array(8), { tag: TAG }),
    ]);
    expect({ ...received }).toEqual({ senderTag: TAG, byteLength: 8 });
    expect(json(received)).toEqual({ senderTag: String(TAG), byteLength: 8 });
    expect(inspect(received)).toBe(`TagMessage { senderTag: ${TAG}, byteLength: 8 }`);
    expect(json(sent)).toMatchObject({ byteLength: 8 });

    const unexpected = endpoint.tagSend(new Uint8Array(8), { tag: 3 });
    let found: TagMessage | undefined;
    while (found === undefined) {
      await new Promise(setImmediate);
      found = worker.tagProbe(3, undefined, true);
    }
    expect(json(found)).toEqual({ senderTag: '3', byteLength: 8 });
    expect(inspect(found)).toBe('TagMessage { senderTag: 3, byteLength: 8 }');
    const taken = worker.tagMessageRecvNbx(new Uint8Array(8), 0, 8, found);
    await unexpected;
    if (typeof taken !== 'number') {
      while (!taken.isCompleted) await new Promise(setImmediate);
      taken.free();
    }

    const message = new Promise<AmMessage>((resolve) => worker.setAmHandler(4, (am) => resolve(am.retain())));
    await endpoint.amSend(4, new Uint8Array(8), { header: Uint8Array.of(1) });
    const kept = await message;
    expect(json(kept)).toMatchObject({ id: 4, byteLength: 8 });
    kept.release();
    await endpoint.put(new Uint8Array(8), rkey, { notify: Uint8Array.of(7) });
    for await (const notification of worker.notifications()) {
      expect(json(notification)).toMatchObject({ endpoint: { state: 'open' } });
      break;
    }
    const { address, byteLength } = memory;
    expect(json(context.memQuery({ address, byteLength }))).toMatchObject({ baseAddress: String(address) });
    rkey.release();
    context.memUnmap(memory);
  });

  it.runIf(engine === 'native')('a request to connect, and its attributes', { timeout: 20_000 }, async () => {
    await using context = await Context.create({ engine, env: { UCX_TLS: 'tcp,self' }, configDirectories: [] });
    const [one, two] = [context.worker(), context.worker({ clientId: 7n })];
    const listener = one.listener();
    const connecting = two.connect({ address: listener.address, port: listener.port, sendClientId: true });
    const request = (await listener.next())!;
    expect(JSON.parse(JSON.stringify(request.query()))).toMatchObject({ clientId: '7' });
    expect(JSON.parse(JSON.stringify(request))).toMatchObject({ clientId: expect.stringContaining('7') });
    request.accept();
    await connecting;
    await listener.close();
  });
});
