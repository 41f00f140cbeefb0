/** The signals of one queue: values and references of its two sync objects, and the packets that raise them and wait for them. */

import { describe, expect, it } from 'vitest';
import { GAUDI_PROFILE, GAUDI2_PROFILE, PacketOpcode, packetOpcode } from '../../../uapi/index.ts';
import { SignalPackets, SignalQueue, SOB_VALUE_END } from './signals.ts';

const [queue] = GAUDI2_PROFILE.queues;
const open = (): SignalQueue => new SignalQueue(queue!, 100, 7);

describe('signals', () => {
  it('have the next value of one sync object, each with a reference', () => {
    const signals = open();
    const [first, second] = [signals.takeSignal(), signals.takeSignal()];
    expect([first.value, second.value, signals.next]).toEqual([1, 2, 3]);
    expect([first.object.id, signals.current.id, signals.other.id]).toEqual([100, 100, 101]);
    expect([signals.current.references, signals.other.references]).toEqual([2, 0]);
  });

  it('use the other sync object after the last value, from 1', () => {
    const signals = open();
    signals.takeSignals(SOB_VALUE_END - 3);
    expect([signals.next, signals.wraps(1), signals.wraps(2)]).toEqual([SOB_VALUE_END - 2, false, true]);
    signals.takeSignal();
    expect(signals.wraps(1)).toBe(true);
    const last = signals.takeSignal();
    expect([last.object.id, last.value]).toEqual([100, SOB_VALUE_END - 1]);
    expect([signals.current.id, signals.next, signals.canSwitch]).toEqual([101, 1, false]);
    signals.other.references = 0;
    expect(signals.canSwitch).toBe(true);
  });

  it('that are reserved together have one reference, and move to the other sync object if they do not fit', () => {
    const signals = open();
    signals.takeSignals(10);
    const many = signals.takeSignals(SOB_VALUE_END - 11);
    expect([many.object.id, many.value, signals.next]).toEqual([101, 1, SOB_VALUE_END - 10]);
    expect([signals.other.references, signals.current.references]).toEqual([1, 1]);
    const few = signals.takeSignals(9);
    expect([few.object.id, few.value]).toEqual([101, SOB_VALUE_END - 10]);
  });

  it('are taken back only if they are the last, and of the current sync object', () => {
    const signals = open();
    const first = signals.takeSignals(5);
    const last = signals.takeSignals(3);
    expect([signals.giveBack(first, 5), signals.giveBack(last, 2), signals.next]).toEqual([false, false, 9]);
    expect([signals.giveBack(last, 3), signals.next, signals.current.references]).toEqual([true, 6, 1]);
    expect([signals.giveBack(first, 5), signals.next, signals.current.references]).toEqual([true, 1, 0]);
    const old = signals.takeSignals(1);
    signals.takeSignals(SOB_VALUE_END - 2);
    expect(signals.giveBack(old, SOB_VALUE_END - 2)).toBe(false);
  });
});

describe.each([GAUDI_PROFILE, GAUDI2_PROFILE])('packets of $name', (profile) => {
  const packets = new SignalPackets(profile);
  const [manager] = profile.sync.managers;
  /** The writes of a command buffer, as offsets in the registers with values; and the opcode of what follows. */
  const writesOf = (memory: ReturnType<SignalPackets['signal']>) => {
    const words = new Uint32Array(memory.window(0).words);
    const writes: [number, number][] = [];
    let at = 0;
    for (; at + 4 <= words.length && packetOpcode(words[at + 1]!) === PacketOpcode.MSG_LONG; at += 4) {
      const address = (BigInt(words[at + 3]!) << 32n) | BigInt(words[at + 2]!);
      writes.push([Number(address - profile.cfg.start), words[at]!]);
    }
    return { writes, rest: words.subarray(at) };
  };

  it('add 1 to the sync object', () => {
    const { writes, rest } = writesOf(packets.signal(300));
    expect(writes).toEqual([[manager!.sobObj + 1200, 0x8000_0001]]);
    expect([rest.length, packets.sobOffset(300)]).toEqual([0, manager!.sobObj + 1200]);
  });

  it('arm a monitor for the value, behind its address and its value, and wait on the fence of the queue', () => {
    const waiting = profile.queues.find((each) => each.stream === 2 && packets.canWait(each))!;
    const { fence0 } = profile.fences.find(({ firstQueue }) => firstQueue === waiting.firstOfQman)!;
    const { writes, rest } = writesOf(packets.wait(waiting, 9, 2053, 0x123));
    const fence = profile.cfg.start + BigInt(fence0 + profile.fenceStrides[2]! + 8);
    const { monPayAddrL, monPayAddrH, monPayData, monConfig, monArm } = manager!;
    const group = Math.floor(2053 / 8);
    expect(writes).toEqual([
      [monPayAddrL + 36, Number(fence & 0xffff_ffffn)],
      [monPayAddrH + 36, Number(fence >> 32n)],
      [monPayData + 36, 1],
      ...(monConfig === 0 ? [] : [[monConfig + 36, (group >>> 8) << 16]]),
      [monArm + 36, (0x123 << 17) | ((0xff & ~(1 << 5)) << 8) | (group & 0xff)],
    ]);
    expect(packetOpcode(rest[1]!)).toBe(PacketOpcode.FENCE);
    expect([rest.length, rest[0]! >>> 30, (rest[0]! >>> 16) & 0x3fff, rest[0]! & 0xf]).toEqual([2, 2, 1, 1]);
  });

  it('cannot wait on a queue without a known fence', () => {
    const without = profile.queues.filter(({ firstOfQman }) =>
      profile.fences.every(({ firstQueue }) => firstQueue !== firstOfQman),
    );
    for (const each of without) expect(packets.canWait(each)).toBe(false);
    expect(profile.queues.some((each) => packets.canWait(each))).toBe(true);
  });
});
