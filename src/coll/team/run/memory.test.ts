/** The memories of an operation and the scratch memory of a team: what is the same, what overlaps, what is gone, what is kept. */

import { describe, expect, it, vi } from 'vitest';
import { FakeMapper, FakeMemory } from '../../../../test/fixtures/coll/fake-team.ts';
import { Status } from '../../../ucs/type/status.ts';
import { Space } from '../../schedule/schedule.ts';
import { areSame, bind, doOverlap, LocalCopies, type Place, packedKeyOf, placeOf } from './memory.ts';
import { type Mapper, Scratch } from './plan.ts';

const KEPT_MAX = 64 * 2 ** 20;
const MAPPED_MIN = 64 * 1024;

const region = (offset: number, byteLength: number) => ({ space: Space.SOURCE, offset, byteLength });
const bytes = new Uint8Array(64);
const at = (offset: number, byteLength: number, memory: Uint8Array = bytes): Place =>
  placeOf(bind(memory, 0, memory.byteLength), region(offset, byteLength));

/** Memory of a card at an address. */
function onCard(address: bigint, offset: number, byteLength: number, sysDevice = 0): Place {
  const memory = { sysDevice, address, byteLength: 64, mapped: true, bytes: undefined };
  return placeOf(bind(memory as never, offset, byteLength), region(0, byteLength));
}

describe('two places', () => {
  it('overlap if they have a byte in common', () => {
    expect([doOverlap(at(0, 8), at(7, 1)), doOverlap(at(7, 1), at(0, 8))]).toEqual([true, true]);
    expect([doOverlap(at(0, 8), at(8, 8)), doOverlap(at(8, 8), at(0, 8))]).toEqual([false, false]);
    expect([doOverlap(at(4, 0), at(0, 8)), doOverlap(at(0, 8), at(0, 8, new Uint8Array(64)))]).toEqual([false, false]);
    const inner = new Uint8Array(bytes.buffer, 4, 8);
    expect([doOverlap(at(0, 8, inner), at(11, 1)), doOverlap(at(0, 8, inner), at(12, 1))]).toEqual([true, false]);
  });

  it('of cards overlap by their addresses, if they are of one card', () => {
    expect([
      doOverlap(onCard(100n, 0, 8), onCard(100n, 7, 4)),
      doOverlap(onCard(100n, 0, 8), onCard(90n, 17, 4)),
    ]).toEqual([true, true]);
    expect([
      doOverlap(onCard(100n, 0, 8), onCard(108n, 0, 4)),
      doOverlap(onCard(100n, 0, 8), onCard(100n, 0, 8, 1)),
    ]).toEqual([false, false]);
    expect(doOverlap(onCard(0n, 0, 8), at(0, 8))).toBe(false);
  });

  it('are the same if both their ends are', () => {
    expect([areSame(at(4, 8), at(4, 8)), areSame(at(4, 8), at(4, 7)), areSame(at(4, 8), at(5, 8))]).toEqual([
      true,
      false,
      false,
    ]);
  });
});

describe('the place of a region', () => {
  it('is behind the offset of its memory, with its bytes', () => {
    const filled = Uint8Array.from({ length: 64 }, (_, index) => index);
    const place = placeOf(bind(filled, 8, 32), region(4, 3));
    expect([place.offset, place.byteLength, place.bytes]).toEqual([12, 3, Uint8Array.of(12, 13, 14)]);
  });

  it('is refused once the memory is gone', () => {
    const mapper = new FakeMapper();
    const memory = mapper.memMap({ allocate: 64 });
    const mappedBound = bind(memory as never, 0, 64);
    mapper.memUnmap(memory);
    const detached = new Uint8Array(64);
    const detachedBound = bind(detached, 0, 64);
    structuredClone(detached.buffer, { transfer: [detached.buffer] });
    for (const bound of [mappedBound, detachedBound]) {
      expect(() => placeOf(bound, region(0, 8))).toThrow(expect.objectContaining({ status: Status.INVALID_ADDR }));
    }
  });
});

describe('the key of memory', () => {
  it('is packed once, and only for memory that peers may put to', () => {
    const mapper = new FakeMapper();
    const pack = vi.spyOn(mapper, 'packRkey');
    const memory = mapper.memMap({ allocate: 64 }) as never;
    expect([packedKeyOf(memory), packedKeyOf(memory)]).toEqual([Uint8Array.of(1, 2, 3), Uint8Array.of(1, 2, 3)]);
    expect(pack).toHaveBeenCalledTimes(1);
    const own = new FakeMemory(mapper, 64);
    Object.defineProperty(own, 'access', { value: 0 });
    expect([packedKeyOf(bytes), packedKeyOf(own as never)]).toEqual([undefined, undefined]);
  });
});

describe('copies of one rank', () => {
  it('of host bytes may overlap', () => {
    const copies = new LocalCopies(() => expect.fail('no endpoint'));
    const moved = Uint8Array.from({ length: 8 }, (_, index) => index);
    copies.copyHost(moved.subarray(0, 6), moved.subarray(2));
    expect(moved).toEqual(Uint8Array.of(0, 1, 0, 1, 2, 3, 4, 5));
  });

  it('unpack the key of a memory once, and release it with the operation', () => {
    const release = vi.fn();
    const endpoint = {
      unpackRkey: vi.fn(() => ({ release })),
      putNbx: vi.fn((..._values: unknown[]) => Status.OK),
      getNbx: vi.fn((..._values: unknown[]) => Status.OK),
    };
    const copies = new LocalCopies(() => endpoint as never);
    const card = { owner: { packOwnRkey: () => bytes } };
    const [host, device] = [
      { ...at(4, 8), offset: 4 },
      { memory: card, offset: 16, byteLength: 8, bytes: undefined },
    ] as unknown as [Place, Place];
    copies.startCopy(host, device, {});
    copies.startCopy(device, host, {});
    expect(endpoint.putNbx.mock.calls[0]!.slice(0, 5)).toEqual([bytes, 4, 8, { release }, 16]);
    expect(endpoint.getNbx.mock.calls[0]!.slice(0, 5)).toEqual([bytes, 4, 8, { release }, 16]);
    expect(endpoint.unpackRkey).toHaveBeenCalledTimes(1);
    copies.release();
    copies.release();
    expect(release).toHaveBeenCalledTimes(1);
  });
});

describe('scratch memory', () => {
  function open() {
    const mapper = new FakeMapper();
    return { mapper, scratch: new Scratch(mapper as unknown as Mapper) };
  }

  it('is kept for the next operation of its length, with which no other has it', () => {
    const { scratch } = open();
    const first = scratch.take(1500);
    expect([first.byteLength, scratch.take(1500) === first]).toEqual([2048, false]);
    scratch.give(first);
    expect([scratch.take(2048) === first, scratch.take(2048) === first]).toEqual([true, false]);
  });

  it('is mapped from 64 KiB on, and unmapped when the team closes', () => {
    const { scratch, mapper } = open();
    expect([scratch.take(MAPPED_MIN / 2).byteLength, mapper.mapped.size]).toEqual([MAPPED_MIN / 2, 0]);
    const memory = scratch.take(MAPPED_MIN / 2 + 1);
    expect([memory.byteLength, mapper.mapped.size]).toEqual([MAPPED_MIN, 1]);
    scratch.give(memory);
    expect(mapper.mapped.size).toBe(1);
    scratch.close();
    scratch.close();
    expect(mapper.mapped.size).toBe(0);
  });

  it('is not kept beyond 64 MiB', () => {
    const { scratch, mapper } = open();
    const all = Array.from({ length: 3 }, () => scratch.take(KEPT_MAX / 2));
    for (const memory of all) scratch.give(memory);
    expect(mapper.mapped.size).toBe(2);
    const again = scratch.take(KEPT_MAX / 2);
    scratch.give(again);
    expect(mapper.mapped.size).toBe(2);
    scratch.close();
    expect(mapper.mapped.size).toBe(0);
  });

  it('that the context has unmapped is not unmapped again', () => {
    const { scratch, mapper } = open();
    const memory = scratch.take(MAPPED_MIN);
    mapper.memUnmap(memory as never);
    scratch.give(memory);
    expect(() => scratch.close()).not.toThrow();
  });
});
