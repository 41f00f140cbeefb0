import { afterEach, describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { halves } from '../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import { useErrnoRecord } from '../../test/fixtures/driver/errno-record.ts';
import { Errno, EventFd } from '../sys/index.ts';
import {
  fenceCfg,
  HL_CS_FLAGS,
  HL_DEVICE_STATUS,
  HL_INFO_CS_TIMEOUT_EVENT,
  HL_INFO_OP,
  HL_NOTIFIER_EVENT,
  HL_WAIT_CS_STATUS,
  linDmaCtl,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeLinDma,
  writeMsgLong,
  writeNop,
} from '../uapi/index.ts';
import { type Clock, ManualClock } from '../ucs/sys/clock.ts';

useErrnoRecord();

const MIB = 2 ** 20;
/** A queue of gaudi that signals no completion. */
const GAUDI_TPC_QUEUE = 41;
const COMPLETED = { result: 0, out: { status: HL_WAIT_CS_STATUS.COMPLETED } };
const BUSY = { result: 0, out: { status: HL_WAIT_CS_STATUS.BUSY } };
const TWO_SECONDS = { cs_flags: HL_CS_FLAGS.CUSTOM_TIMEOUT, timeout: 2 };

let card: EmulatedCard;
afterEach(() => card.close());

/** Registers an event fd for the file. */
function registerEvent(): EventFd {
  const event = new EventFd();
  expect(card.client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(0);
  return event;
}

/** Reads and clears the events. */
function events(): number {
  expect(card.client.infoRaw({ op: HL_INFO_OP.GET_EVENTS, return_size: 8 })).toBe(0);
  return card.client.answer.words[0]!;
}

/** The submission whose time-out is on record. */
function timedOut(): bigint {
  return card.client.info(HL_INFO_OP.CS_TIMEOUT_EVENT, HL_INFO_CS_TIMEOUT_EVENT).out.seq;
}

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

  it('does not end a submission with SKIP_RESET_ON_TIMEOUT: it may complete later, and then the time of the next one runs', () => {
    card = new EmulatedCard();
    const event = registerEvent();
    const { cs_flags } = TWO_SECONDS;
    const late = card.block(0, 0, { cs_flags: cs_flags | HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT, timeout: 2 });
    const next = card.block(64, 1, { cs_flags: cs_flags | HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT, timeout: 2 });
    const last = card.block(128, 4, TWO_SECONDS);
    card.clock.advance(2e9);
    expect([event.tryRead(), events(), timedOut()]).toEqual([1, HL_NOTIFIER_EVENT.CS_TIMEOUT, late]);
    card.clock.advance(60e9);
    expect([late, next].map((seq) => card.client.wait(seq))).toMatchObject([BUSY, BUSY]);
    card.raise(MIB, 0);
    expect([late, next].map((seq) => card.client.wait(seq))).toMatchObject([COMPLETED, BUSY]);
    // Only the first time-out since the open is recorded and notified.
    card.clock.advance(2e9);
    expect([event.tryRead(), events(), timedOut()]).toEqual([0, 0, late]);
    card.raise(MIB, 1);
    expect([next, last].map((seq) => card.client.wait(seq))).toMatchObject([COMPLETED, BUSY]);
    card.clock.advance(2e9);
    expect([event.tryRead(), events()]).toEqual([1, HL_NOTIFIER_EVENT.DEVICE_RESET]);
    event.close();
  });
});

describe('a reset that waits for the user to close the file', () => {
  const faulty = (): EventFd => {
    card = new EmulatedCard();
    const event = registerEvent();
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

  it('ends all waits with EIO, and the events of the fault and the reset come in one signal', async () => {
    card = new EmulatedCard();
    const event = registerEvent();
    const waits = [card.block(0, 0, TWO_SECONDS), card.block(64)].map((seq) => card.waitAsync(seq, 60_000_000n));
    card.clock.advance(2e9);
    const aborted = { result: -Errno.EIO, out: 3 };
    expect(await Promise.all(waits)).toEqual([aborted, aborted]);
    const { CS_TIMEOUT, DEVICE_RESET } = HL_NOTIFIER_EVENT;
    expect([event.tryRead(), events()]).toEqual([1, CS_TIMEOUT | DEVICE_RESET]);
    event.close();
  });

  it('is the compute reset of the close after a time-out, unless the submission is still in flight', () => {
    for (const hardResets of [0, 1]) {
      card = new EmulatedCard();
      const event = registerEvent();
      card.block(0, 0, TWO_SECONDS);
      card.clock.advance(2e9);
      if (hardResets === 0) card.raise(MIB);
      card.client.close();
      expect(card.node.card(0).hardResets).toBe(hardResets);
      card.node.open(0).close();
      expect(card.node.card(0).hardResets).toBe(hardResets);
      event.close();
      card.close();
    }
    card = new EmulatedCard();
  });

  it('frees slots in which later submissions complete by themselves', () => {
    card = new EmulatedCard();
    const event = registerEvent();
    const { maxPendingCs } = card.node.config.profile;
    const hung = card.block(0, 0, TWO_SECONDS);
    card.clock.advance(2e9);
    writeNop(card.words(64), 0, packetCtl(PacketOpcode.NOP));
    for (let i = 1; i < maxPendingCs; i++) expect(card.submit(64, 8, 4).result).toBe(0);
    // The same slot: it must not complete when the previous command buffer does.
    const again = card.block(128, 1);
    expect(again - hung).toBe(BigInt(maxPendingCs));
    const { submissions } = card.node.card(0).context!;
    const isActive = (): boolean => card.status === HL_DEVICE_STATUS.OPERATIONAL && submissions.hasActive;
    card.raise(MIB, 0);
    expect(isActive()).toBe(true);
    card.raise(MIB, 1);
    expect(isActive()).toBe(false);
    event.close();
  });
});

describe('events', () => {
  it('are kept while no event fd is registered', () => {
    card = new EmulatedCard();
    card.block(0, 0, { cs_flags: TWO_SECONDS.cs_flags | HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT, timeout: 2 });
    card.clock.advance(2e9);
    const event = registerEvent();
    expect(card.client.infoRaw({ op: HL_INFO_OP.UNREGISTER_EVENTFD })).toBe(0);
    card.node.inject(0, { kind: 'hard-reset' });
    const { CS_TIMEOUT, DEVICE_RESET } = HL_NOTIFIER_EVENT;
    expect([event.tryRead(), events(), events()]).toEqual([0, CS_TIMEOUT | DEVICE_RESET, 0]);
    event.close();
  });
});

describe('closing the file', () => {
  it('resets the card if a submission is in flight, which may be a transfer that is running', () => {
    card = new EmulatedCard({ dmaThreads: 1 });
    const { client } = card;
    const device = client.mapDevice(client.allocate(128 * MIB).out).out;
    const fill = linDmaCtl('gaudi2', { memset: true });
    card.run((words) => writeLinDma(words, 0, fill, 128 * MIB, 0, 0, ...halves(device)));
    client.close();
    expect([card.node.card(0).hardResets, card.node.card(0).status]).toEqual([1, HL_DEVICE_STATUS.OPERATIONAL]);
  });

  it('resets a gaudi card whose engines are busy', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    writeFence(card.words(0), 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    card.run(
      (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)),
      [{ queue: GAUDI_TPC_QUEUE, cb: card.hostVa, byteLength: 8 }],
    );
    card.client.close();
    expect([card.node.card(0).hardResets, card.node.card(0).status]).toEqual([1, HL_DEVICE_STATUS.OPERATIONAL]);
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
