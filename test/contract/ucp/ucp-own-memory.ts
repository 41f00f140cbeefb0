/** Copies between a program and its own mapped memory, of the host and of cards, by the handle alone, over both engines. */

import { afterEach, describe, expect, it } from 'vitest';
import { Context, type EngineName, type MemoryHandle, type MemoryProtection, MemoryType } from '../../../src/index.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';

const BYTES = 3_000_017;
const KINDS = ['host', 'gaudi', 'gaudi of another card'] as const;

/** Declares the tests of own memory over an engine. */
export function ownMemoryContract(engine: EngineName): void {
  describe(`own memory over ${engine}`, () => {
    let context: Context;
    afterEach(() => context.close());
    const map = (kind: (typeof KINDS)[number], byteLength = BYTES): MemoryHandle => {
      if (kind === 'host') return context.memMap({ allocate: byteLength, memoryType: 'host' });
      return context.memMap({ allocate: byteLength, memoryType: 'gaudi', sysDevice: kind === 'gaudi' ? 0 : 1 });
    };
    const open = async (): Promise<void> => {
      context = await Context.create({ engine, config: { GAUDI_DRIVER: 'emulator', GAUDI_EMULATOR_CARDS: '2' } });
    };

    it.each(KINDS)('is written, read and filled: %s', async (kind) => {
      await open();
      const memory = map(kind);
      expect(memory.memoryType).toBe(kind === 'host' ? MemoryType.HOST : MemoryType.GAUDI);
      const bytes = pattern(BYTES, 1);
      await memory.write(bytes);
      expectSame(await memory.read(), bytes);
      await memory.write(Uint8Array.of(1, 2, 3), { offset: 1001 });
      bytes.set([1, 2, 3], 1001);
      const target = new Uint8Array(10).fill(9);
      expect(await memory.read(target, { offset: 999, byteLength: 6 })).toEqual(bytes.subarray(999, 1005));
      expect(target).toEqual(Uint8Array.from([...bytes.subarray(999, 1005), 9, 9, 9, 9]));
      expect(await memory.read(target, { offset: BYTES - 10 })).toBe(target);
      expectSame(target, bytes.subarray(BYTES - 10));
      await memory.fill(0xab, { offset: 7, byteLength: BYTES - 8 });
      bytes.fill(0xab, 7, BYTES - 1);
      expectSame(await memory.read(), bytes);
      await memory.fill(0);
      expect((await memory.read()).every((byte) => byte === 0)).toBe(true);
      context.memUnmap(memory);
    });

    it.each(KINDS.flatMap((from) => KINDS.map((to) => [from, to] as const)))(
      'is copied: %s to %s',
      async (from, to) => {
        await open();
        const [source, target] = [map(from), map(to)];
        const bytes = pattern(BYTES, 2);
        await source.write(bytes);
        await target.fill(5);
        await source.copyTo(target);
        expectSame(await target.read(), bytes);
        await source.copyTo(target, { offset: 1000, byteLength: 500, targetOffset: 3 });
        bytes.copyWithin(3, 1000, 1500);
        expectSame(await target.read(), bytes);
        for (const memory of [source, target]) context.memUnmap(memory);
      },
    );

    it.each(KINDS)(
      'is for the local accesses that it is mapped for, whatever peers may do with it: %s',
      async (kind) => {
        await open();
        const [sysDevice, memoryType] =
          kind === 'host' ? [undefined, 'host' as const] : [kind === 'gaudi' ? 0 : 1, 'gaudi' as const];
        const place = { allocate: 100, memoryType, ...(sysDevice === undefined ? {} : { sysDevice }) };
        const [readOnly, writeOnly, local] = [['local-read'], ['local-write'], ['local-read', 'local-write']].map(
          (protection) => context.memMap({ ...place, protection: protection as MemoryProtection[] }),
        ) as [MemoryHandle, MemoryHandle, MemoryHandle];
        const bytes = pattern(100, 4);
        await local.write(bytes);
        await local.copyTo(writeOnly);
        await local.fill(9, { byteLength: 50 });
        expectSame(await local.read(), bytes.fill(9, 0, 50));
        await readOnly.copyTo(local);
        expectSame(await local.read(), await readOnly.read());
        for (const refused of [
          readOnly.write(bytes),
          readOnly.fill(1),
          local.copyTo(readOnly),
          writeOnly.read(),
          writeOnly.copyTo(local),
        ]) {
          await expect(refused).rejects.toMatchObject({
            code: 'ERR_INVALID_PARAM',
            message: expect.stringMatching(/memory.* must be mapped with protection local-(read|write)/),
          });
        }
        for (const memory of [readOnly, writeOnly, local]) context.memUnmap(memory);
      },
    );

    it.each(KINDS)('is not copied after a signal: %s', async (kind) => {
      await open();
      const [memory, other] = [map(kind), map(kind)];
      await memory.fill(7);
      const { signal } = new AbortController();
      await memory.write(new Uint8Array(1), { signal });
      const aborted = { signal: AbortSignal.abort() };
      for (const refused of [
        memory.write(new Uint8Array(8), aborted),
        memory.read(undefined, aborted),
        memory.fill(1, aborted),
        other.copyTo(memory, aborted),
      ]) {
        await expect(refused).rejects.toMatchObject({ name: 'AbortError' });
      }
      expect((await memory.read()).subarray(0, 3)).toEqual(Uint8Array.of(0, 7, 7));
      for (const each of [memory, other]) context.memUnmap(each);
    });

    it('is moved inside host memory, and refused where ranges of device memory overlap', async () => {
      await open();
      for (const kind of KINDS) {
        const memory = map(kind, 1000);
        const bytes = pattern(1000, 4);
        await memory.write(bytes);
        for (const [offset, byteLength, targetOffset] of [
          [0, 900, 100],
          [100, 900, 0],
          [5, 10, 5],
        ] as const) {
          const copied = memory.copyTo(memory, { offset, byteLength, targetOffset });
          if (memory.bytes === undefined) await expect(copied).rejects.toMatchObject({ code: 'ERR_INVALID_PARAM' });
          else {
            await copied;
            bytes.copyWithin(targetOffset, offset, offset + byteLength);
          }
        }
        await memory.copyTo(memory, { offset: 0, byteLength: 500, targetOffset: 500 });
        bytes.copyWithin(500, 0, 500);
        expectSame(await memory.read(), bytes);
        context.memUnmap(memory);
      }
    });

    it('is refused out of bounds, after memUnmap, and with memory of other contexts', async () => {
      await open();
      await using other = await Context.create({ engine, config: { GAUDI_DRIVER: 'emulator' } });
      const foreign = other.memMap({ allocate: 100 });
      for (const kind of KINDS) {
        const memory = map(kind, 100);
        const refused = [
          memory.write(new Uint8Array(101)),
          memory.write(new Uint8Array(1), { offset: 100 }),
          memory.write('text' as never),
          memory.write(new Uint8Array(1), { offset: -1 }),
          memory.read(new Uint8Array(4), { byteLength: 5 }),
          memory.read(undefined, { offset: 1, byteLength: 100 }),
          memory.read(undefined, { byteLenght: 1 } as never),
          memory.fill(256),
          memory.fill(1, { offset: 101 }),
          memory.copyTo(foreign),
          memory.copyTo(map('host', 99)),
          memory.copyTo({ ...memory } as never),
        ];
        for (const each of refused) await expect(each).rejects.toMatchObject({ code: 'ERR_INVALID_PARAM' });
        context.memUnmap(memory);
        await expect(memory.write(new Uint8Array(1))).rejects.toMatchObject({ code: 'ERR_CLOSED' });
        await expect(map('host', 9).copyTo(memory)).rejects.toMatchObject({ code: 'ERR_CLOSED' });
      }
    });

    it('accepts memory types by name, and refuses unknown names with the known ones', async () => {
      await open();
      expect(() => context.memMap({ allocate: 1, memoryType: 'gaudy' as never })).toThrow(/host.*gaudi/);
      expect(() => context.memMap({ allocate: 1, memoryType: 'unknown' as never })).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
      );
      const range = { address: 0x7000_0000_0000, byteLength: 4096 };
      const event = { event: 'allocated', ...range } as const;
      context.memoryTypeEvent({ ...event, memoryType: 'cuda' });
      expect(context.memQuery(range).memoryType).toBe(MemoryType.CUDA);
    });
  });
}
