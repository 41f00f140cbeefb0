/** User interrupts of an emulated card with thousands of waiters: an interrupt wakes only its own waiters. */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { halves } from '../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import { allocateScratch, type ScratchBlock } from '../sys/index.ts';
import {
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  msgLongCtl,
  WAIT_CS_INTERRUPT_SHIFT,
  writeMsgLong,
} from '../uapi/index.ts';
import { UserMemory } from './driver/memory/user-memory.ts';

const MIB = 2 ** 20;
const WAITERS = 12_000;
const INTERRUPTS = 62;
const FIRST = 48;
const ANY_CQ = 0xfff;

describe('interrupts with many waiters', () => {
  let card: EmulatedCard;
  afterEach(() => card.close());

  const blockOf = (interrupt: number, counter: number): ScratchBlock => {
    const block = allocateScratch(HL_WAIT_CS_ARGS.size);
    const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | (interrupt << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
    const addr = BigInt(card.host.address + 8 * counter);
    HL_WAIT_CS_ARGS.in.encode({ flags, addr, target: 1n, interrupt_timeout_us: 3_600_000_000n }, block.view);
    return block;
  };

  /** Starts a wait; calls `onDone` with its status. */
  const wait = (interrupt: number, counter: number, onDone: (status: number) => void): Promise<void> => {
    const block = blockOf(interrupt, counter);
    const { file } = card.client;
    return file.ioctlAsync(file.numbers.WAIT_CS, block).then(() => {
      onDone(HL_WAIT_CS_ARGS.out.decode(block.view).status);
      block.free();
    });
  };

  /** Writes counters and raises an interrupt, by packets. */
  const raise = (interrupt: number, counters: readonly number[]): void => {
    const doorbell = card.node.config.profile.va.reservedHost[0]!.start;
    const words = card.words(2 * MIB);
    let at = 0;
    for (const counter of counters) {
      at = writeMsgLong(words, at, msgLongCtl(), 1, ...halves(card.hostVa + BigInt(8 * counter)));
    }
    at = writeMsgLong(words, at, msgLongCtl(), interrupt, ...halves(doorbell));
    expect(card.submit(2 * MIB, at * 4).result).toBe(0);
  };

  it('wakes those of the interrupt that was raised, and polls no others', async () => {
    card = new EmulatedCard();
    const done = new Array<number>(INTERRUPTS).fill(0);
    const waits = Array.from({ length: WAITERS }, (_, i) => {
      const list = i % INTERRUPTS;
      return wait(FIRST + list, list, (status) => {
        if (status === HL_WAIT_CS_STATUS.COMPLETED) done[list]! += 1;
      });
    });
    const perList = (list: number): number => Math.floor(WAITERS / INTERRUPTS) + (list < WAITERS % INTERRUPTS ? 1 : 0);
    const reads = vi.spyOn(UserMemory.prototype, 'read');
    try {
      for (const list of [5, 0, 61]) {
        reads.mockClear();
        raise(FIRST + list, [list]);
        await vi.waitFor(() => expect(done[list]).toBe(perList(list)));
        // Each wait reads its counter twice: for the condition, and for the result.
        expect(reads.mock.calls.length).toBeLessThanOrEqual(3 * perList(list));
      }
      expect(done.filter((count) => count > 0)).toHaveLength(3);
    } finally {
      reads.mockRestore();
    }
    // The others end with the file.
    card.client.file.close();
    await Promise.all(waits);
    expect(done.filter((count) => count > 0)).toHaveLength(3);
  });

  it('wakes those that wait for any completion queue at each of its interrupts', async () => {
    card = new EmulatedCard();
    const ended: number[] = [];
    const waits = [1, 2, 3].map((counter) => wait(ANY_CQ, counter, () => ended.push(counter)));
    raise(FIRST + 7, [2]);
    await waits[1];
    expect(ended).toEqual([2]);
    raise(FIRST, [1, 3]);
    await Promise.all(waits);
    expect(ended).toEqual([2, 1, 3]);
  });
});
