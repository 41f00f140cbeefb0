/** The CS and WAIT_CS ioctls on a card without engines, whose clock stands still: limits, errnos, maps, timestamps. */

import { afterEach, describe, expect, it } from 'vitest';
import { halves } from '../../../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../../../test/contract/driver/emulated-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { allocateScratch, Errno } from '../../../sys/index.ts';
import {
  engineIdOf,
  fenceCfg,
  GAUDI2_ENGINE_CORES,
  Gaudi2QueueBase,
  HL_CS_FLAGS,
  HL_ENGINE_COMMAND,
  HL_INFO_CS_COUNTERS,
  HL_INFO_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  HL_WAIT_CS_STATUS_FLAG,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  WAIT_CS_INTERRUPT_SHIFT,
  writeFence,
  writeMsgLong,
  writeNop,
} from '../../../uapi/index.ts';
import { type Clock, ManualClock } from '../../../ucs/sys/clock.ts';
import { PrimaryFile } from './file.ts';
import { Interruption } from './wait.ts';

expectNoLeaks();

const NO_SEQ = 2n ** 64n - 1n;
const MIB = 2 ** 20;
const { EINVAL, EFAULT, EAGAIN, EPERM, EBUSY, ENOMEM, EINTR, EIO } = Errno;
const { BUSY, COMPLETED, ABORTED } = HL_WAIT_CS_STATUS;
const { TIMESTAMP_VLD, GONE } = HL_WAIT_CS_STATUS_FLAG;
const {
  STAGED_SUBMISSION: STAGED,
  STAGED_SUBMISSION_FIRST: FIRST,
  STAGED_SUBMISSION_LAST: LAST,
  TIMESTAMP,
} = HL_CS_FLAGS;

/** A clock that advances by a millisecond at each reading; its timers never fire. */
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

let card: EmulatedCard;
afterEach(() => card.close());

type Values = Parameters<EmulatedCard['submit']>[3];

/** Submits packets on a queue: on gaudi in a command buffer of the driver. */
function run(queue: number, write: (words: Uint32Array) => number, values: Values = {}) {
  const { client } = card;
  if (card.node.config.profile.name !== 'gaudi') return card.submit(64, 4 * write(card.words(64)), queue, values);
  const cb = client.createCommandBuffer(4096).out;
  const mapping = client.file.mmap(4096, cb);
  const byteLength = 4 * write(new Uint32Array(mapping.buffer));
  mapping.close();
  const answer = client.submit([{ queue, cb, byteLength, flags: 0 }], values);
  client.destroyCommandBuffer(cb);
  return answer;
}

/** Submits a command buffer that does nothing. */
function nop(queue = 0, values: Values = {}): ReturnType<EmulatedCard['submit']> {
  return run(queue, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)), values);
}

/** Submits one that does not end until {@link raise}; its number. */
function block(queue = 0): bigint {
  return run(queue, (words) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1))).out.seq;
}

function raise(queue = 0): void {
  const fence = halves(card.fenceOf(queue));
  run(4, (words) => writeMsgLong(words, 0, msgLongCtl(), 1, ...fence));
}

const counters = () => card.client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;

/** Waits for several submissions. */
function multi(sequences: readonly bigint[], timeoutUs = 0n, count = sequences.length) {
  const { client } = card;
  for (const [index, seq] of sequences.entries()) client.data.setBigUint64(512 + 8 * index, seq, true);
  const seq = BigInt(client.dataAddress + 512);
  return client.waitCs({ seq, seq_arr_len: count, timeout_us: timeoutUs, flags: HL_WAIT_CS_FLAGS.MULTI_CS });
}

function contextOf() {
  const { file } = card.client;
  if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
  return file.context;
}

describe('CS', () => {
  it('has as many submissions in flight as the driver, exactly, and counts the one that it refuses', () => {
    card = new EmulatedCard();
    const { maxPendingCs } = card.node.config.profile;
    card.block(0);
    for (let i = 1; i < maxPendingCs; i++) expect(nop(1).result).toBe(0);
    const refused = nop(1);
    // Its arguments stay, for a repetition.
    expect([refused.result, refused.out.seq]).toEqual([-EAGAIN, 0n]);
    expect(counters()).toMatchObject({ ctx_max_cs_in_flight_drop_cnt: 1n, total_max_cs_in_flight_drop_cnt: 1n });
    expect(nop(1).result).toBe(-EAGAIN);
    expect(counters().ctx_max_cs_in_flight_drop_cnt).toBe(2n);
  });

  it('has exactly the entries of a queue', () => {
    card = new EmulatedCard();
    const { device } = contextOf();
    card.block(0);
    const stream = device.stream(0);
    const chunk = { queue: 0, cb: card.hostVa + 64n, byteLength: 8 };
    writeNop(card.words(64), 0, packetCtl(PacketOpcode.NOP));
    const chunks = new Array(400).fill(chunk);
    const full = Math.floor((stream.length - 1) / 400);
    for (let i = 0; i < full; i++) expect(card.client.submit(chunks).result).toBe(0);
    const left = stream.length - 1 - 400 * full;
    expect(card.client.submit(new Array(left + 1).fill(chunk)).result).toBe(-EAGAIN);
    expect(counters().ctx_queue_full_drop_cnt).toBe(1n);
    expect(card.client.submit(new Array(left - 1).fill(chunk)).result).toBe(0);
    // The last entry, beside one of another queue.
    expect(card.client.submit([chunk, { ...chunk, queue: 1 }]).result).toBe(0);
    expect([stream.outstanding, card.client.submit([chunk]).result]).toEqual([stream.length, -EAGAIN]);
    // A queue beside it has room for the same.
    expect(card.client.submit([{ ...chunk, queue: 1 }]).result).toBe(0);
  });

  it('checks the flags before the chunks', () => {
    card = new EmulatedCard();
    const { client } = card;
    const results = (values: Parameters<typeof client.cs>[0]) => client.cs({ num_chunks_execute: 1, ...values }).result;
    expect(results({ pad: Uint8Array.of(0, 0, 0, 1) })).toBe(-EINVAL);
    expect(results({ num_chunks_execute: 0 })).toBe(-EINVAL);
    expect(results({ cs_flags: HL_CS_FLAGS.SIGNAL, num_chunks_execute: 2 })).toBe(-EINVAL);
    expect(results({ cs_flags: HL_CS_FLAGS.SIGNAL | HL_CS_FLAGS.ENGINES_COMMAND })).toBe(-EINVAL);
    expect(results({ chunks_execute: 8n })).toBe(-EFAULT);
    expect(results({ num_chunks_execute: 513 })).toBe(-EINVAL);
    expect(counters()).toMatchObject({ ctx_validation_drop_cnt: 2n, ctx_parsing_drop_cnt: 0n });
    const flush = client.cs({ cs_flags: HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES });
    expect(flush).toMatchObject({ result: 0, out: { seq: NO_SEQ } });
    card.node.inject(0, { kind: 'hard-reset' });
    expect(results({ pad: Uint8Array.of(0, 0, 0, 1) })).toBe(-EINVAL);
    expect(results({})).toBe(-EBUSY);
  });

  it('gives a submission that its checks reject a number, which counts as complete', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { client } = card;
    expect(client.submit([{ queue: 5000, cb: 0n, byteLength: 8 }])).toMatchObject({
      result: -EINVAL,
      out: { seq: NO_SEQ, status: 2 ** 32 - EINVAL },
    });
    expect(counters()).toMatchObject({ ctx_validation_drop_cnt: 1n, ctx_parsing_drop_cnt: 0n });
    expect([nop().out.seq, client.wait(1n).out.status]).toEqual([2n, COMPLETED]);
  });

  it('of gaudi2 has no staged submissions', () => {
    card = new EmulatedCard();
    expect(card.client.cs({ cs_flags: STAGED, num_chunks_execute: 1 }).result).toBe(-EPERM);
  });

  it('joins the members of a staged submission under the number of its first', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { client } = card;
    const staged = (cs_flags: number, seq = 0n, more = {}) => nop(0, { cs_flags: STAGED | cs_flags, seq, ...more });
    const first = staged(FIRST).out.seq;
    expect(staged(0, first + 1n).result).toBe(-EINVAL);
    expect([staged(0, first).out.seq, client.wait(first).out.status]).toEqual([first, BUSY]);
    expect(staged(LAST, first)).toMatchObject({ result: 0, out: { seq: first } });
    expect(client.wait(first).out.status).toBe(COMPLETED);
    expect(staged(LAST, first).result).toBe(-EINVAL);
    // The number of a reservation, where there is none.
    expect(staged(FIRST | HL_CS_FLAGS.ENCAP_SIGNALS, 7n).result).toBe(-EINVAL);
  });

  it('completes a staged submission when each of its members is done', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const fence = (words: Uint32Array) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    const first = run(0, fence, { cs_flags: STAGED | FIRST }).out.seq;
    expect(nop(1, { cs_flags: STAGED | LAST, seq: first }).result).toBe(0);
    expect(card.client.wait(first).out.status).toBe(BUSY);
    raise();
    expect(card.client.wait(first).out.status).toBe(COMPLETED);
  });

  it('has one submission that needs no queue with a completion: a member of a staged one that is not its last', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { client } = card;
    const internal = { queue: 41, cb: card.hostVa, byteLength: 8, flags: 0 };
    writeNop(card.words(0), 0, packetCtl(PacketOpcode.NOP));
    expect(client.submit([internal]).result).toBe(-EINVAL);
    expect(client.submit([internal], { cs_flags: STAGED | FIRST | LAST }).result).toBe(-EINVAL);
    expect(client.submit([internal], { cs_flags: STAGED | FIRST }).result).toBe(0);
    expect(counters().ctx_validation_drop_cnt).toBe(2n);
  });

  it('checks command buffers of the driver by their requested size', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { client } = card;
    const cb = client.createCommandBuffer(5000).out;
    const of = (byteLength: number) => client.submit([{ queue: 0, cb, byteLength, flags: 0 }]).result;
    const mapping = client.file.mmap(8192, cb);
    const words = new Uint32Array(mapping.buffer);
    for (let at = 0; at < 2048; ) at = writeNop(words, at, packetCtl(PacketOpcode.NOP));
    mapping.close();
    expect([of(0), of(4), of(5001), of(5008)]).toEqual(new Array(4).fill(-EINVAL));
    expect([of(8), of(5000)]).toEqual([0, 0]);
    const unknown = client.submit([{ queue: 0, cb: cb + 4096n, byteLength: 8, flags: 0 }]);
    expect(unknown.result).toBe(-EINVAL);
    expect(counters()).toMatchObject({ ctx_validation_drop_cnt: 5n, ctx_parsing_drop_cnt: 0n });
    const stop = (words: Uint32Array) => writeNop(words, 0, packetCtl(PacketOpcode.STOP));
    expect(run(0, stop).result).toBe(-EPERM);
    expect(counters().ctx_parsing_drop_cnt).toBe(1n);
  });

  it('counts what it cannot parse apart from what is not valid', () => {
    card = new EmulatedCard();
    const { client } = card;
    expect(client.submit([{ queue: 0, cb: 64n, byteLength: 8 }]).result).toBe(-EFAULT);
    expect(client.submit([{ queue: 2, cb: card.hostVa, byteLength: 8 }]).result).toBe(-EINVAL);
    expect(counters()).toMatchObject({ ctx_parsing_drop_cnt: 2n, ctx_validation_drop_cnt: 0n });
    expect(client.submit([{ queue: 0, cb: card.hostVa, byteLength: 8, flags: 0 }]).result).toBe(-EINVAL);
    expect(counters()).toMatchObject({ ctx_parsing_drop_cnt: 2n, ctx_validation_drop_cnt: 1n });
  });

  it('restores before it executes', () => {
    // A wait that blocks the thread ends only by its time.
    card = new EmulatedCard({ clock: runningClock() });
    const { client } = card;
    writeMsgLong(card.words(0), 0, msgLongCtl(), 77, ...halves(card.hostVa + 4096n));
    writeNop(card.words(64), 0, packetCtl(PacketOpcode.NOP));
    client.writeChunks([
      { queue: 0, cb: card.hostVa, byteLength: 16 },
      { queue: 1, cb: card.hostVa + 64n, byteLength: 8 },
    ]);
    const both = {
      cs_flags: HL_CS_FLAGS.FORCE_RESTORE,
      chunks_restore: BigInt(client.dataAddress),
      num_chunks_restore: 1,
      chunks_execute: BigInt(client.dataAddress + 64),
      num_chunks_execute: 1,
    };
    expect([client.cs(both).out.seq, card.words(4096)[0]]).toEqual([2n, 77]);
  });

  it('does not block the driver for long for the restore phase of another process', () => {
    const clock = runningClock();
    card = new EmulatedCard({ clock });
    const { client } = card;
    const context = contextOf();
    Object.defineProperty(context.userMemory, 'owner', { value: 1 });
    card.words(0).set([0x1_0001, packetCtl(PacketOpcode.FENCE)]);
    client.writeChunks([{ queue: 0, cb: card.hostVa, byteLength: 8 }]);
    const begin = clock.nowNs();
    const restore = {
      cs_flags: HL_CS_FLAGS.FORCE_RESTORE,
      chunks_restore: BigInt(client.dataAddress),
      num_chunks_restore: 1,
      chunks_execute: BigInt(client.dataAddress),
      num_chunks_execute: 1,
    };
    expect(client.cs(restore).result).toBe(-Errno.ENOEXEC);
    // Each reading of this clock is a millisecond: 20 of them, and some more.
    expect(clock.nowNs() - begin).toBeLessThan(1e9);
  });

  it('commands engines: which, how many, and what', () => {
    card = new EmulatedCard();
    const { client } = card;
    const { queues, name } = card.node.config.profile;
    const edma = engineIdOf(name, queues[Gaudi2QueueBase.DCORE0_EDMA_0]!);
    const command = (ids: readonly number[], engine_command: number, more = {}) => {
      for (const [index, id] of ids.entries()) client.data.setUint32(512 + 4 * index, id, true);
      const engines = BigInt(client.dataAddress + 512);
      const values = {
        engines,
        num_engines: ids.length,
        engine_command,
        cs_flags: HL_CS_FLAGS.ENGINES_COMMAND,
        ...more,
      };
      return client.cs(values).result;
    };
    const { STALL, RESUME, CORE_HALT } = HL_ENGINE_COMMAND;
    expect(command([], STALL)).toBe(-EINVAL);
    expect(command([edma], 99)).toBe(-EINVAL);
    expect(command([edma], STALL, { cs_flags: HL_CS_FLAGS.ENGINE_CORE_COMMAND })).toBe(-EINVAL);
    expect(command([edma], CORE_HALT, { num_engines: GAUDI2_ENGINE_CORES + 1 })).toBe(-EINVAL);
    expect(command([edma], CORE_HALT, { num_engines: GAUDI2_ENGINE_CORES })).toBe(0);
    expect(command([edma], STALL, { engines: 8n })).toBe(-EFAULT);
    expect(command([edma, 5000], STALL)).toBe(-EINVAL);
    // The engine before the unknown one has the command: it starts no transfer.
    const { device } = contextOf();
    expect(device.stream(Gaudi2QueueBase.DCORE0_EDMA_0).stall).not.toBe(0);
    expect(command([edma], RESUME)).toBe(0);
    expect(device.stream(Gaudi2QueueBase.DCORE0_EDMA_0).stall).toBe(0);
  });
});

describe('WAIT_CS', () => {
  it('returns BUSY, COMPLETED with the time, and EINVAL for a number that was not given', () => {
    card = new EmulatedCard();
    const { client } = card;
    const blocked = card.block(0);
    expect(client.wait(blocked)).toMatchObject({ result: 0, out: { status: BUSY, flags: 0 } });
    const stamped = nop(1, { cs_flags: TIMESTAMP }).out.seq;
    expect(client.wait(stamped).out).toMatchObject({
      status: COMPLETED,
      flags: TIMESTAMP_VLD,
      timestamp_nsec: 1_000_000_000n,
    });
    expect(client.wait(3n)).toMatchObject({ result: -EINVAL, out: { status: COMPLETED, flags: 0 } });
    expect(client.wait(nop(1).out.seq).out).toMatchObject({ status: COMPLETED, flags: 0, timestamp_nsec: 0n });
  });

  it('knows of old submissions that they are complete, and their times once', () => {
    card = new EmulatedCard();
    const { client } = card;
    const stamped = nop(0, { cs_flags: TIMESTAMP }).out.seq;
    for (let i = 0; i < card.node.config.profile.maxPendingCs; i++) nop();
    expect(client.wait(stamped).out).toMatchObject({ flags: TIMESTAMP_VLD, timestamp_nsec: 1_000_000_000n });
    expect(client.wait(stamped).out).toMatchObject({ status: COMPLETED, flags: GONE, timestamp_nsec: 0n });
  });

  it('for several has a bit for each that is complete, in the order of the list', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const blocked = block(0);
    card.clock.advance(500);
    const [first, second] = [nop(1, { cs_flags: TIMESTAMP }), nop(4, { cs_flags: TIMESTAMP })].map(
      ({ out }) => out.seq,
    );
    expect(multi([blocked, first!, second!])).toMatchObject({
      result: 0,
      out: { status: COMPLETED, cs_completion_map: 0b110, flags: TIMESTAMP_VLD, timestamp_nsec: 1_000_000_500n },
    });
    expect(multi([first!, blocked])).toMatchObject({ out: { cs_completion_map: 0b01 } });
    expect(multi([blocked])).toMatchObject({ result: 0, out: { status: BUSY, cs_completion_map: 0, flags: 0 } });
    expect(multi([first!, 99n]).result).toBe(-EINVAL);
    expect(multi([first!, nop(1).out.seq])).toMatchObject({ out: { cs_completion_map: 0b11, flags: GONE } });
  });

  it('for several takes 32 at most, of a list in memory, with nothing behind its length', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { seq } = nop().out;
    const map = multi(new Array(32).fill(seq)).out;
    expect([map.status, map.cs_completion_map]).toEqual([COMPLETED, 0xffff_ffff]);
    expect(multi(new Array(33).fill(seq)).result).toBe(-EINVAL);
    const flags = HL_WAIT_CS_FLAGS.MULTI_CS;
    expect(card.client.waitCs({ flags, seq: 8n, seq_arr_len: 1 }).result).toBe(-EFAULT);
    const pad = Uint8Array.of(0, 0, 0, 1);
    const list = { flags, seq: BigInt(card.client.dataAddress + 512), seq_arr_len: 1 };
    expect(card.client.waitCs({ ...list, pad }).result).toBe(-EINVAL);
    card.close();
    card = new EmulatedCard();
    expect(card.client.waitCs(list).result).toBe(-EPERM);
  });

  it('for several, of which one has failed, ends with its error', async () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const [done, blocked] = [nop(1).out.seq, block(0)];
    const { submissions } = contextOf();
    submissions.abort(submissions.find(Number(blocked)));
    expect(multi([done, blocked]).result).toBe(-Errno.ETIMEDOUT);
    expect(card.client.wait(blocked)).toMatchObject({ result: -Errno.ETIMEDOUT, out: { status: 2 } });
    const next = block(1);
    submissions.abort(undefined);
    expect(multi([next]).result).toBe(-EIO);
    expect(card.client.wait(next)).toMatchObject({ result: -EIO, out: { status: ABORTED } });
  });
});

describe('a wait that does not block', () => {
  /** Starts a wait; its result and the words of its arguments. */
  function start(values: Parameters<typeof HL_WAIT_CS_ARGS.in.encode>[0], interruption?: Interruption) {
    const { file } = card.client;
    if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
    const block = allocateScratch(HL_WAIT_CS_ARGS.size);
    HL_WAIT_CS_ARGS.in.encode(values, block.view);
    const before = [...block.words];
    return file.ioctlAsync(file.numbers.WAIT_CS, block, interruption).then((result) => {
      const [after, out] = [[...block.words], HL_WAIT_CS_ARGS.out.decode(block.view)];
      block.free();
      return { result, before, after, out };
    });
  }

  it('ends when its submission does, without its time', async () => {
    card = new EmulatedCard();
    const seq = card.block(0);
    const waiting = start({ seq, timeout_us: 10n });
    card.raise(MIB);
    expect(await waiting).toMatchObject({ result: 0, out: { status: COMPLETED } });
    expect(card.clock.nowNs()).toBe(1e9);
  });

  it('ends as BUSY at its time, which is microseconds', async () => {
    card = new EmulatedCard();
    const waiting = start({ seq: card.block(0), timeout_us: 10n });
    card.clock.advance(9_999);
    let isOver = false;
    void waiting.then(() => {
      isOver = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    card.clock.advance(1);
    expect(await waiting).toMatchObject({ result: 0, out: { status: BUSY, flags: 0 } });
  });

  it('for an interrupt has a separate time-out, and no time of completion when that is over', async () => {
    card = new EmulatedCard();
    const handle = card.client.createCommandBuffer(4096).out;
    const { INTERRUPT, INTERRUPT_KERNEL_CQ } = HL_WAIT_CS_FLAGS;
    const waiting = start({
      flags: (INTERRUPT | INTERRUPT_KERNEL_CQ | (50 << WAIT_CS_INTERRUPT_SHIFT)) >>> 0,
      cq_counters_handle: handle,
      target: 2n ** 40n,
      interrupt_timeout_us: 10n,
    });
    card.clock.advance(10_000);
    expect(await waiting).toMatchObject({ result: 0, out: { status: BUSY, flags: 0, timestamp_nsec: 0n } });
  });

  it('that is interrupted has the arguments of its caller, for a repetition', async () => {
    card = new EmulatedCard();
    const { seq } = { seq: card.block(0) };
    const interruption = new Interruption();
    const waiting = start({ seq, timeout_us: 10n }, interruption);
    await new Promise((resolve) => setImmediate(resolve));
    interruption.raise();
    const { result, before, after } = await waiting;
    expect([result, after, interruption.raised]).toEqual([-EINTR, before, true]);
    // A signal that comes before the wait sleeps ends it too.
    const early = new Interruption();
    early.raise();
    expect((await start({ seq, timeout_us: 10n }, early)).result).toBe(-EINTR);
  });

  it('for several takes one of two places of the card, and gives it back however it ends', async () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { client } = card;
    const blocked = block(0);
    client.data.setBigUint64(512, blocked, true);
    const list = {
      flags: HL_WAIT_CS_FLAGS.MULTI_CS,
      seq: BigInt(client.dataAddress + 512),
      seq_arr_len: 1,
      timeout_us: 10n,
    };
    const interruption = new Interruption();
    const [timed, interrupted] = [start(list), start(list, interruption)];
    const { card: state } = contextOf();
    expect(state.multiWaits).toBe(2);
    const third = await start(list);
    expect([third.result, third.after]).toEqual([-ENOMEM, third.before]);
    interruption.raise();
    expect((await interrupted).result).toBe(-EINTR);
    expect(state.multiWaits).toBe(1);
    card.clock.advance(10_000);
    expect((await timed).out).toMatchObject({ status: BUSY });
    expect(state.multiWaits).toBe(0);
    const again = start(list);
    raise();
    expect((await again).out).toMatchObject({ status: COMPLETED, cs_completion_map: 1 });
    expect(state.multiWaits).toBe(0);
  });

  it('ends with EIO when its file is closed, and with EBUSY if the card does not permit it', async () => {
    card = new EmulatedCard();
    const waiting = start({ seq: card.block(0), timeout_us: 10n });
    card.node.inject(0, { kind: 'hard-reset' });
    const { result, out } = await waiting;
    expect([result, out.status]).toEqual([-EIO, ABORTED]);
    const refused = await start({ seq: 1n, timeout_us: 10n });
    expect([refused.result, refused.after]).toEqual([-EBUSY, refused.before]);
  });
});
