/** The contract of atomic operations: every operation on words of both sizes, compared with BigInt arithmetic; refused operations change nothing. */

import { describe, expect, it } from 'vitest';
import { WordOperation } from '../../../src/api/operation/word-operation.ts';
import { MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { AtomicOperation, IfaceFlag } from '../../../src/uct/api/iface.ts';
import { requires } from '../../fixtures/requires.ts';
import { RmaFixture } from './endpoint-rma-fixture.ts';
import { finish, flush, keyOf, type MdSetup } from './uct-fixture.ts';

const OPERATIONS = Object.keys(AtomicOperation) as (keyof typeof AtomicOperation)[];
const CASES = ([4, 8] as const).flatMap((wordBytes) => OPERATIONS.map((name) => [name, wordBytes] as const));

function expected(name: keyof typeof AtomicOperation, before: bigint, value: bigint, compare: bigint): bigint {
  switch (name) {
    case 'ADD':
      return before + value;
    case 'AND':
      return before & value;
    case 'OR':
      return before | value;
    case 'XOR':
      return before ^ value;
    case 'SWAP':
      return value;
    case 'CSWAP':
      return before === compare ? value : before;
  }
}

/** A device may have words of 64 bits only. */
function hasWords32(flags: number): boolean {
  return (flags & IfaceFlag.ATOMIC32) !== 0;
}

function call(name: keyof typeof AtomicOperation, wordBytes: 4 | 8, value: bigint, compare: bigint): WordOperation {
  return WordOperation.of(AtomicOperation[name], wordBytes, value, compare);
}

/** Declares the suite, for transports with atomic operations. */
export function endpointAtomicsContract(name: string, setup: MdSetup): void {
  describe(`atomic operations: ${name}`, () => {
    const fixture = new RmaFixture(setup);

    it.each(CASES)('%s on %s bytes', async (operation, wordBytes) => {
      const { md, iface, endpoint } = fixture;
      expect(iface.attributes.flags & IfaceFlag.ATOMIC64).toBeGreaterThan(0);
      requires(wordBytes === 8 || hasWords32(iface.attributes.flags), 'words of 32 bits');
      const there = fixture.remoteMemory(MemoryType.HOST, 64)!;
      const bytes = fixture.pattern(64);
      await fixture.write(there, bytes);
      const rkey = keyOf(md, there);
      const view = new DataView(bytes.buffer);
      const read = (at: number): bigint =>
        wordBytes === 4 ? BigInt(view.getUint32(at, true)) : view.getBigUint64(at, true);
      const bits = wordBytes * 8;
      for (let at = 0; at < 64; at += wordBytes) {
        const before = read(at);
        const value = BigInt.asUintN(bits, 0xfedc_ba98_7654_3210n + BigInt(at));
        const each = call(operation, wordBytes, value, at % 16 === 0 ? before : before + 1n);
        const status = await finish(iface, (completion) => endpoint.atomic(each, at, rkey, completion));
        expect(status).toBe(Status.OK);
        expect(each.result).toBe(before);
        const after = BigInt.asUintN(bits, expected(operation, before, value, each.compare));
        if (wordBytes === 4) view.setUint32(at, Number(after), true);
        else view.setBigUint64(at, after, true);
      }
      expect(await flush(iface, endpoint)).toBe(Status.OK);
      await fixture.expectBytes(there, bytes);
    });

    it.each([
      [64, 4],
      [60, 8],
      [-4, 4],
      [2, 4],
      [4, 8],
      [Number.NaN, 4],
    ] as const)('refuse a word at %s of %s bytes', async (offset, wordBytes) => {
      const { md, iface, endpoint } = fixture;
      requires(wordBytes === 8 || hasWords32(iface.attributes.flags), 'words of 32 bits');
      const there = fixture.remoteMemory(MemoryType.HOST, 64)!;
      const bytes = fixture.pattern(64);
      await fixture.write(there, bytes);
      const rkey = keyOf(md, there);
      const completion = fixture.completion();
      expect(endpoint.atomic(call('ADD', wordBytes, 1n, 0n), offset, rkey, completion)).toBe(Status.INVALID_ADDR);
      expect(completion.calls).toBe(0);
      await fixture.expectBytes(there, bytes);
    });

    it('refuse unmapped memory', () => {
      const { md, endpoint } = fixture;
      const there = fixture.remoteMemory(MemoryType.HOST, 64)!;
      const rkey = keyOf(md, there);
      fixture.end(there);
      const completion = fixture.completion();
      expect(endpoint.atomic(call('ADD', 8, 1n, 0n), 0, rkey, completion)).toBe(Status.INVALID_ADDR);
    });
  });
}
