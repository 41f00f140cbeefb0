import { afterEach, describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver-client.ts';
import { halves } from '../../test/contract/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/emulated-card.ts';
import { useErrnoRecord } from '../../test/fixtures/errno-record.ts';
import { Errno, EventFd } from '../sys/index.ts';
import {
  HL_CS_FLAGS,
  HL_DEVICE_STATUS,
  HL_INFO_OP,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  writeMsgLong,
  writeNop,
} from '../uapi/index.ts';
import { type Clock, ManualClock } from '../ucs/sys/clock.ts';

useErrnoRecord();

const MIB = 2 ** 20;
const TWO_SECONDS = { cs_flags: HL_CS_FLAGS.CUSTOM_TIMEOUT, timeout: 2 };

let card: EmulatedCard;
afterEach(() => card.close());

/** Clock that advances by a millisecond at each reading; its timers never fire. */
function runningClock(): Clock {
  const timers = new ManualClock();
  let nowNs = 1e9;
  return {
    nowNs: () => {
      nowNs += 1e6;
      return nowNs;
    },
    setTimer: (delayNs, callback) => timers.setTimer(delayNs, callback),
  };
}

/** A submission with 30 s time-out that completes after 5 s, and one with 2 s behind it that does not complete. */
function headThatChanges(): bigint {
  card = new EmulatedCard();
  card.block(0);
  const second = card.block(64, 1, TWO_SECONDS);
  card.clock.advance(5e9);
  card.raise(MIB);
  return second;
}

describe('the time-out of the oldest submission', () => {
  it('runs from the ioctl that finds the submission to be the oldest', () => {
    const second = headThatChanges();
    expect(card.client.wait(second).out.status).toBe(1);
    card.clock.advance(1.9e9);
    expect(card.status).toBe(HL_DEVICE_STATUS.OPERATIONAL);
    card.clock.advance(0.2e9);
    expect(card.status).toBe(HL_DEVICE_STATUS.IN_RESET);
  });

  it('ends a wait that began earlier', async () => {
    const second = headThatChanges();
    const wait = card.waitAsync(second, 100_000_000n);
    card.clock.advance(2.1e9);
    expect(await wait).toEqual({ result: -Errno.ETIMEDOUT, out: 2 });
  });

  it('ends a wait that blocks the thread, where no timer can fire', () => {
    card = new EmulatedCard({ clock: runningClock() });
    const seq = card.block(0, 0, TWO_SECONDS);
    expect(card.client.wait(seq, 60_000_000)).toMatchObject({ result: -Errno.ETIMEDOUT, out: { status: 2 } });
  });

  it('ends the restore phase of a submission with ENOEXEC', () => {
    card = new EmulatedCard({ clock: runningClock(), csTimeoutSeconds: 1 });
    const { dataAddress } = card.client;
    const restore = { cs_flags: HL_CS_FLAGS.FORCE_RESTORE, chunks_restore: BigInt(dataAddress), num_chunks_restore: 1 };
    card.words(0).set([0x1_0001, packetCtl(PacketOpcode.FENCE)]);
    expect(card.submit(0, 8, 0, restore).result).toBe(-Errno.ENOEXEC);
  });

  it('frees slots in which later submissions complete by themselves', () => {
    card = new EmulatedCard();
    const { maxPendingCs } = card.node.config.profile;
    const skip = { cs_flags: TWO_SECONDS.cs_flags | HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT, timeout: 2 };
    const hung = card.block(0, 0, skip);
    card.clock.advance(2.1e9);
    expect(card.client.wait(hung).result).toBe(-Errno.ETIMEDOUT);
    writeNop(card.words(64), 0, packetCtl(PacketOpcode.NOP));
    for (let i = 1; i < maxPendingCs; i++) card.client.wait(card.submit(64, 8, 4).out.seq);
    // The same slot: it must not complete when the previous command buffer does.
    const again = card.block(128, 1);
    expect(again - hung).toBe(BigInt(maxPendingCs));
    card.raise(MIB, 0);
    expect(card.client.wait(again).out.status).toBe(1);
    card.raise(MIB, 1);
    expect(card.client.wait(again).out.status).toBe(0);
  });
});

describe('a reset that waits for the user to close the file', () => {
  const faulty = (): EventFd => {
    card = new EmulatedCard();
    const event = new EventFd();
    card.client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd });
    card.node.inject(0, { kind: 'hard-reset' });
    return event;
  };

  it('happens once, whether the file is closed in time or after the watchdog', () => {
    for (const late of [false, true]) {
      const event = faulty();
      if (late) card.clock.advance(31e9);
      card.client.close();
      const next = new DriverClient(card.node.open(0));
      expect([late, card.node.card(0).hardResets]).toEqual([late, 1]);
      next.close();
      event.close();
      card.host.close();
      card.node.close();
    }
    card = new EmulatedCard();
  });

  it('is not advanced by a second fault', () => {
    const event = faulty();
    card.clock.advance(10e9);
    card.node.inject(0, { kind: 'hard-reset' });
    card.client.infoRaw({ op: HL_INFO_OP.UNREGISTER_EVENTFD });
    card.node.inject(0, { kind: 'hard-reset' });
    expect([card.status, card.hardResets]).toEqual([HL_DEVICE_STATUS.OPERATIONAL, 0]);
    card.clock.advance(20e9);
    expect([card.status, card.hardResets]).toEqual([HL_DEVICE_STATUS.IN_RESET, 1]);
    card.clock.advance(60e9);
    expect(card.hardResets).toBe(1);
    event.close();
  });
});

describe('a reset', () => {
  it('drops submissions that have not started', () => {
    card = new EmulatedCard();
    card.block(0);
    writeMsgLong(card.words(64), 0, msgLongCtl(), 42, ...halves(card.hostVa + BigInt(MIB)));
    card.submit(64, 16);
    card.node.inject(0, { kind: 'hard-reset' });
    expect(card.node.card(0).device.idle).toBe(true);
    expect(card.words(MIB)[0]).toBe(0);
  });
});
