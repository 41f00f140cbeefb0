/** Workers that nobody drives: they make progress by themselves while the event loop runs, sleep otherwise, and let the process end. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { type Context, MemoryType, type Worker } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { pattern } from '../../fixtures/pair.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/automatic-progress-program.ts'));
const BYTES = 300_000;

const { skipReason } = installedLibucp();
const ENGINES = [
  ['native', false],
  ['libucx (needs libucp)', skipReason !== undefined],
] as const;

const contexts = useContexts();

describe.each(ENGINES)('over %s, a worker that nobody drives', (title, isSkipped) => {
  const engine = title === 'native' ? 'native' : 'libucx';
  const open = async (config = {}): Promise<Context> =>
    (await contexts.openOn(contexts.node(), { engine, config })).context;
  /** Lets the event loop run until `isDone`. */
  const until = async (isDone: () => boolean): Promise<void> => {
    while (!isDone()) await new Promise(setImmediate);
  };

  it.skipIf(isSkipped)('receives active messages, short and long', async () => {
    const context = await open();
    const [one, two] = [context.worker(), context.worker()];
    const lengths: number[] = [];
    const received: Promise<Uint8Array>[] = [];
    two.setAmHandler(1, (message) => {
      lengths.push(message.byteLength);
      received.push(message.bytes());
    });
    const endpoint = one.endpoint(two.address());
    await endpoint.amSend(1, pattern(8, 1));
    await endpoint.amSend(1, pattern(BYTES, 2));
    await until(() => received.length === 2);
    expect(lengths).toEqual([8, BYTES]);
    expect(await Promise.all(received)).toEqual([pattern(8, 1), pattern(BYTES, 2)]);
  });

  it.skipIf(isSkipped)(
    'answers puts and atomic operations on its HBM, after it has only told its address',
    async () => {
      const context = await open();
      const [one, two] = [context.worker(), context.worker()];
      const memory = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
      const endpoint = one.endpoint(two.address(), { errorHandling: 'none' });
      const rkey = endpoint.unpackRkey(context.packRkey(memory));
      await endpoint.put(pattern(BYTES, 3), rkey);
      await endpoint.atomic('add', 1, rkey, { remoteOffset: 0 });
      const back = new Uint8Array(BYTES);
      await endpoint.get(back, rkey);
      const expected = pattern(BYTES, 3);
      const word = new DataView(expected.buffer);
      word.setBigUint64(0, BigInt.asUintN(64, word.getBigUint64(0, true) + 1n), true);
      expect(back).toEqual(expected);
      rkey.release();
    },
  );

  it.skipIf(isSkipped)('accepts clients of a listener with a callback', async () => {
    const context = await open({ TLS: 'tcp,self', NET_DEVICES: 'lo' });
    const [server, client] = [context.worker(), context.worker()];
    const lines: string[] = [];
    server.setAmHandler(1, ({ header }) => lines.push(Buffer.from(header).toString()));
    await using listener = server.listener({ address: '127.0.0.1', onConnection: (request) => request.accept() });
    await using endpoint = await client.connect({ address: '127.0.0.1', port: listener.port });
    await endpoint.amSend(1, new Uint8Array(0), { header: Buffer.from('hello') });
    await until(() => lines.length > 0);
    expect(lines).toEqual(['hello']);
  });

  it.skipIf(isSkipped)('ends requests of the nbx tier', async () => {
    const context = await open();
    const [one, two] = [context.worker(), context.worker()];
    const bytes = new Uint8Array(BYTES);
    const receive = two.tagRecvNbx(bytes, 0, BYTES, 7);
    const send = one.endpoint(two.address()).tagSendNbx(pattern(BYTES, 4), 0, BYTES, 7);
    if (typeof receive === 'number' || typeof send === 'number') expect.fail('a request that ended in its call');
    await until(() => receive.isCompleted && send.isCompleted);
    expect(bytes).toEqual(pattern(BYTES, 4));
    receive.free();
    send.free();
  });

  it.skipIf(isSkipped)('continues beside a program that waits for its events', async () => {
    const context = await open();
    const [one, two] = [context.worker(), context.worker()];
    const endpoint = one.endpoint(two.address());
    let count = 0;
    two.setAmHandler(1, () => {
      count += 1;
    });
    for (let round = 1; round <= 50; round++) {
      void endpoint.amSend(1, new Uint8Array(8));
      while (count < round) if (two.progress() === 0) await two.wait();
    }
    expect(count).toBe(50);
  });

  it.skipIf(isSkipped)('is left to the program with progress: manual', async () => {
    const context = await open();
    const one = context.worker();
    const two: Worker = context.worker({ progress: 'manual' });
    let count = 0;
    two.setAmHandler(1, () => {
      count += 1;
    });
    const endpoint = one.endpoint(two.address());
    const sends = Promise.all([endpoint.amSend(1, new Uint8Array(8)), endpoint.amSend(1, new Uint8Array(8))]);
    for (let turn = 0; turn < 1000; turn++) await new Promise(setImmediate);
    expect(count).toBe(0);
    while (count < 2) {
      two.progress();
      await new Promise(setImmediate);
    }
    await sends;
    expect(count).toBe(2);
  });

  it.skipIf(isSkipped).each(['process', 'thread'])('does not keep a %s alive', async (where) => {
    const child = spawn(process.execPath, [PROGRAM, engine, where], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'close');
    expect(await text(child.stdout)).toBe('hello\n');
    expect(await ended).toEqual([0, null]);
  });

  it.skipIf(isSkipped)('makes the error of a handler an uncaught exception', async () => {
    const child = spawn(process.execPath, [PROGRAM, engine, 'throw'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'close');
    expect(await text(child.stdout)).toBe('uncaught: hello\n');
    expect(await ended).toEqual([0, null]);
  });
});

describe('an operation that waits for a worker without progress', () => {
  /** Sends to a worker until the log says why nothing comes back. */
  const expectWarning = async (one: Worker, address: Uint8Array, pattern: RegExp): Promise<void> => {
    contexts.allow(pattern);
    const endpoint = one.endpoint(address);
    const stop = new AbortController();
    const sent = failureOf(() => endpoint.tagSendSync(new Uint8Array(8), { signal: stop.signal }));
    while (!contexts.records.some(({ message }) => pattern.test(message))) await new Promise(setImmediate);
    stop.abort();
    await endpoint.close({ force: true });
    expect(await sent).toMatchObject({ name: 'AbortError' });
    expect(contexts.records.filter(({ message }) => pattern.test(message)).length).toBe(1);
  };

  it.each(ENGINES.filter(([, isSkipped]) => !isSkipped))('says that it is of this process, over %s', async (title) => {
    const engine = title === 'native' ? 'native' : 'libucx';
    const { context } = await contexts.openOn(contexts.node(), { engine });
    const idle = context.worker({ progress: 'manual' });
    await expectWarning(context.worker(), idle.address(), /waits for worker \S+ \(this process\), .*call progress\(\)/);
  });

  it.each(['posix', 'tcp'])('says which process or address, over %s', async (transport) => {
    const child = spawn(process.execPath, [PROGRAM, 'native', 'idle'], { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      const [line] = await once(child.stdout, 'data');
      const config = { TLS: `${transport},self`, ...(transport === 'tcp' ? { NET_DEVICES: 'lo' } : {}) };
      const { context } = await contexts.openOn(contexts.node(), { engine: 'native', config });
      const place = transport === 'posix' ? `process ${child.pid}` : '[\\d.]+:\\d+';
      const address = new Uint8Array(Buffer.from(String(line), 'base64'));
      await expectWarning(context.worker(), address, new RegExp(`waits for worker \\w+ \\(${place}\\)`));
    } finally {
      child.kill();
      await once(child, 'close');
    }
  });
});

describe('the option progress', () => {
  it.each(['never', null, true, 1])('is auto or manual: %s is refused', async (progress) => {
    const { context } = await contexts.openOn(contexts.node());
    const error = await failureOf(() => context.worker({ progress: progress as 'auto' }));
    expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM' });
    expect(error.message).toContain("progress must be 'auto' or 'manual'");
  });
});
