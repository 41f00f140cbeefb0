/** Objects of the API as programs meet them: `using`, console.log and JSON, and two receivers of the same messages. */

import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import type { EngineName } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { ENGINES, expectSame, pattern } from '../../fixtures/pair.ts';

const BYTES = 4096;

/** An error for an argument. */
function refuses(argument: string): unknown {
  return expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument }) });
}

describe.each(ENGINES)('over %s', (engine: EngineName) => {
  const fixture = useContexts(engine);

  it('mapped memory and remote keys end with their block', async () => {
    const { context, endpoint } = await fixture.open();
    const sent = pattern(BYTES, 3);
    const kept = await (async () => {
      using memory = context.memMap({ allocate: BYTES });
      using rkey = endpoint.unpackRkey(context.packRkey(memory));
      await endpoint.put(sent, rkey);
      expectSame(memory.bytes!, sent);
      return { memory, rkey };
    })();
    expect([kept.memory.mapped, kept.rkey.released]).toEqual([false, true]);
    // What the program has ended itself.
    const memory = context.memMap({ allocate: BYTES });
    context.memUnmap(memory);
    memory[Symbol.dispose]();
    kept.rkey[Symbol.dispose]();
    expect(memory.mapped).toBe(false);
  });

  it('prepared lists, cards and message queues show their facts', async () => {
    const { context, endpoint, worker } = await fixture.open();
    using memory = context.memMap({ allocate: BYTES });
    using rkey = endpoint.unpackRkey(context.packRkey(memory));
    const list = endpoint.prepareList('put', [{ local: memory, rkey, byteLength: 64 }]);
    expect(inspect(list)).toBe('PreparedList { operation: put, blockCount: 1, byteLength: 64 }');
    expect(JSON.parse(JSON.stringify(list))).toEqual({ operation: 'put', blockCount: 1, byteLength: 64 });
    const card = context.device(0);
    expect(inspect(card)).toBe(
      `Device { busId: ${card.busId}, moduleId: ${card.moduleId}, minor: ${card.minor}, state: open }`,
    );
    expect(JSON.parse(JSON.stringify(card))).toMatchObject({ busId: card.busId, state: 'open' });
    const queue = worker.messages(3);
    expect(inspect(queue)).toBe('MessageQueue { id: 3, state: open }');
    await queue.return?.();
    expect(JSON.stringify(queue)).toBe('{"id":3,"state":"closed"}');
  });

  it('the numbers of blocks are a list', async () => {
    const { context, endpoint } = await fixture.open();
    using memory = context.memMap({ allocate: BYTES });
    using rkey = endpoint.unpackRkey(context.packRkey(memory));
    const list = endpoint.prepareList('put', [{ local: memory, rkey, byteLength: 64 }]);
    for (const blocks of [null, '', () => {}]) {
      await expect(endpoint.putList(list, { blocks } as never)).rejects.toEqual(refuses('blocks'));
    }
  });

  it('messages and notifications have one receiver', async () => {
    const { worker, endpoint } = await fixture.open();
    const queue = worker.messages(4);
    for (const handler of [(): void => {}, undefined]) {
      expect(() => worker.setAmHandler(4, handler)).toThrow(refuses('id') as Error);
    }
    await endpoint.amSend(4, pattern(64, 1));
    const { value } = await queue.next();
    expectSame(await value!.bytes(), pattern(64, 1));
    await queue.return?.();
    worker.setAmHandler(4, () => {});

    const loop = worker.notifications();
    const next = loop.next();
    expect(() => worker.setNotificationHandler(() => {})).toThrow(refuses('handler') as Error);
    await endpoint.notify(pattern(64, 2));
    const { value: notification } = await next;
    expectSame(notification!.bytes, pattern(64, 2));
    await loop.return();
    const handled: Uint8Array[] = [];
    worker.setNotificationHandler(({ bytes }) => handled.push(bytes.slice()));
    await endpoint.notify(pattern(64, 5));
    while (handled.length === 0) worker.progress();
    expectSame(handled[0]!, pattern(64, 5));
  });

  it('a peer has an address or a host', async () => {
    const { worker } = await fixture.open();
    const both = { host: 'localhost', address: '127.0.0.1', port: 1 };
    await expect(worker.connect(both as never)).rejects.toThrow('argument host must not be combined with address');
    await expect(worker.connect({ port: 1 } as never)).rejects.toThrow('argument address must be set, unless host is');
  });

  it('host memory has no card', async () => {
    const { context } = await fixture.open();
    for (const memoryType of [undefined, 'host'] as const) {
      const params = { allocate: BYTES, sysDevice: 0, ...(memoryType !== undefined && { memoryType }) };
      expect(() => context.memMap(params)).toThrow(refuses('sysDevice') as Error);
    }
    using memory = context.memMap({ allocate: BYTES, sysDevice: 0, memoryType: 'gaudi' });
    expect(memory.sysDevice).toBe(0);
  });
});
