/** A directory: attaches rings, delivers their messages, wakes their senders, and gives back the slots of those that have closed, died or cheated. */

import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import { withoutDescriptors } from '../../../../../test/fixtures/processes/no-descriptors.ts';
import { SEGMENT_PROBES } from '../../../../../test/fixtures/transports/own-segments.ts';
import { type Station, type StationSender, Stations } from '../../../../../test/fixtures/transports/posix-station.ts';
import { WARNINGS_MAX } from '../../../../ucs/debug/limited-log.ts';
import { Status } from '../../../../ucs/type/status.ts';
import { Attention, DirectoryWord, RingWord, SlotState, SlotWord, slotAt } from '../layout.ts';
import { RingWriter } from '../ring.ts';

expectNoLeaks(SEGMENT_PROBES);
const stations = new Stations();
const FREE = { state: SlotState.EMPTY, owner: 0, polled: 0 };
/** Calls of deliver until each of nine senders was reviewed. */
const ROUND = 16 * 9;

function ends(): { readonly from: Station; readonly to: Station } {
  return { from: stations.station(), to: stations.station() };
}

/** Senders whose rings the receiver has attached, in the order of their slots. */
function attached(from: Station, to: Station, count: number): StationSender[] {
  const senders = Array.from({ length: count }, () => stations.sender(from, to).announce());
  to.deliver();
  return senders;
}

function slotOf(to: Station, slot: number): typeof FREE {
  const [state, owner, polled] = [SlotWord.STATE, SlotWord.OWNER, SlotWord.POLLED].map((word) =>
    to.slotWord(slot, word),
  );
  return { state, owner, polled } as typeof FREE;
}

/** A sender finds no free slot. */
function makeScarce(to: Station): void {
  to.words[DirectoryWord.SCARCE] = 1;
  to.words[DirectoryWord.CHANGES]! += 1;
}

describe('closing', () => {
  it('wakes senders that sleep until there is room, and they find the end', () => {
    const { from, to } = ends();
    const [sender] = attached(from, to, 1);
    for (let i = 0; i < 64; i++) expect(sender!.send(i)).toBe(Status.OK);
    expect([sender!.send(64), sender!.ring.wantRoom(), from.wakeUps()]).toEqual([Status.NO_RESOURCE, true, 0]);
    to.close();
    expect(from.wakeUps()).toBe(1);
    expect([sender!.peer.check(), sender!.peer.messagePublished()]).toEqual([
      Status.CONNECTION_RESET,
      Status.CONNECTION_RESET,
    ]);
  });

  it('logs how many warnings were left out', () => {
    stations.log.allow(/./);
    const { from, to } = ends();
    for (let i = 0; i < WARNINGS_MAX + 3; i++) {
      const sender = stations.sender(from, to);
      sender.ring.segment.words[RingWord.VERSION] = 9;
      sender.announce();
    }
    to.deliver();
    to.close();
    expect(stations.log.records.filter(({ message }) => message.startsWith('3 more'))).toHaveLength(1);
  });
});

describe('there is news', () => {
  it('with a new sender, a message and a doorbell, and not without', () => {
    const { from, to } = ends();
    const { directory } = to;
    expect(directory.hasNews).toBe(false);
    const senders = Array.from({ length: 9 }, () => stations.sender(from, to).announce());
    expect(directory.hasNews).toBe(true);
    to.deliver();
    expect(directory.hasNews).toBe(false);
    senders[0]!.publish(5);
    expect(directory.hasNews).toBe(true);
    to.deliver();
    expect([directory.hasNews, to.received]).toEqual([false, [5]]);
    for (let i = 0; i < 3 * ROUND; i++) to.deliver();
    const silent = senders.find((_, slot) => to.slotWord(slot, SlotWord.POLLED) === 0)!;
    silent.publish(6);
    expect(directory.hasNews).toBe(false);
    silent.peer.messagePublished();
    expect(directory.hasNews).toBe(true);
    expect([to.deliver(), directory.hasNews, to.received]).toEqual([1, false, [5, 6]]);
  });
});

describe('a sender that cannot be attached for lack of descriptors', () => {
  it('is tried again after 5 ms, keeps its file until then, and once is enough', async () => {
    const { from, to } = ends();
    stations.log.allow(/messages from process \d+ are delayed/);
    const sender = stations.sender(from, to).announce();
    sender.publish(7);
    const { directory } = to;
    const { path } = sender.ring.segment;
    expect(directory.retryNs).toBe(Number.POSITIVE_INFINITY);
    await withoutDescriptors(() => {
      to.deliver();
    });
    expect([directory.retryNs, directory.hasNews, existsSync(path)]).toEqual([5e6, false, true]);
    stations.clock.advance(5e6 - 1);
    expect([to.deliver(), directory.retryNs, directory.hasNews]).toEqual([0, 1, false]);
    stations.clock.advance(3);
    expect([directory.retryNs, directory.hasNews]).toEqual([0, true]);
    expect([to.deliver(), to.received, existsSync(path)]).toEqual([1, [7], false]);
    expect([directory.retryNs, directory.hasNews]).toEqual([Number.POSITIVE_INFINITY, false]);
    expect(sender.peer.check()).toBe(Status.OK);
  });
});

describe('delivering', () => {
  it('continues after a handler that throws', () => {
    const { from, to } = ends();
    const [sender] = attached(from, to, 1);
    for (const value of [1, 2]) sender!.send(value);
    const fail = (): never => {
      throw new Error('of the program');
    };
    expect(() => to.deliver(fail)).toThrow('of the program');
    expect([to.deliver(), to.received]).toEqual([1, [2]]);
  });

  it('wakes a sender that waits for room, and counts its messages', () => {
    const { from, to } = ends();
    const [sender] = attached(from, to, 1);
    for (let i = 0; i < 64; i++) sender!.send(i);
    expect(sender!.ring.wantRoom()).toBe(true);
    expect(to.deliver()).toBe(32);
    expect(from.wakeUps()).toBe(1);
    expect(to.deliver()).toBe(32);
    expect(from.wakeUps()).toBe(0);
    expect(to.received).toEqual(Array.from({ length: 64 }, (_, i) => i));
  });

  it('takes a message that comes while the polling of its sender ends', () => {
    const { from, to } = ends();
    const senders = attached(from, to, 9);
    // After a round without messages, the sender that is reviewed next is polled no more.
    let calls = 1;
    for (; calls % 16 !== 15 || calls < ROUND; calls++) to.deliver();
    expect(senders.map((_, slot) => to.slotWord(slot, SlotWord.POLLED))).toEqual(Array(9).fill(1));
    for (const [value, sender] of senders.entries()) sender.send(value);
    expect(to.deliver()).toBe(9);
    expect(to.received).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('polls a sender that sends now and then in every call', () => {
    const { from, to } = ends();
    const senders = attached(from, to, 9);
    // The first one to be reviewed.
    const active = 1;
    for (let call = 0; call < 4 * ROUND; call++) {
      if (call % 16 === 7) senders[active]!.send(call);
      to.deliver();
      expect(to.slotWord(active, SlotWord.POLLED)).toBe(1);
    }
    expect(senders.filter((_, slot) => to.slotWord(slot, SlotWord.POLLED) === 1)).toHaveLength(8);
  });

  it('takes the messages of the sender behind one that has closed', () => {
    const { from, to } = ends();
    const [first, second] = attached(from, to, 2);
    first!.peer.retire();
    second!.send(4);
    expect([to.deliver(), to.received]).toEqual([1, [4]]);
    expect(slotOf(to, 0)).toEqual(FREE);
  });
});

describe('a sender that has closed', () => {
  it('is released after the last of its many messages', () => {
    const { from, to } = ends();
    const [sender] = attached(from, to, 1);
    for (let i = 0; i < 40; i++) sender!.send(i);
    expect(sender!.peer.retire()).toBe(true);
    expect([to.deliver(), to.deliver(), to.deliver()]).toEqual([32, 8, 0]);
    expect(to.received).toEqual(Array.from({ length: 40 }, (_, i) => i));
    expect(slotOf(to, 0)).toEqual(FREE);
  });

  it('is released in the next call, whether it is polled, reviewed then, or not polled', () => {
    const { from, to } = ends();
    const senders = attached(from, to, 9);
    let calls = 1;
    for (; calls % 16 !== 15 || calls < ROUND; calls++) to.deliver();
    // The sender that is reviewed next is among those that close.
    for (const sender of senders) sender.peer.retire();
    to.deliver();
    expect(senders.map((_, slot) => slotOf(to, slot))).toEqual(Array(9).fill(FREE));
    const others = attached(from, to, 9);
    for (let i = 0; i < 3 * ROUND; i++) to.deliver();
    const silent = others.findIndex((_, slot) => to.slotWord(slot, SlotWord.POLLED) === 0);
    others[silent]!.peer.retire();
    to.deliver();
    expect(slotOf(to, silent)).toEqual(FREE);
  });

  it('before it was attached is released after its messages', () => {
    const { from, to } = ends();
    const sender = stations.sender(from, to).announce();
    sender.send(3);
    sender.peer.retire();
    expect([to.deliver(), to.deliver(), to.received]).toEqual([1, 0, [3]]);
    expect(slotOf(to, 0)).toEqual(FREE);
  });

  it('leaves its slot to the next one, which no review or check disturbs', () => {
    const { from, to } = ends();
    const [first] = attached(from, to, 1);
    first!.peer.retire();
    to.deliver();
    const [second] = attached(from, to, 1);
    expect(second!.peer.check()).toBe(Status.OK);
    to.directory.checkSome();
    to.directory.checkSome();
    second!.send(8);
    expect([to.deliver(), to.deliver(), to.received]).toEqual([1, 0, [8]]);
    expect(slotOf(to, 0)).toMatchObject({ state: SlotState.READY, polled: 1 });
  });

  it('is not told that its message was rejected', () => {
    const { from, to } = ends();
    const [sender] = attached(from, to, 1);
    sender!.send(1);
    sender!.peer.retire();
    expect(to.deliver((_id, frame) => frame.reject!())).toBe(1);
    expect(slotOf(to, 0)).toEqual(FREE);
  });
});

describe('a sender that has died', () => {
  it('is found by a sleep, whichever of the first eight it is', () => {
    const { from, to } = ends();
    const dead = stations.station();
    const senders = Array.from({ length: 8 }, (_, slot) =>
      stations.sender(slot % 2 === 1 ? from : dead, to).announce(),
    );
    to.deliver();
    senders[4]!.send(6);
    dead.pipe.close();
    to.directory.checkSome();
    expect([to.deliver(), to.deliver(), to.received]).toEqual([1, 0, [6]]);
    const free = senders.map((_, slot) => to.slotWord(slot, SlotWord.STATE) === SlotState.EMPTY);
    expect(free).toEqual([true, false, true, false, true, false, true, false]);
  });

  it('is found by the next sleep, if there are many', () => {
    const { from, to } = ends();
    const dead = stations.station();
    const senders = Array.from({ length: 16 }, (_, slot) => stations.sender(slot === 12 ? dead : from, to).announce());
    to.deliver();
    dead.pipe.close();
    to.directory.checkSome();
    to.directory.checkSome();
    to.deliver();
    expect(senders.filter((_, slot) => to.slotWord(slot, SlotWord.STATE) === SlotState.EMPTY)).toHaveLength(1);
    expect(slotOf(to, 12)).toEqual(FREE);
  });

  it('is released when slots are scarce, and the search happens once', () => {
    const { from, to } = ends();
    const dead = stations.station();
    stations.sender(dead, to).announce();
    stations.sender(from, to).announce();
    to.deliver();
    dead.pipe.close();
    to.deliver();
    expect(to.slotWord(0, SlotWord.STATE)).toBe(SlotState.READY);
    makeScarce(to);
    to.deliver();
    expect(slotOf(to, 0)).toEqual(FREE);
    expect([to.slotWord(1, SlotWord.STATE), to.words[DirectoryWord.SCARCE]]).toEqual([SlotState.READY, 0]);
  });

  it('without a ring gives its slot back when slots are scarce, and one that runs does not', () => {
    const { to } = ends();
    to.words[slotAt(0) + SlotWord.OWNER] = 2 ** 30;
    to.words[slotAt(1) + SlotWord.OWNER] = process.pid;
    to.words[DirectoryWord.CHANGES]! += 1;
    to.deliver();
    expect(to.slotWord(0, SlotWord.OWNER)).toBe(2 ** 30);
    makeScarce(to);
    to.deliver();
    expect([to.slotWord(0, SlotWord.OWNER), to.slotWord(1, SlotWord.OWNER)]).toEqual([0, process.pid]);
  });

  it('with its ring gives its slot back, without a warning', () => {
    const { from, to } = ends();
    const sender = stations.sender(from, to).announce();
    sender.ring.segment.close();
    to.deliver();
    expect(slotOf(to, 0)).toEqual(FREE);
    expect(stations.log.records).toEqual([]);
  });

  it('is found if its pipe never existed', () => {
    const { from, to } = ends();
    const { packedName } = from.directory.segment;
    const geometry = { elements: 2, elementBytes: 64, segmentBytes: 64, segments: 1 };
    const ring = new RingWriter(geometry, { directoryName: packedName, wakeFd: 999_999 });
    stations.closing(ring.segment);
    stations.sender(from, to).peer.announce(ring.segment.packedName);
    to.deliver();
    expect(to.slotWord(0, SlotWord.STATE)).toBe(SlotState.READY);
    to.directory.checkSome();
    to.deliver();
    expect(slotOf(to, 0)).toEqual(FREE);
  });
});

describe('a message whose doorbell was lost', () => {
  it('is found by a sleep', () => {
    const { from, to } = ends();
    const senders = attached(from, to, 9);
    for (let i = 0; i < 3 * ROUND; i++) to.deliver();
    const silent = senders.find((_, slot) => to.slotWord(slot, SlotWord.POLLED) === 0)!;
    silent.publish(9);
    to.directory.checkSome();
    to.directory.checkSome();
    expect([to.deliver(), to.received]).toEqual([1, [9]]);
  });
});

describe('a ring that cannot be used', () => {
  it('is removed, and its sender is notified', () => {
    stations.log.allow(/is not a ring of this version/);
    const { from, to } = ends();
    const sender = stations.sender(from, to);
    sender.ring.segment.words[RingWord.VERSION] = 9;
    sender.announce();
    expect(sender.peer.check()).toBe(Status.OK);
    to.deliver();
    expect([sender.peer.check(), existsSync(sender.ring.segment.path)]).toEqual([Status.CONNECTION_RESET, false]);
    expect(slotOf(to, 0)).toMatchObject({ state: SlotState.REFUSED, owner: process.pid });
    sender.peer.retire();
    to.deliver();
    expect(slotOf(to, 0)).toEqual(FREE);
  });
});

it('shows senders whether they must wake it', () => {
  const { to } = ends();
  const shown = [true, false].map((sleeping) => {
    to.directory.setSleeping(sleeping);
    return to.words[DirectoryWord.ATTENTION];
  });
  expect(shown).toEqual([Attention.SLEEPING, Attention.AWAKE]);
});
