/** Signals between queues, and user interrupts, on a card without engines whose clock stands still. */

import { afterEach, describe, expect, it, vi } from 'vitest';
import { halves } from '../../../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../../../test/contract/driver/emulated-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { allocateScratch, Errno } from '../../../sys/index.ts';
import {
  fenceCfg,
  HL_CS_FLAGS,
  HL_INFO_CS_COUNTERS,
  HL_INFO_OP,
  HL_MEM_OP,
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
} from '../../../uapi/index.ts';
import { PrimaryFile } from '../ioctl/file.ts';

expectNoLeaks();

const NO_SEQ = 2n ** 64n - 1n;
const MIB = 2 ** 20;
const { EINVAL, EFAULT, EAGAIN, EPERM } = Errno;
const { BUSY, COMPLETED } = HL_WAIT_CS_STATUS;

let card: EmulatedCard;
afterEach(() => card.close());

function contextOf() {
  const { file } = card.client;
  if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
  return file.context;
}

const signalOn = (queue: number) =>
  card.client.submit([{ queue, cb: 0n, byteLength: 0 }], { cs_flags: HL_CS_FLAGS.SIGNAL });

/** A WAIT submission on a queue for a signal. */
function waitFor(seq: bigint, queue = 4, count = 1) {
  const { client } = card;
  client.data.setBigUint64(512, seq, true);
  const chunk = { queue, cb: BigInt(client.dataAddress + 512), byteLength: count };
  return client.submit([chunk], { cs_flags: HL_CS_FLAGS.WAIT });
}

const reserve = (queue: number, count: number) =>
  card.client.cs({
    cs_flags: HL_CS_FLAGS.RESERVE_SIGNALS_ONLY,
    encaps_signals_count: count,
    encaps_signals_q_idx: queue,
  });
const unreserve = (id: number) =>
  card.client.cs({ cs_flags: HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY, encaps_sig_handle_id: id }).result;
const statusOf = (seq: bigint) => card.client.wait(seq).out.status;

describe('a signal', () => {
  it('ends a wait for it, and no wait is submitted for one that has ended', () => {
    card = new EmulatedCard();
    card.block(0);
    const signal = signalOn(0);
    expect(signal.out.sob_count_before_submission).toBe(1);
    const wait = waitFor(signal.out.seq);
    expect([wait.result, statusOf(wait.out.seq), statusOf(signal.out.seq)]).toEqual([0, BUSY, BUSY]);
    card.raise(MIB);
    expect([statusOf(signal.out.seq), statusOf(wait.out.seq)]).toEqual([COMPLETED, COMPLETED]);
    expect(waitFor(signal.out.seq).out.seq).toBe(NO_SEQ);
    const second = signalOn(0).out;
    expect(second.sob_count_before_submission).toBe(2);
    expect(second.sob_base_addr_offset).toBe(signal.out.sob_base_addr_offset);
  });

  it('and a wait for it hold the sync object until they have ended', () => {
    card = new EmulatedCard();
    card.block(128, 4);
    card.block(0);
    const signal = signalOn(0).out.seq;
    const wait = waitFor(signal).out.seq;
    // All values of the other sync object, taken back: so many again need this one, without references.
    expect(unreserve(reserve(0, 0x7fff).out.handle_id)).toBe(0);
    const again = () => reserve(0, 0x7fff).result;
    expect([statusOf(signal), statusOf(wait), again()]).toEqual([BUSY, BUSY, -EINVAL]);
    card.raise(MIB);
    expect([statusOf(signal), statusOf(wait), again()]).toEqual([COMPLETED, BUSY, -EINVAL]);
    card.raise(MIB + 64, 4);
    expect([statusOf(wait), again()]).toEqual([COMPLETED, 0]);
  });

  it('of another queue has another sync object', () => {
    card = new EmulatedCard();
    const [first, second] = [signalOn(0), signalOn(4)].map(({ out }) => out);
    expect(second!.sob_base_addr_offset).not.toBe(first!.sob_base_addr_offset);
    expect(second!.sob_count_before_submission).toBe(1);
  });

  it('that is not valid is refused and counted', () => {
    card = new EmulatedCard();
    const blocked = card.block(0);
    const { client } = card;
    expect(signalOn(5000).result).toBe(-EINVAL);
    expect(waitFor(blocked).result).toBe(-EINVAL);
    expect(waitFor(99n).result).toBe(-EINVAL);
    const signal = signalOn(0).out.seq;
    expect(waitFor(signal, 4, 2).result).toBe(-EINVAL);
    expect(client.submit([{ queue: 4, cb: 8n, byteLength: 1 }], { cs_flags: HL_CS_FLAGS.WAIT }).result).toBe(-EFAULT);
    expect(client.cs({ cs_flags: HL_CS_FLAGS.SIGNAL, num_chunks_execute: 1, chunks_execute: 8n }).result).toBe(-EFAULT);
    const counters = client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;
    expect(counters.ctx_validation_drop_cnt).toBe(6n);
  });

  it('waits for a place among the submissions', () => {
    card = new EmulatedCard();
    const { maxPendingCs } = card.node.config.profile;
    card.block(0);
    for (let i = 1; i < maxPendingCs; i++) expect(signalOn(0).result).toBe(0);
    expect(signalOn(0).result).toBe(-EAGAIN);
    const counters = card.client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;
    expect(counters.ctx_max_cs_in_flight_drop_cnt).toBe(1n);
    const { device } = contextOf();
    expect(device.stream(0).outstanding).toBe(maxPendingCs);
    card.raise(MIB);
    expect(statusOf(BigInt(maxPendingCs))).toBe(BUSY);
  });
});

describe('a reservation', () => {
  it('names the value behind it, and only the last is taken back', () => {
    card = new EmulatedCard();
    const [one, two] = [reserve(0, 4), reserve(0, 3)].map(({ out }) => out);
    expect([one!.count, two!.count, two!.sob_count_before_submission]).toEqual([5, 8, 0]);
    expect(two!.sob_base_addr_offset).toBe(one!.sob_base_addr_offset);
    expect(two!.handle_id).not.toBe(one!.handle_id);
    expect([unreserve(one!.handle_id), unreserve(two!.handle_id), unreserve(two!.handle_id)]).toEqual([
      -EINVAL,
      0,
      -EINVAL,
    ]);
    expect(reserve(0, 0x8000).result).toBe(-EINVAL);
    expect(reserve(5000, 1)).toMatchObject({ result: -EINVAL, out: { seq: 0n } });
    expect(signalOn(0).out.sob_count_before_submission).toBe(5);
    expect(unreserve(one!.handle_id)).toBe(-EINVAL);
  });

  it('of all values moves to the other sync object, which must have no references', () => {
    card = new EmulatedCard();
    const [one, two] = [reserve(0, 0x7fff), reserve(0, 0x7fff)].map(({ out }) => out);
    expect(Math.abs(one!.sob_base_addr_offset - two!.sob_base_addr_offset)).toBe(4);
    expect([reserve(0, 1).result, signalOn(0).result]).toEqual([-EINVAL, -EINVAL]);
    expect(unreserve(two!.handle_id)).toBe(0);
    expect(reserve(0, 0x7ffe)).toMatchObject({ result: 0, out: { count: 0x7fff } });
  });
});

describe('signals that a staged submission raises', () => {
  const { STAGED_SUBMISSION: STAGED, STAGED_SUBMISSION_FIRST: FIRST, STAGED_SUBMISSION_LAST: LAST } = HL_CS_FLAGS;

  /** Submits a command buffer of the driver that blocks its queue. */
  function blocked(queue: number, values: Parameters<EmulatedCard['submit']>[3]) {
    const { client } = card;
    const cb = client.createCommandBuffer(4096).out;
    const mapping = client.file.mmap(4096, cb);
    writeFence(new Uint32Array(mapping.buffer), 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    mapping.close();
    return client.submit([{ queue, cb, byteLength: 8, flags: 0 }], values);
  }
  const waitReserved = (seq: bigint, offset: number) =>
    card.client.submit([{ queue: 4, cb: seq, byteLength: offset }], {
      cs_flags: HL_CS_FLAGS.WAIT | HL_CS_FLAGS.ENCAP_SIGNALS,
    });

  it('are waited for until it has ended, and their reservation lasts as long as somebody refers to it', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { handle_id: id } = reserve(0, 4).out;
    const cs_flags = STAGED | FIRST | LAST | HL_CS_FLAGS.ENCAP_SIGNALS;
    const first = blocked(0, { cs_flags, encaps_sig_handle_id: id }).out.seq;
    expect(unreserve(id)).toBe(-EINVAL);
    expect(blocked(0, { cs_flags, encaps_sig_handle_id: id }).result).toBe(-EINVAL);
    expect(waitReserved(first, 5).result).toBe(-EINVAL);
    const wait = waitReserved(first, 4);
    expect([wait.result, statusOf(wait.out.seq)]).toEqual([0, BUSY]);
    expect(waitReserved(first + 77n, 1).out.seq).toBe(NO_SEQ);
    const { submissions } = contextOf();
    submissions.abort(undefined);
    // Both have ended: the reservation is gone, and its number can be given again.
    expect(waitReserved(first, 1).out.seq).toBe(NO_SEQ);
    const again = reserve(0, 1).out.handle_id;
    expect(again).toBe(id);
    // So it is if nothing has waited.
    blocked(4, { cs_flags, encaps_sig_handle_id: again });
    submissions.abort(undefined);
    expect(reserve(0, 1).out.handle_id).toBe(id);
  });
});

describe('user interrupts', () => {
  const flagsOf = (id: number, more = 0): number =>
    (HL_WAIT_CS_FLAGS.INTERRUPT | more | (id << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
  const KERNEL_CQ = HL_WAIT_CS_FLAGS.INTERRUPT_KERNEL_CQ;
  const REGISTER = HL_WAIT_CS_FLAGS.REGISTER_INTERRUPT;
  /** The card writes a counter and raises an interrupt. */
  const raise = (id: number, value: number): void => {
    const words = card.words(2 * MIB);
    let at = writeMsgLong(words, 0, msgLongCtl(), value, ...halves(card.hostVa + 8n));
    at = writeMsgLong(words, at, msgLongCtl(), id, ...halves(card.node.config.profile.va.reservedHost[0]!.start));
    card.submit(2 * MIB, at * 4);
  };
  /** A wait that does not block. */
  function start(id: number, target: bigint, timeoutUs = 50n) {
    const { file } = card.client;
    const block = allocateScratch(HL_WAIT_CS_ARGS.size);
    const addr = BigInt(card.host.address + 8);
    const values = { flags: flagsOf(id), addr, target, interrupt_timeout_us: timeoutUs };
    HL_WAIT_CS_ARGS.in.encode(values, block.view);
    return file.ioctlAsync(file.numbers.WAIT_CS, block).then((result) => {
      const out = HL_WAIT_CS_ARGS.out.decode(block.view);
      block.free();
      return { result, ...out };
    });
  }

  it('wake their own waiters, and those of any, whose counters have reached the target', async () => {
    card = new EmulatedCard();
    const [own, any, more] = [start(50, 1n), start(0xfff, 1n), start(50, 2n)];
    const other = start(51, 1n);
    raise(50, 1);
    const stamped = { result: 0, status: COMPLETED, flags: HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD };
    expect(await own).toMatchObject({ ...stamped, timestamp_nsec: 1_000_000_000n });
    expect(await any).toMatchObject(stamped);
    card.clock.advance(50_000);
    expect(await more).toMatchObject({ result: 0, status: BUSY, flags: 0 });
    expect(await other).toMatchObject({ result: 0 });
    expect(contextOf().interrupts.raised).toBe(1);
  });

  it('are of known ids, and of counters that can be read', () => {
    card = new EmulatedCard();
    const { client, host } = card;
    const { firstUserInterrupt, userInterruptCount } = card.node.config.profile.interrupts;
    const { decoderCount } = card.node.config.profile.engines;
    const of = (id: number, addr = BigInt(host.address)) =>
      client.waitCs({ flags: flagsOf(id), addr, target: 0n }).result;
    for (const id of [
      0,
      decoderCount - 1,
      firstUserInterrupt,
      firstUserInterrupt + userInterruptCount - 1,
      0xfff,
      0xffe,
    ]) {
      expect([id, of(id)]).toEqual([id, 0]);
    }
    for (const id of [decoderCount, firstUserInterrupt - 1, firstUserInterrupt + userInterruptCount]) {
      expect([id, of(id)]).toEqual([id, -EINVAL]);
    }
    expect(of(firstUserInterrupt, 8n)).toBe(-EFAULT);
    const kernel = (cq_counters_handle: bigint, cq_counters_offset = 0n) =>
      client.waitCs({ flags: flagsOf(firstUserInterrupt, KERNEL_CQ), cq_counters_handle, cq_counters_offset });
    const { out } = client.createCommandBuffer(5000);
    expect([kernel(5n).result, kernel(out, 625n).result, kernel(out, 624n).result]).toEqual([-EINVAL, -EINVAL, 0]);
    card.close();
    card = new EmulatedCard({ asic: 'gaudi' });
    expect(card.client.waitCs({ flags: flagsOf(0), addr: 8n }).result).toBe(-EPERM);
  });

  it('of the first number wake waiters for any, and a counter that is gone ends a wait with EFAULT', async () => {
    card = new EmulatedCard();
    const { firstUserInterrupt: first } = card.node.config.profile.interrupts;
    const any = start(0xfff, 1n);
    raise(first, 1);
    expect(await any).toMatchObject({ result: 0, status: COMPLETED });
    const gone = start(first, 2n);
    contextOf().userMemory.read = () => false;
    raise(first, 2);
    expect(await gone).toMatchObject({ result: -EFAULT });
  });

  it('that have come need no wait, and a poll of a counter of the driver has its time', () => {
    card = new EmulatedCard();
    const { client, host } = card;
    const { waiters } = contextOf().card;
    const block = vi.spyOn(waiters, 'block').mockImplementation(() => true);
    card.words(8)[0] = 3;
    const wait = { flags: flagsOf(50), addr: BigInt(host.address + 8), target: 3n, interrupt_timeout_us: 50n };
    expect(client.waitCs(wait)).toMatchObject({ result: 0, out: { status: COMPLETED } });
    expect(block).not.toHaveBeenCalled();
    // Others wait as many microseconds as they ask for.
    expect(client.waitCs({ ...wait, target: 4n })).toMatchObject({ result: 0, out: { status: BUSY } });
    expect(block).toHaveBeenCalledWith(50_000, expect.any(Function));
    block.mockRestore();
    const kernel = {
      flags: flagsOf(50, KERNEL_CQ),
      cq_counters_handle: client.createCommandBuffer(64).out,
      target: 1n,
    };
    expect(client.waitCs(kernel).out).toMatchObject({
      status: BUSY,
      flags: HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD,
      timestamp_nsec: 1_000_000_000n,
    });
    expect(client.waitCs({ ...wait, target: 4n, interrupt_timeout_us: 0n }).out).toMatchObject({
      status: BUSY,
      flags: 0,
    });
  });

  it('write the time of a registered record once, when its target is reached', () => {
    card = new EmulatedCard();
    const { client, host } = card;
    const timestamp_handle = client.memory({ op: HL_MEM_OP.TS_ALLOC, num_of_elements: 8 }).out.handle;
    const register = (offset: number, target: bigint, id = 50) =>
      client.waitCs({
        flags: flagsOf(id, REGISTER),
        addr: BigInt(host.address + 8),
        target,
        timestamp_handle,
        timestamp_offset: BigInt(offset),
      }).result;
    expect([register(8, 1n), register(2, 1n), register(3, 2n), register(7, 0n)]).toEqual([-EINVAL, 0, 0, 0]);
    const { interrupts } = contextOf();
    expect(interrupts.registered).toBe(2);
    const unreadable = { flags: flagsOf(50, REGISTER), addr: 8n, target: 1n, timestamp_handle };
    expect([client.waitCs(unreadable).result, interrupts.registered]).toEqual([-EFAULT, 2]);
    const mapping = client.file.mmap(4096, timestamp_handle);
    const stamps = () => [2, 3, 7].map((at) => new DataView(mapping.buffer).getBigUint64(at * 8, true));
    expect(stamps()).toEqual([0n, 0n, 1_000_000_000n]);
    card.clock.advance(5);
    raise(51, 1);
    expect([stamps()[0], interrupts.registered]).toEqual([0n, 2]);
    raise(50, 1);
    expect([stamps(), interrupts.registered]).toEqual([[1_000_000_005n, 0n, 1_000_000_000n], 1]);
    // A record for the same place replaces the one before.
    expect([register(3, 3n, 51), interrupts.registered]).toEqual([0, 1]);
    card.clock.advance(5);
    raise(50, 2);
    expect(stamps()[1]).toBe(0n);
    raise(51, 3);
    expect([stamps()[1], interrupts.registered]).toEqual([1_000_000_010n, 0]);
    mapping.close();
  });
});
