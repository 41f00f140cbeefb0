/** Awaited messages take a range of memory as `{ memory, offset, byteLength }`, as lists do for each of their pieces. */

import { describe, expect, it } from 'vitest';
import { type AmMessage, Context, type Endpoint, type MemoryHandle, type Worker } from '../../../src/index.ts';
import { ENGINES, pattern } from '../../fixtures/pair.ts';

const BYTES = 2 ** 18;
const OFFSET = 3;

interface Side {
  readonly context: Context;
  readonly worker: Worker;
  readonly endpoint: Endpoint;
}

type Memory = Uint8Array | MemoryHandle;

describe.each(ENGINES)('over the engine %s', (engine) => {
  async function withSide(run: (side: Side) => Promise<void>): Promise<void> {
    await using context = await Context.create({ engine, env: { UCX_TLS: 'self,tcp' }, configDirectories: [] });
    const worker = context.worker();
    await run({ context, worker, endpoint: worker.endpoint(worker.address()) });
  }

  function memoryOf({ context }: Side, kind: string, bytes: Uint8Array): Memory {
    return kind === 'bytes' ? bytes : context.memMap({ buffer: bytes });
  }

  /** Source and target, of which a range in the middle is moved, and what the target has then. */
  function ranges(side: Side, kind: string, byteLength: number) {
    const source = pattern(byteLength + 8, 5);
    const target = new Uint8Array(byteLength + 8);
    const expected = new Uint8Array(byteLength + 8);
    expected.set(source.subarray(OFFSET, OFFSET + byteLength), OFFSET);
    const from = { memory: memoryOf(side, kind, source), offset: OFFSET, byteLength };
    const to = { memory: memoryOf(side, kind, target), offset: OFFSET, byteLength };
    return { from, to, target, expected };
  }

  describe.each(['bytes', 'registered'])('%s memory', (kind) => {
    it.each([16, BYTES])('a tagged message of %i bytes', (byteLength) =>
      withSide(async (side) => {
        const { worker, endpoint } = side;
        for (const send of ['tagSend', 'tagSendSync'] as const) {
          const { from, to, target, expected } = ranges(side, kind, byteLength);
          const [received, sent] = await Promise.all([worker.tagRecv(to), endpoint[send](from)]);
          expect([received.byteLength, sent.byteLength]).toEqual([byteLength, byteLength]);
          expect(Buffer.compare(target, expected)).toBe(0);
        }
      }),
    );

    it.each([16, BYTES])('a stream and an active message of %i bytes', (byteLength) =>
      withSide(async (side) => {
        const { worker, endpoint } = side;
        const stream = ranges(side, kind, byteLength);
        const [received] = await Promise.all([
          endpoint.streamRecv(stream.to, { waitAll: true }),
          endpoint.streamSend(stream.from),
        ]);
        expect(received).toBe(byteLength);
        expect(Buffer.compare(stream.target, stream.expected)).toBe(0);
        const message = new Promise<AmMessage>((resolve) => worker.setAmHandler(1, (am) => resolve(am.retain())));
        const active = ranges(side, kind, byteLength);
        const sent = endpoint.amSend(1, active.from);
        expect(await (await message).into(active.to)).toBe(byteLength);
        await sent;
        expect(Buffer.compare(active.target, active.expected)).toBe(0);
      }),
    );
  });

  it('offset and byteLength have the defaults of pieces', () =>
    withSide(async ({ worker, endpoint }) => {
      const target = new Uint8Array(8);
      const send = endpoint.tagSend({ memory: Uint8Array.of(1, 2, 3, 4), offset: 2 });
      expect(await worker.tagRecv({ memory: target })).toMatchObject({ byteLength: 2 });
      await send;
      expect([...target.subarray(0, 3)]).toEqual([3, 4, 0]);
    }));

  it.each<[string, unknown, string]>([
    ['a misspelt field', { memory: new Uint8Array(8), ofset: 2 }, 'ofset'],
    ['a list as its memory', { memory: [{ memory: new Uint8Array(8) }] }, 'must be a Uint8Array or a memory handle'],
    ['no memory', { memory: undefined }, 'must be a Uint8Array or a memory handle'],
    ['an offset behind the memory', { memory: new Uint8Array(8), offset: 9 }, 'offset 9'],
    ['a bigint', { memory: new Uint8Array(8), offset: 1n }, 'must be a number'],
    ['a negative offset', { memory: new Uint8Array(8), offset: -1 }, 'must be an integer of 0 or more'],
    ['more bytes than the memory has', { memory: new Uint8Array(8), offset: 4, byteLength: 5 }, '5 bytes'],
  ])('refuses %s', (_, piece, text) =>
    withSide(async ({ worker, endpoint }) => {
      const local = piece as Uint8Array;
      for (const call of [
        () => endpoint.tagSend(local),
        () => endpoint.amSend(1, local),
        () => endpoint.streamSend(local),
        () => endpoint.streamRecv(local),
        () => worker.tagRecv(local),
      ])
        await expect(call()).rejects.toMatchObject({
          code: 'ERR_INVALID_PARAM',
          message: expect.stringContaining(text),
        });
    }),
  );
});
