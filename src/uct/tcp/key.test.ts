/** Keys of tcp: valid while their memory is registered, stale afterwards, and impossible to guess. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { errorOf } from '../../../test/contract/uct/uct-fixture.ts';
import { MemAccess } from '../api/memory-domain.ts';
import { HostMemory } from '../base/host/memory.ts';
import { TCP_KEY_BYTES, type TcpKey, TcpKeyTable } from './key.ts';

function memoryOf(byteLength: number, access: number = MemAccess.ALL): HostMemory {
  const bytes = new Uint8Array(new ArrayBuffer(byteLength));
  return new HostMemory({
    mdName: 'tcp',
    bytes,
    generation: 1,
    allocation: undefined,
    packable: true,
    access,
  });
}

function packed(table: TcpKeyTable, memory: HostMemory): Uint8Array {
  const bytes = new Uint8Array(TCP_KEY_BYTES);
  table.pack(memory, bytes, 0);
  return bytes;
}

describe('a key', () => {
  it('finds its memory and stays the same until it is revoked, and then is stale', () => {
    const table = new TcpKeyTable();
    const memory = memoryOf(100);
    const bytes = packed(table, memory);
    expect(packed(table, memory)).toEqual(bytes);
    const key = table.unpack(bytes);
    expect([key.byteLength, key.live, table.find(key.words, 0, 0)]).toEqual([100, true, memory]);
    table.revoke(memory);
    expect([key.live, table.find(key.words, 0, 0)]).toEqual([false, undefined]);
    expect(errorOf(() => table.unpack(bytes)).code).toBe('ERR_RKEY_STALE');
    // Its slot is reused with another generation and secret.
    const next = memoryOf(100);
    const other = table.unpack(packed(table, next));
    expect([other.words[0], other.words[1]]).toEqual([key.words[0], key.words[1]! + 1]);
    expect([key.live, other.live, table.find(key.words, 0, 0)]).toEqual([false, true, undefined]);
    expect(errorOf(() => table.unpack(bytes)).code).toBe('ERR_RKEY_STALE');
  });

  it('finds memory only for accesses that it permits', () => {
    const table = new TcpKeyTable();
    const [read, written] = [MemAccess.REMOTE_GET, MemAccess.REMOTE_PUT].map((access) => {
      const memory = memoryOf(8, access | MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE);
      return { memory, key: table.unpack(packed(table, memory)) };
    }) as [{ memory: HostMemory; key: TcpKey }, { memory: HostMemory; key: TcpKey }];
    expect([read.key.live, written.key.live]).toEqual([true, true]);
    expect([table.findForGet(read.key.words, 0), table.findForPut(read.key.words, 0)]).toEqual([
      read.memory,
      undefined,
    ]);
    expect(table.findForPut(written.key.words, 0)).toBe(written.memory);
    expect(table.findForGet(written.key.words, 0)).toBeUndefined();
  });

  it('of another table is checked by its owner only', () => {
    const [owner, other] = [new TcpKeyTable(), new TcpKeyTable()];
    const memory = memoryOf(8);
    const key = other.unpack(packed(owner, memory));
    expect(key.live).toBe(true);
    owner.revoke(memory);
    expect(key.live).toBe(true);
    expect(owner.find(key.words, 0, 0)).toBeUndefined();
    key.release();
    expect(key.live).toBe(false);
  });

  it('with another length than its memory has is forged', () => {
    const table = new TcpKeyTable();
    const memory = memoryOf(100);
    const lengths: number[] = [];
    for (const byteLength of [99, 101, 100]) {
      // Packed as by a peer that knows the layout, with a right checksum.
      const claimed = Object.defineProperty(memory, 'byteLength', { value: byteLength, configurable: true });
      const bytes = packed(table, claimed);
      Object.defineProperty(memory, 'byteLength', { value: 100, configurable: true });
      if (byteLength === 100) lengths.push(table.unpack(bytes).byteLength);
      else expect(errorOf(() => table.unpack(bytes)).code).toBe('ERR_RKEY_FORGED');
    }
    expect(lengths).toEqual([100]);
  });

  it('distinguishes hundreds of memories', () => {
    const table = new TcpKeyTable();
    const memories = Array.from({ length: 300 }, () => memoryOf(8));
    const keys = memories.map((memory) => table.unpack(packed(table, memory)));
    for (const [i, key] of keys.entries()) expect(table.find(key.words, 0, 0)).toBe(memories[i]);
    for (let i = 0; i < 300; i += 2) table.revoke(memories[i]!);
    for (const [i, { words }] of keys.entries()) expect(table.find(words, 0, 0) === undefined).toBe(i % 2 === 0);
  });

  it('with any changed bit is malformed, and with any changed word finds nothing', async () => {
    const table = new TcpKeyTable();
    const memory = memoryOf(8);
    const bytes = packed(table, memory);
    for (let bit = 0; bit < TCP_KEY_BYTES * 8; bit++) {
      const changed = bytes.slice();
      changed[bit >> 3]! ^= 1 << (bit & 7);
      expect(errorOf(() => table.unpack(changed)).code).toBe('ERR_RKEY_MALFORMED');
    }
    for (const length of [0, 1, TCP_KEY_BYTES - 1, TCP_KEY_BYTES + 1]) {
      expect(errorOf(() => table.unpack(new Uint8Array(length))).code).toBe('ERR_RKEY_MALFORMED');
    }
    const { words } = table.unpack(bytes);
    await fc.assert(
      fc.property(fc.nat(5), fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }), (at, word) => {
        const changed = words.slice();
        changed[at] = word;
        expect(table.find(changed, 0, 0)).toBe(word === words[at] ? memory : undefined);
      }),
    );
  });
});
