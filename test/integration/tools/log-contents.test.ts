/** Logs and messages of errors never contain bytes of memory: not as text, not as numbers. */

import { afterEach, describe, expect, it } from 'vitest';
import { createEmulatedNode, type EmulatedNode } from '../../../src/emulator/index.ts';
import { Context, type EngineName, MemoryType } from '../../../src/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { ENGINES } from '../../fixtures/pair.ts';

expectNoLeaks();

/** Contents that must not occur in a log. */
const SECRET = 'K7-correct-horse-battery-staple-Q2';
const BYTES = Buffer.from(SECRET.repeat(64));

/** The representations of bytes in texts, in pieces that are long enough not to match by accident. */
const TRACES: readonly string[] = [
  SECRET.slice(3, 19),
  Buffer.from(SECRET.slice(3, 15)).toString('hex'),
  Buffer.from(SECRET.slice(3, 15)).toString('base64'),
  [...Buffer.from(SECRET.slice(3, 9))].join(','),
  [...Buffer.from(SECRET.slice(3, 9))].join(' '),
  String(Buffer.from(SECRET).readBigUInt64LE(3)),
];

function expectNoTrace(texts: readonly string[]): void {
  const all = texts.join('\n').toLowerCase();
  for (const trace of TRACES) expect(all).not.toContain(trace.toLowerCase());
}

let node: EmulatedNode | undefined;
const contexts: Context[] = [];
afterEach(async () => {
  for (const context of contexts.splice(0)) await context.close();
  node?.close();
});

/** A context whose records of every level are appended to `texts`. */
async function open(texts: string[], engine: EngineName): Promise<Context> {
  node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
  const context = await Context.create({
    node,
    engine,
    env: {},
    configDirectories: [],
    config: { LOG_LEVEL: 'poll' },
    logSink: (_level, component, message) => texts.push(`${component} ${message}`),
  });
  contexts.push(context);
  return context;
}

describe.each(ENGINES)('at the level poll over %s', (engine) => {
  it('no transfer, message or failure logs its bytes', async () => {
    const texts: string[] = [];
    const context = await open(texts, engine);
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    for (const memoryType of [MemoryType.HOST, MemoryType.GAUDI]) {
      const memory = context.memMap({ allocate: BYTES.byteLength, memoryType });
      const rkey = endpoint.unpackRkey(context.packRkey(memory));
      await endpoint.put(BYTES, rkey);
      const back = Buffer.alloc(BYTES.byteLength);
      await endpoint.get(back, rkey);
      expect(back).toEqual(BYTES);
      texts.push(endpoint.explain('put', BYTES, rkey).toString());
      texts.push((await failureOf(() => endpoint.put(BYTES, rkey, { remoteOffset: 8 }))).message);
      context.memUnmap(memory);
      // libucp does not know that host memory of the same process is unmapped.
      if (engine === 'libucx' && memoryType === MemoryType.HOST) continue;
      texts.push((await failureOf(() => endpoint.put(BYTES, rkey))).message);
    }
    const received = Buffer.alloc(BYTES.byteLength);
    await Promise.all([endpoint.tagSend(BYTES, { tag: 7 }), worker.tagRecv(received, { tag: 7 })]);
    expect(received).toEqual(BYTES);
    const short = failureOf(() => worker.tagRecv(Buffer.alloc(8), { tag: 8 }));
    await endpoint.tagSend(BYTES, { tag: 8 });
    texts.push((await short).message);
    const malformed = BYTES as Uint8Array;
    texts.push((await failureOf(() => worker.endpoint(malformed))).message);
    texts.push((await failureOf(() => endpoint.unpackRkey(malformed))).message);
    expect(texts.length).toBeGreaterThan(4);
    expectNoTrace(texts);
  });
});

describe('expectNoTrace', () => {
  it.each([
    ['text', `x ${SECRET} y`],
    ['hex', BYTES.toString('hex', 0, 34)],
    ['numbers', [...BYTES.subarray(0, 34)].join(',')],
    ['an inspected view', [...BYTES.subarray(0, 34)].join(' ')],
  ])('finds %s', (_what, text) => {
    expect(() => expectNoTrace([text])).toThrow();
  });
});
