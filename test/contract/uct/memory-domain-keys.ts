/** Contract cases of a memory domain: valid, stale, forged and malformed remote keys. */

import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { MemoryType, memoryTypesOfMask } from '../../../src/ucs/memory/memory-type.ts';
import { isUcxError } from '../../../src/ucs/type/error.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import type { MdMemory } from '../../../src/uct/api/memory.ts';
import { MdFlag } from '../../../src/uct/api/memory-domain.ts';
import { requires } from '../../fixtures/requires.ts';
import { errorOf, keyOf, type MdSetup, ownBytes, packedKey, UctFixture } from './uct-fixture.ts';

const BYTES = 1000;
const KEY_CODES = ['ERR_RKEY_MALFORMED', 'ERR_RKEY_STALE', 'ERR_RKEY_FORGED'];

/** Declares the cases. */
export function memoryDomainKeyCases(setup: MdSetup): void {
  const fixture = new UctFixture(setup);

  /** One memory of every kind that has keys, with a function that releases it. */
  const everyKind = (): { memory: MdMemory; end: () => void }[] => {
    const { md } = fixture;
    const kinds = memoryTypesOfMask(md.attributes.allocateMemoryTypes).map((memoryType) => {
      const memory = md.memAlloc(BYTES, { memoryType });
      return { memory, end: () => md.memFree(memory) };
    });
    if (!fixture.has(MdFlag.REG)) return kinds;
    const registered = md.memReg(ownBytes(BYTES));
    if (registered.packable === false) {
      expect([Status.UNSUPPORTED, Status.INVALID_PARAM]).toContain(errorOf(() => packedKey(md, registered)).status);
      return kinds;
    }
    return [...kinds, { memory: registered, end: () => md.memDereg(registered) }];
  };

  it('describe the memory and are the same bytes every time', () => {
    const { md } = fixture;
    for (const { memory, end } of everyKind()) {
      const packed = packedKey(md, memory);
      expect(packedKey(md, memory)).toEqual(packed);
      const key = md.rkeyUnpack(packed);
      expect(key).toMatchObject({ memoryType: memory.memoryType, sysDevice: memory.sysDevice, byteLength: BYTES });
      expect(key.mdName).toBe(md.attributes.name);
      key.release();
      key.release();
      end();
    }
  });

  it('report when their memory is unmapped', () => {
    const { md } = fixture;
    for (const { memory, end } of everyKind()) {
      const key = md.rkeyUnpack(packedKey(md, memory));
      expect(key.live).toBe(true);
      end();
      expect(key.live).toBe(false);
      key.release();
    }
  });

  it('of host memory that is registered again are revoked alone', (test) => {
    const { md } = fixture;
    if (!fixture.has(MdFlag.PUBLISHES_KEYS)) return test.skip('needs MdFlag.PUBLISHES_KEYS');
    for (const { memory, end } of everyKind().filter((kind) => kind.memory.memoryType === MemoryType.HOST)) {
      const again = md.memReg(memory);
      const keys = [memory, again].map((each) => md.rkeyUnpack(packedKey(md, each)));
      expect(packedKey(md, again)).not.toEqual(packedKey(md, memory));
      expect(keys.map(({ byteLength, live }) => [byteLength, live])).toEqual([
        [BYTES, true],
        [BYTES, true],
      ]);
      md.memDereg(again, { force: true });
      expect(keys.map(({ live }) => live)).toEqual([true, false]);
      end();
      for (const key of keys) key.release();
    }
  });

  it('are packed at an offset and touch nothing else', () => {
    const { md } = fixture;
    const bytes = md.attributes.rkeyPackedBytes;
    const [kind] = everyKind();
    const target = new Uint8Array(bytes + 16).fill(0xee);
    md.mkeyPack(kind!.memory, target, 9);
    expect(target.subarray(9, 9 + bytes)).toEqual(packedKey(md, kind!.memory));
    expect([...target.subarray(0, 9), ...target.subarray(9 + bytes)]).toEqual(new Array(16).fill(0xee));
    const error = errorOf(() => md.mkeyPack(kind!.memory, new Uint8Array(bytes - 1), 0));
    expect(error).toBeInstanceOf(Error);
  });

  it('differ for different memory, also at one address', () => {
    const { md } = fixture;
    const seen = new Set<string>();
    let packed = 0;
    for (let i = 0; i < 3; i++) {
      for (const { memory, end } of everyKind()) {
        seen.add(Buffer.from(packedKey(md, memory)).toString('hex'));
        packed += 1;
        end();
      }
    }
    expect(packed).toBeGreaterThan(0);
    expect(seen.size).toBe(packed);
  });

  it('do not carry an address or a descriptor', () => {
    const { md } = fixture;
    for (const { memory } of everyKind()) {
      const packed = packedKey(md, memory);
      const address = new Uint8Array(8);
      new DataView(address.buffer).setBigUint64(0, memory.address, true);
      expect(Buffer.from(packed).includes(Buffer.from(address.subarray(0, 6)))).toBe(false);
    }
  });

  it('are stale once the memory is unmapped', () => {
    const { md } = fixture;
    for (const { memory, end } of everyKind()) {
      const packed = packedKey(md, memory);
      end();
      expect(errorOf(() => md.rkeyUnpack(packed))).toMatchObject({
        code: 'ERR_RKEY_STALE',
        status: Status.INVALID_ADDR,
      });
      expect(errorOf(() => packedKey(md, memory)).status).toBe(Status.INVALID_PARAM);
    }
  });

  it('do not work on later memory at the same address', () => {
    const { md } = fixture;
    const [memoryType] = memoryTypesOfMask(md.attributes.allocateMemoryTypes);
    requires(memoryType !== undefined, 'allocation');
    const first = md.memAlloc(BYTES, { memoryType: memoryType! });
    const packed = packedKey(md, first);
    const { address } = first;
    md.memFree(first);
    const second = md.memAlloc(BYTES, { memoryType: memoryType! });
    if (memoryType === MemoryType.GAUDI) expect(second.address).toBe(address);
    keyOf(md, second).release();
    expect(errorOf(() => md.rkeyUnpack(packed)).code).toBe('ERR_RKEY_STALE');
  });

  it('are refused with any bit changed', () => {
    const { md } = fixture;
    const packed = packedKey(md, everyKind()[0]!.memory);
    for (let bit = 0; bit < packed.byteLength * 8; bit++) {
      const forged = packed.slice();
      forged[bit >> 3]! ^= 1 << (bit & 7);
      let code = 'nothing';
      try {
        md.rkeyUnpack(forged);
      } catch (error) {
        code = isUcxError(error) ? error.code : String(error);
      }
      expect(KEY_CODES, `bit ${bit}`).toContain(code);
    }
  });

  it('are refused in any other length', () => {
    const { md } = fixture;
    const packed = packedKey(md, everyKind()[0]!.memory);
    for (let length = 0; length <= packed.byteLength + 8; length++) {
      if (length === packed.byteLength) continue;
      const cut = new Uint8Array(length);
      cut.set(packed.subarray(0, length));
      expect(errorOf(() => md.rkeyUnpack(cut)).code).toBe('ERR_RKEY_MALFORMED');
    }
  });

  it.each([undefined, null, 'key', 42, {}, new ArrayBuffer(48)])('are not taken for %s', (nothing) => {
    const error = errorOf(() => fixture.md.rkeyUnpack(nothing as never));
    expect(isUcxError(error)).toBe(true);
    expect(error.status).toBe(Status.INVALID_PARAM);
  });

  it('cannot be guessed', async () => {
    const { md } = fixture;
    for (const { memory } of everyKind()) packedKey(md, memory);
    const bytes = md.attributes.rkeyPackedBytes;
    await fc.assert(
      fc.property(fc.uint8Array({ minLength: bytes, maxLength: bytes }), (random) => {
        expect(KEY_CODES).toContain(errorOf(() => md.rkeyUnpack(random)).code);
      }),
      { numRuns: 300 },
    );
  });
}
