/** Landings, mapped pages and checks of sources, over a fake card; the bounds are those of the classes. */

import { describe, expect, it } from 'vitest';
import { deviceMemory, FakeMemory, fakeCard, hostMemory } from '../../../../test/fixtures/driver/fake-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { mapAnonymous, mappedMemoryStatistics } from '../../../sys/index.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import { type Landing, Landings } from './landings.ts';
import { cardRma, HostPages, mayDetach, SourceCheck, submitLimitation } from './memory.ts';

expectNoLeaks();

const MIB = 2 ** 20;
const detach = ({ buffer }: Uint8Array): void => void structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });

describe('landings', () => {
  function open() {
    const made = fakeCard();
    const landings = new Landings(made.card.device);
    const held = new FakeMemory(0x900, 4096);
    const target = { bytes: new Uint8Array(64), attached: true };
    const take = (byteLength: number, offset = 0): Landing | undefined =>
      landings.take(target, held as never, offset, byteLength);
    return { ...made, landings, held, target, take };
  }

  it('deliver to their place, unless the target was detached', () => {
    const { landings, held, target, take } = open();
    const landing = take(4, 10)!;
    landing.memory.u8.set([1, 2, 3, 4, 5]);
    expect([landing.deliver(), ...target.bytes.subarray(9, 15)]).toEqual([Status.OK, 0, 1, 2, 3, 4, 0]);
    target.attached = false;
    landing.memory.u8.fill(9);
    expect([landing.deliver(), target.bytes[10]]).toEqual([Status.INVALID_ADDR, 1]);
    expect(held.inFlight).toBe(1);
    landings.give(landing);
    expect([held.inFlight, landing.target, landing.completion, landing.deliver()]).toEqual([
      0,
      undefined,
      undefined,
      Status.INVALID_ADDR,
    ]);
    landings.close();
  });

  it('are reused by transfers that fit, and not by much smaller ones', () => {
    const { landings, mappings, take } = open();
    const large = take(3 * MIB)!;
    expect(large.memory.byteLength).toBe(3 * MIB);
    landings.give(large);
    const small = take(100)!;
    expect([small === large, small.memory.byteLength]).toEqual([false, 65_536]);
    landings.give(small);
    const [again, half] = [take(2 * MIB)!, take(65_536)!];
    expect([again === large, half === small, mappings.length]).toEqual([true, true, 2]);
    const larger = take(65_537)!;
    expect(larger.memory.byteLength).toBe(2 * 65_536);
    for (const landing of [again, half, larger]) landings.give(landing);
    landings.close();
    expect(mappings.every(({ unmaps }) => unmaps === 1)).toBe(true);
  });

  it('in use have a limit, which a single transfer may exceed', () => {
    const { landings, take } = open();
    const single = take(300 * MIB)!;
    expect(take(1)).toBeUndefined();
    landings.give(single);
    const most = take(256 * MIB - 65_536)!;
    const last = take(65_536)!;
    expect(take(1)).toBeUndefined();
    landings.give(last);
    const again = take(1)!;
    landings.give(again);
    landings.give(most);
    landings.close();
  });

  it('are kept up to 32, and up to 64 MiB, the last used ones', () => {
    const { landings, take, mappings } = open();
    const many = Array.from({ length: 40 }, () => take(1)!);
    for (const landing of many) landings.give(landing);
    expect(mappings.filter(({ unmaps }) => unmaps === 1)).toHaveLength(8);
    expect(mappings.slice(0, 8).every(({ unmaps }) => unmaps === 1)).toBe(true);
    landings.close();
    const other = open();
    const wide = Array.from({ length: 4 }, () => other.take(20 * MIB)!);
    for (const landing of wide) other.landings.give(landing);
    expect(other.mappings.map(({ unmaps }) => unmaps)).toEqual([1, 0, 0, 0]);
    // What is taken and given back does not count twice.
    for (let i = 0; i < 3; i++) other.landings.give(other.take(20 * MIB)!);
    expect(other.mappings.map(({ unmaps }) => unmaps)).toEqual([1, 0, 0, 0]);
    other.landings.close();
  });

  it('whose mapping fails leave no memory; those of a card that was closed are not unmapped', () => {
    const { landings, take, mappings } = open();
    const made = fakeCard();
    made.mapFailure = new Error('full');
    const failing = new Landings(made.card.device);
    const { liveMappings } = mappedMemoryStatistics();
    expect(() =>
      failing.take({ bytes: new Uint8Array(1), attached: true }, new FakeMemory(1, 1) as never, 0, 1),
    ).toThrow('full');
    expect(mappedMemoryStatistics().liveMappings).toBe(liveMappings);
    landings.give(take(1)!);
    mappings[0]!.live = false;
    landings.close();
    expect(mappings[0]!.unmaps).toBe(0);
  });
});

describe('host pages', () => {
  const full = () => statusError(Status.NO_MEMORY, 'map');

  it('are mapped into each card once, and unmapped from all although one fails', () => {
    const [first, second] = [fakeCard(), fakeCard(1)];
    const pages = new HostPages(0x10_0000, 8192, 3, () => false);
    const mapped = pages.mappingIn(0, first.card.device) as unknown as FakeMemory;
    expect(pages.mappingIn(0, first.card.device)).toBe(mapped);
    const other = pages.mappingIn(2, second.card.device) as unknown as FakeMemory;
    mapped.retain();
    other.retain();
    other.retain();
    expect([first.mappings.length, pages.inFlight]).toEqual([1, 3]);
    mapped.unmap = () => {
      throw new Error('busy');
    };
    expect(() => pages.unmap()).toThrow('busy');
    expect([other.unmaps, pages.inFlight]).toEqual([1, 0]);
    expect(pages.mappingIn(0, first.card.device)).not.toBe(mapped);
  });

  it('evict idle pages until the card has room, and fail when there are none', () => {
    const made = fakeCard();
    let evictions = 0;
    const evict = (): boolean => {
      evictions += 1;
      if (evictions < 3) made.mapFailure = full();
      return evictions < 4;
    };
    const pages = new HostPages(0x10_0000, 8192, 1, evict);
    made.mapFailure = full();
    expect(pages.mappingIn(0, made.card.device)).toBeDefined();
    expect(evictions).toBe(3);
    const others = new HostPages(0x20_0000, 8192, 1, evict);
    made.mapFailure = full();
    expect(() => others.mappingIn(0, made.card.device)).toThrow(expect.objectContaining({ status: Status.NO_MEMORY }));
    made.mapFailure = new Error('another');
    expect(() => others.mappingIn(0, made.card.device)).toThrow('another');
    expect(evictions).toBe(4);
  });

  it('of a mapping of this library stay where they are; those of an ArrayBuffer may not', () => {
    const own = mapAnonymous(8192);
    expect(new HostPages(own.address, 8192, 1, () => false).isFixed).toBe(true);
    own.close();
    const [fixed, free] = [hostMemory(new Uint8Array(64)).memory, hostMemory(new Uint8Array(64), false).memory];
    expect([fixed.staysPut, free.staysPut]).toEqual([true, false]);
    (free.pages as { isFixed: boolean }).isFixed = true;
    expect(free.staysPut).toBe(true);
  });
});

describe('the check of sources', () => {
  class Ended implements Completion {
    count = 1;
    failure: Status = Status.OK;
    calls = 0;
    onComplete(): void {
      this.calls += 1;
    }
  }
  const entry = (memory: MdMemory): IovEntry => ({ memory, offset: 0, byteLength: 8 });

  function check(iov: readonly IovEntry[], remote = undefined as ReturnType<typeof hostMemory>['memory'] | undefined) {
    const ended: SourceCheck[] = [];
    const completion = new Ended();
    const made = new SourceCheck((each) => ended.push(each));
    made.begin(iov, remote, completion);
    return { made, completion, ended };
  }

  it('fails an operation whose source was detached, whichever of the list', () => {
    const bytes = [new Uint8Array(8), new Uint8Array(8)];
    const [first, second] = bytes.map((each) => hostMemory(each, false).memory);
    const { made, completion, ended } = check([entry(first!), entry(second!)]);
    detach(bytes[1]!);
    made.onComplete();
    expect([completion.failure, completion.calls, ended]).toEqual([Status.INVALID_ADDR, 1, [made]]);
    // It has forgotten the list.
    const next = new Ended();
    made.begin([entry(first!)], undefined, next);
    made.onComplete();
    expect([next.failure, next.calls, made.count]).toEqual([Status.OK, 1, 1]);
  });

  it('is of the remote memory if that is the source, and keeps the failure of the transfers', () => {
    const [local, remote] = [new Uint8Array(8), new Uint8Array(8)];
    const { memory } = hostMemory(local, false);
    const source = hostMemory(remote, false).memory;
    const { made, completion } = check([entry(memory)], source);
    detach(local);
    made.onComplete();
    expect(completion.failure).toBe(Status.OK);
    const other = check([entry(memory)], source);
    detach(remote);
    other.made.failure = Status.IO_ERROR;
    other.made.onComplete();
    expect(other.completion.failure).toBe(Status.IO_ERROR);
  });

  it('is needed for memory that can be detached only', () => {
    const made = fakeCard();
    const device = deviceMemory(made).memory;
    const [fixed, free] = [hostMemory(new Uint8Array(8)).memory, hostMemory(new Uint8Array(8), false).memory];
    expect(mayDetach([entry(device), entry(fixed)], undefined)).toBe(false);
    expect(mayDetach([entry(device), entry(free)], undefined)).toBe(true);
    expect([mayDetach([entry(free)], fixed), mayDetach([entry(fixed)], free)]).toEqual([false, true]);
    made.card.landings.close();
  });
});

describe('the operations of a card', () => {
  it('are all, or none with the reason', () => {
    const of = (limitation: string | undefined) => submitLimitation({ dma: { limitation } } as never);
    expect([of(undefined), of('no channel')]).toEqual([undefined, 'no channel']);
    const { flags, put, get, limitation } = cardRma('no transfers');
    expect([flags, put.zcopyBytesMax, get.shortBytesMax, limitation]).toEqual([0, 0, 0, 'no transfers']);
    expect(cardRma(undefined, 5).put).toMatchObject({ iovMax: 5, shortBytesMax: 1024, zcopyBytesMin: 1 });
  });
});
