import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { withoutDescriptors } from '../../../../test/fixtures/processes/no-descriptors.ts';
import { SEGMENT_PROBES } from '../../../../test/fixtures/transports/own-segments.ts';
import { Errno, isOwn } from '../../../sys/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { MdMemory } from '../../api/memory.ts';
import {
  PUBLISHED_KEYS_MAX,
  RKEY_TABLE_KEY_BYTES,
  RKEY_TABLE_PAYLOAD_WORDS,
  RkeyTable,
  TABLE_BYTES,
} from './rkey-table.ts';
import { RkeyTableReader } from './rkey-table-reader.ts';
import { Segment } from './segment.ts';

expectNoLeaks(SEGMENT_PROBES);

const KEY_CODES = ['ERR_RKEY_MALFORMED', 'ERR_RKEY_STALE', 'ERR_RKEY_FORGED'];
let table = new RkeyTable('test');
let reader = new RkeyTableReader('test');

beforeEach(() => {
  table = new RkeyTable('test');
  reader = new RkeyTableReader('test');
});
afterEach(() => {
  reader.close();
  table.close();
});

function memory(byteLength = 5_000_000_000, sysDevice?: number): MdMemory {
  return {
    mdName: 'test',
    memoryType: MemoryType.HOST,
    sysDevice,
    address: 4096n,
    byteLength,
    bytes: undefined,
    generation: 1,
    live: true,
  };
}

function published(one: MdMemory, payload = new Int32Array(0), owner = table): Uint8Array {
  owner.publish(one, payload);
  const packed = new Uint8Array(RKEY_TABLE_KEY_BYTES);
  owner.pack(one, packed, 0);
  return packed;
}

/** The key of memory in a table. */
function keyIn(owner: RkeyTable<MdMemory>): Uint8Array {
  return published(memory(), undefined, owner);
}

function codeOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    return isUcxError(error) ? error.code : String(error);
  }
  return 'nothing';
}

describe('a published key', () => {
  it('has the contents of its slot until it is revoked', () => {
    const one = memory(5_000_000_000, 3);
    const payload = Int32Array.from({ length: RKEY_TABLE_PAYLOAD_WORDS }, (_, i) => i - 5);
    const packed = published(one, payload);
    const key = reader.open(packed);
    expect(key).toMatchObject({ byteLength: 5_000_000_000, device: 3, payload, live: true });
    expect(isOwn(key.owner)).toBe(true);
    table.revoke(one);
    expect(key.live).toBe(false);
    expect(codeOf(() => reader.open(packed))).toBe('ERR_RKEY_STALE');
    const again = published(memory());
    expect(key.live).toBe(false);
    const second = reader.open(again);
    expect(second).toMatchObject({ device: undefined, payload: new Int32Array(RKEY_TABLE_PAYLOAD_WORDS) });
    for (const each of [key, key, second]) each.release();
  });

  it('is invalid after its owner or its reader has closed', () => {
    const packed = published(memory());
    const key = reader.open(packed);
    const other = new RkeyTableReader('test');
    const second = other.open(packed);
    other.close();
    expect([key.live, second.live]).toEqual([true, false]);
    table.close();
    expect(key.live).toBe(false);
    // An rkey table that is still attached, and one that can no longer be attached.
    expect(codeOf(() => reader.open(packed))).toBe('ERR_RKEY_STALE');
    expect(codeOf(() => other.open(packed))).toBe('ERR_RKEY_STALE');
    other.close();
  });

  it('that is released twice leaves the table to the other keys of it', () => {
    const [first, second] = [reader.open(published(memory())), reader.open(published(memory()))];
    first.release();
    first.release();
    // Idle tables that would replace one that seems idle.
    const others = Array.from({ length: 17 }, () => new RkeyTable('test'));
    for (const other of others) reader.open(keyIn(other)).release();
    expect(second.live).toBe(true);
    second.release();
    for (const other of others) other.close();
  });

  it('that is rejected does not keep its table attached', () => {
    const attached = (): number => readFileSync('/proc/self/maps', 'utf8').match(/gaudi_ucx/g)?.length ?? 0;
    const others = Array.from({ length: 20 }, () => new RkeyTable('other'));
    const keys = others.map(keyIn);
    const before = attached();
    for (const packed of keys) expect(codeOf(() => reader.open(packed))).toBe('ERR_RKEY_FORGED');
    // 16 idle tables stay attached.
    expect(attached() - before).toBe(16);
    for (const other of others) other.close();
  });

  it('is not stale because this process lacks descriptors', async () => {
    const packed = published(memory());
    await withoutDescriptors(() => {
      expect(() => reader.open(packed)).toThrow(expect.objectContaining({ errno: Errno.EMFILE }));
    });
    reader.open(packed).release();
  });

  it('is never one of a free slot', () => {
    const packed = published(memory());
    reader.open(packed).release();
    // The words of a free slot: no generation, device, length and secret.
    const free = packed.slice();
    new DataView(free.buffer).setUint32(8, 5, true);
    free.fill(0, 4, 8);
    free.fill(0, 12, 40);
    expect(codeOf(() => reader.open(free))).toBe('ERR_RKEY_MALFORMED');
  });

  it('is rejected by another memory domain', () => {
    const packed = published(memory());
    const other = new RkeyTableReader('tes');
    expect(codeOf(() => other.open(packed))).toBe('ERR_RKEY_FORGED');
    other.close();
  });

  it('is rejected with any bit changed', () => {
    const packed = published(memory());
    published(memory());
    for (let bit = 0; bit < packed.byteLength * 8; bit++) {
      const forged = packed.slice();
      forged[bit >> 3]! ^= 1 << (bit & 7);
      expect(KEY_CODES, `bit ${bit}`).toContain(codeOf(() => reader.open(forged)));
    }
    reader.open(packed).release();
  });

  it('is not found in an rkey table of random bytes', async () => {
    const packed = published(memory());
    const hostile = Segment.create(TABLE_BYTES);
    const small = Segment.create(64);
    const random = fc.uint8Array({ minLength: 256, maxLength: 256 });
    await fc.assert(
      fc.property(random, fc.nat(300), fc.boolean(), (bytes, at, tagged) => {
        hostile.bytes.set(bytes);
        // Some with the tag of a real rkey table, and some with the key's generation.
        if (tagged) hostile.bytes[0] = 1;
        if (tagged) hostile.bytes.set(Buffer.from('test\0\0\0\0\0\0\0\0\0\0\0\0'), 4);
        if (tagged) hostile.bytes.set(bytes.subarray(0, 1), 128 + at);
        const forged = packed.slice();
        forged.set((tagged ? hostile : small).packedName, 40);
        expect(KEY_CODES).toContain(codeOf(() => reader.open(forged)));
      }),
    );
    reader.close();
    hostile.close();
    small.close();
  });
});

describe('publishing', () => {
  it('rejects published memory, unpublished memory, and a long payload', () => {
    const one = memory();
    const packed = published(one);
    expect(codeOf(() => table.publish(one, new Int32Array(0)))).toBe('ERR_INVALID_PARAM');
    expect(codeOf(() => table.publish(memory(), new Int32Array(RKEY_TABLE_PAYLOAD_WORDS + 1)))).toBe(
      'ERR_INVALID_PARAM',
    );
    expect(codeOf(() => table.pack(memory(), packed, 0))).toBe('ERR_INVALID_PARAM');
    expect(codeOf(() => table.pack(one, packed, 1))).toBe('ERR_INVALID_PARAM');
    table.revoke(memory());
    expect([table.has(one), table.has(memory())]).toEqual([true, false]);
  });

  it('fails at its limit with NO_RESOURCE, and succeeds again when a key is revoked', () => {
    const first = memory();
    table.publish(first, new Int32Array(0));
    for (let i = 1; i < PUBLISHED_KEYS_MAX; i++) table.publish(memory(), new Int32Array(0));
    let status: Status = Status.OK;
    try {
      table.publish(memory(), new Int32Array(0));
    } catch (error) {
      if (isUcxError(error)) status = error.status;
    }
    expect(status).toBe(Status.NO_RESOURCE);
    table.revoke(first);
    reader.open(published(memory())).release();
  });
});
