/** Contract cases of a memory domain: registering host buffers, and refusals with their reasons. */

import { expect, it } from 'vitest';
import { addressOf, mapAnonymous } from '../../../src/sys/index.ts';
import { MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { isUcxError } from '../../../src/ucs/type/error.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { MdFlag } from '../../../src/uct/api/memory-domain.ts';
import { hostRange } from '../../../src/uct/base/host/memory.ts';
import { requires } from '../../fixtures/requires.ts';
import { errorOf, type MdSetup, ownBytes, UctFixture } from './uct-fixture.ts';

/** A resizable buffer: not in the library of this compiler target. */
const Resizable = ArrayBuffer as unknown as new (byteLength: number, options: { maxByteLength: number }) => ArrayBuffer;
const Growable = SharedArrayBuffer as unknown as new (
  byteLength: number,
  options: { maxByteLength: number },
) => SharedArrayBuffer;

function detached(): Uint8Array {
  const bytes = new Uint8Array(4096);
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  return bytes;
}

/** Description, a function that creates it, and a word that the message must have. */
const REFUSED: readonly (readonly [string, () => unknown, RegExp])[] = [
  ['an empty array', () => new Uint8Array(0), /empty/],
  ['a detached array', detached, /detached/],
  ['an array in a resizable ArrayBuffer', () => new Uint8Array(new Resizable(64, { maxByteLength: 128 })), /resizable/],
  [
    'a fixed window of a resizable ArrayBuffer',
    () => new Uint8Array(new Resizable(64, { maxByteLength: 128 }), 8, 8),
    /resizable/,
  ],
  [
    'an array in a growable SharedArrayBuffer',
    () => new Uint8Array(new Growable(64, { maxByteLength: 128 })),
    /resizable/,
  ],
  ['a small Buffer of the pool', () => Buffer.from('pooled'), /pool/],
  ['another small Buffer of the pool', () => Buffer.allocUnsafe(100), /pool/],
  ['undefined', () => undefined, /Uint8Array/],
  ['null', () => null, /Uint8Array/],
  ['a string', () => 'bytes', /Uint8Array/],
  ['an ArrayBuffer', () => new ArrayBuffer(8), /Uint8Array/],
  ['a DataView', () => new DataView(new ArrayBuffer(8)), /Uint8Array/],
  ['a Float64Array', () => new Float64Array(8), /Uint8Array/],
  ['a Uint8ClampedArray', () => new Uint8ClampedArray(8), /Uint8Array/],
  ['what only looks like one', () => ({ byteLength: 8, byteOffset: 0, buffer: new ArrayBuffer(8) }), /Uint8Array/],
];

/** Declares the cases. */
export function memoryDomainRegistrationCases(setup: MdSetup): void {
  const fixture = new UctFixture(setup);

  it('describes the buffer, also a view of one', () => {
    requires(fixture.has(MdFlag.REG), 'REG');
    const owner = ownBytes(10_000);
    for (const buffer of [owner, owner.subarray(1, 1000), owner.subarray(9_999)]) {
      const memory = fixture.md.memReg(buffer);
      expect(memory).toMatchObject({ memoryType: MemoryType.HOST, sysDevice: undefined, live: true });
      expect(memory.byteLength).toBe(buffer.byteLength);
      expect(memory.address).toBe(BigInt(addressOf(buffer)));
      expect(memory.bytes).toBe(buffer);
      fixture.md.memDereg(memory);
      expect(memory.live).toBe(false);
      expect(errorOf(() => fixture.md.memDereg(memory)).status).toBe(Status.INVALID_PARAM);
    }
  });

  it('accepts every kind of host memory whose address does not change', () => {
    requires(fixture.has(MdFlag.REG), 'REG');
    const buffers = [
      Buffer.allocUnsafeSlow(10),
      Buffer.alloc(100_000),
      new Uint8Array(new SharedArrayBuffer(100)),
      new Uint8Array(new ArrayBuffer(100), 3, 5),
      new Uint8Array(new Float64Array(4).buffer),
    ];
    const registered = buffers.map((buffer) => fixture.md.memReg(buffer));
    expect(registered.map(({ live, bytes }) => [live, bytes])).toEqual(buffers.map((buffer) => [true, buffer]));
    for (const memory of registered) fixture.md.memDereg(memory);
    expect(registered.map(({ live }) => live)).not.toContain(true);
  });

  it('counts registrations of one buffer, which end separately', () => {
    requires(fixture.has(MdFlag.REG), 'REG');
    const buffer = ownBytes(4096);
    const [one, two] = [fixture.md.memReg(buffer), fixture.md.memReg(buffer)];
    fixture.md.memDereg(one!);
    expect([one!.live, two!.live]).toEqual([false, true]);
    expect(errorOf(() => fixture.md.memDereg(one!)).status).toBe(Status.INVALID_PARAM);
    fixture.md.memDereg(two!);
  });

  it('distinguishes registered and allocated memory', () => {
    const types = fixture.md.attributes.allocateMemoryTypes;
    if (fixture.has(MdFlag.ALLOC)) {
      const memory = fixture.md.memAlloc(64, {
        memoryType: (types & 1) === 1 ? MemoryType.HOST : MemoryType.GAUDI,
      });
      expect(errorOf(() => fixture.md.memDereg(memory)).status).toBe(Status.INVALID_PARAM);
      fixture.md.memFree(memory);
    }
    requires(fixture.has(MdFlag.REG), 'REG');
    const registered = fixture.md.memReg(ownBytes(64));
    expect(errorOf(() => fixture.md.memFree(registered)).status).toBe(Status.INVALID_PARAM);
    expect(registered.live).toBe(true);
    fixture.md.memDereg(registered);
  });

  it('accepts foreign memory by its address, and parts of it again', () => {
    requires(fixture.has(MdFlag.REG), 'REG');
    const mapping = mapAnonymous(8 * 4096);
    const parts = [
      [0, 8 * 4096],
      [100, 5000],
      [3 * 4096, 1],
    ].map(([offset, byteLength]) => hostRange(mapping.address + offset!, byteLength!));
    const registered = parts.map((part) => fixture.md.memReg(part));
    for (const [i, memory] of registered.entries()) {
      const { address, byteLength } = parts[i]!;
      expect(memory).toMatchObject({ memoryType: MemoryType.HOST, address: BigInt(address), byteLength, live: true });
      mapping.u8[address - mapping.address] = 77;
      expect(memory.bytes?.[0]).toBe(77);
    }
    fixture.md.hostUnmapped?.(mapping.address, 4096);
    for (const memory of registered) {
      fixture.md.memDereg(memory);
      expect(memory.live).toBe(false);
    }
    fixture.md.hostUnmapped?.(mapping.address, mapping.byteLength);
    mapping.close();
  });

  it.each([
    [0, 1, 'address'],
    [-4096, 1, 'address'],
    [2 ** 47, 1, 'address'],
    [1.5, 1, 'address'],
    [undefined, 1, 'address'],
    [4096, 0, 'byteLength'],
    [4096, 2 ** 32 + 1, 'byteLength'],
  ])('names no memory at %s with %s bytes', (address, byteLength, argument) => {
    expect(errorOf(() => hostRange(address as number, byteLength))).toMatchObject({
      code: 'ERR_INVALID_PARAM',
      message: expect.stringContaining(argument),
    });
    expect(errorOf(() => hostRange(4096, 1))).toMatchObject({ status: Status.INVALID_ADDR });
  });

  it.each(REFUSED)('refuses %s with the reason', (_what, make, message) => {
    requires(fixture.has(MdFlag.REG), 'REG');
    const error = errorOf(() => fixture.md.memReg(make() as Uint8Array));
    expect(isUcxError(error)).toBe(true);
    expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', status: Status.INVALID_PARAM });
    expect(error.message).toMatch(/argument buffer/);
    expect(error.message).toMatch(message);
    expect(fixture.under.pinnedBytes()).toBe(0);
  });

  it('survives that a registered buffer is detached', () => {
    requires(fixture.has(MdFlag.REG), 'REG');
    const bytes = ownBytes(4096);
    const memory = fixture.md.memReg(bytes);
    structuredClone(bytes.buffer, { transfer: [bytes.buffer as ArrayBuffer] });
    fixture.md.memDereg(memory);
    expect([memory.live, fixture.under.pinnedBytes()]).toEqual([false, 0]);
  });

  it('deregisters remaining memory when it is closed', () => {
    requires(fixture.has(MdFlag.REG), 'REG');
    const memory = fixture.md.memReg(ownBytes(4096));
    fixture.md.close();
    expect([memory.live, fixture.under.pinnedBytes()]).toEqual([false, 0]);
  });
}
