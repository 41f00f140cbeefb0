/** Keys of memory in one process: the same until they are revoked, and refused with a change in any field. */

import { describe, expect, it } from 'vitest';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { MdMemory } from '../../api/memory.ts';
import { KEY_BYTES, KeyTable, sameSecret } from './keys.ts';

describe('a key', () => {
  function memoryOf(generation: number, sysDevice?: number): MdMemory {
    return {
      mdName: 'm',
      memoryType: MemoryType.HOST,
      sysDevice,
      address: 0n,
      byteLength: 100 + generation,
      generation,
    } as MdMemory;
  }
  function packed(table: KeyTable<MdMemory>, memory: MdMemory): Uint8Array {
    const bytes = new Uint8Array(KEY_BYTES + 4);
    table.pack(memory, bytes, 4);
    return bytes.slice(4);
  }

  it('is the same until it is revoked, and a new one then', () => {
    const table = new KeyTable<MdMemory>('m');
    const [memory, other] = [memoryOf(1), memoryOf(2, 5)];
    const first = packed(table, memory);
    expect([packed(table, memory), table.find(first), table.find(packed(table, other))]).toEqual([
      first,
      memory,
      other,
    ]);
    table.revoke(memory);
    table.revoke(memory);
    expect(() => table.find(first)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    const second = packed(table, memory);
    expect(second).not.toEqual(first);
    expect(table.find(second)).toBe(memory);
    expect(() => table.find(first)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
  });

  it('is refused with a change in any of its fields', () => {
    const table = new KeyTable<MdMemory>('m');
    const key = packed(table, memoryOf(1, 3));
    const codes = Array.from({ length: KEY_BYTES }, (_, at) => {
      const changed = key.slice();
      changed[at]! ^= 1;
      try {
        table.find(changed);
        return 'found';
      } catch (error) {
        return (error as { code: string }).code;
      }
    });
    const fields = (from: number, end: number): Set<string> => new Set(codes.slice(from, end));
    expect([fields(0, 4), fields(4, 8), fields(8, 16), fields(16, 24), fields(24, 48)]).toEqual([
      new Set(['ERR_RKEY_MALFORMED']),
      new Set(['ERR_RKEY_FORGED']),
      new Set(['ERR_RKEY_STALE']),
      new Set(['ERR_RKEY_FORGED']),
      new Set(['ERR_RKEY_FORGED']),
    ]);
    expect(() => table.find(key.subarray(1))).toThrow(expect.objectContaining({ code: 'ERR_RKEY_MALFORMED' }));
  });

  it('has a secret of its length', () => {
    const secret = Uint8Array.of(1, 2, 3);
    const others = [Uint8Array.of(1, 2, 3), Uint8Array.of(1, 2), Uint8Array.of(1, 2, 3, 0), Uint8Array.of(1, 2, 4)];
    expect(others.map((other) => sameSecret(secret, other))).toEqual([true, false, false, false]);
    expect(sameSecret(new Uint8Array(0), secret)).toBe(false);
  });
});
