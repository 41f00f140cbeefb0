/** Contract cases: WAIT_CS. */

import { describe, expect, it, vi } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { allocateScratch, Errno } from '../../../src/sys/index.ts';
import {
  ASIC_PROFILES,
  type AsicName,
  fenceCfg,
  HL_CB_FLAGS,
  HL_CB_OP,
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
  writeNop,
} from '../../../src/uapi/index.ts';
import { requires } from '../../fixtures/requires.ts';
import { DriverFixture, halves } from './driver-fixture.ts';

/** Interrupts that users can wait for, and others, by generation. */
const WAITABLE = {
  gaudi: [],
  gaudi2: [0, 9, 48, 111, 0xfff, 0xffe],
  gaudi3: [0, 6, 8, 14, 71, 326, 0xfff, 0xffe],
} as const satisfies Readonly<Record<AsicName, readonly number[]>>;
const UNKNOWN = {
  gaudi: [],
  gaudi2: [10, 47, 112],
  gaudi3: [70, 327],
} as const satisfies Readonly<Record<AsicName, readonly number[]>>;
const WAITS = 3000;
const WAIT_BYTES = 128;

export function waitCases(asic: AsicName, makeNode: () => DriverNode): void {
  describe('WAIT_CS', () => {
    const fixture = new DriverFixture(asic, makeNode);
    const nop = (): void => void writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));

    it('refuses unknown sequence numbers', () => {
      expect(fixture.client.wait(1n).result).toBe(-Errno.EINVAL);
      expect(fixture.client.wait(2n ** 64n - 1n).result).toBe(-Errno.EINVAL);
      const none = { status: HL_WAIT_CS_STATUS.COMPLETED, flags: HL_WAIT_CS_STATUS_FLAG.GONE };
      expect(fixture.client.wait(0n)).toMatchObject({ result: 0, out: none });
    });

    it('leaves the arguments that it refuses; those with an unknown sequence number are cleared', async () => {
      const { client, profile, node } = fixture;
      const words = client.block.words.subarray(0, HL_WAIT_CS_ARGS.size / 4);
      const many = { seq: 64n, timeout_us: 10n ** 9n, seq_arr_len: 33, flags: HL_WAIT_CS_FLAGS.MULTI_CS };
      const interrupt = { flags: (HL_WAIT_CS_FLAGS.INTERRUPT | (20 << WAIT_CS_INTERRUPT_SHIFT)) >>> 0, target: 1n };
      const { multiCs, userInterrupts } = profile.capabilities;
      const refusals = [
        [many, multiCs ? Errno.EINVAL : Errno.EPERM],
        // Bytes behind the length, which must be 0.
        [{ flags: many.flags, seq: 64n, interrupt_timeout_us: 257n }, Errno.EINVAL],
        [{ ...interrupt, interrupt_timeout_us: 10n ** 9n }, userInterrupts ? Errno.EINVAL : Errno.EPERM],
      ] as const;
      for (const [values, errno] of refusals) {
        HL_WAIT_CS_ARGS.in.encode(values, client.block.view);
        const before = [...words];
        expect(client.waitCs(values).result).toBe(-errno);
        expect([...words]).toEqual(before);
        // The kernel's port waits in slices.
        if (node.kind !== 'emulator') continue;
        expect(await client.file.ioctlAsync(client.file.numbers.WAIT_CS, client.block)).toBe(-errno);
        expect([...words]).toEqual(before);
      }
      expect(client.wait(77n, 1000).result).toBe(-Errno.EINVAL);
      expect(new Set(words)).toEqual(new Set([0]));
    });

    it('forgets old submissions, but not their timestamps, which can be read once', () => {
      const { client, profile } = fixture;
      requires(profile.maxPendingCs <= 1000, 'a bound of submissions in flight');
      fixture.mapAll();
      nop();
      const stamped = fixture.submitCommands(8, 0, { cs_flags: HL_CS_FLAGS.TIMESTAMP }).out.seq;
      const first = client.wait(stamped, 1_000_000);
      expect(first.out.flags).toBe(HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD);
      const plain = fixture.submitCommands(8).out.seq;
      for (let i = 0; i < profile.maxPendingCs; i++) {
        const { out } = fixture.submitCommands(8);
        expect(client.wait(out.seq, 1_000_000).out.status).toBe(0);
      }
      expect(client.wait(stamped).out).toMatchObject({ status: 0, flags: 2, timestamp_nsec: first.out.timestamp_nsec });
      expect(client.wait(stamped).out).toMatchObject({ status: 0, flags: HL_WAIT_CS_STATUS_FLAG.GONE });
      expect(client.wait(plain).out).toMatchObject({ status: 0, flags: HL_WAIT_CS_STATUS_FLAG.GONE });
    });

    it('returns BUSY after the timeout', async () => {
      const { client } = fixture;
      fixture.mapAll();
      writeFence(fixture.commands, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
      const { out } = fixture.submitCommands(8);
      expect(client.wait(out.seq, 1000)).toMatchObject({ result: 0, out: { status: HL_WAIT_CS_STATUS.BUSY } });
    });

    it('waits without blocking', async () => {
      const { client } = fixture;
      fixture.mapAll();
      nop();
      const { out } = fixture.submitCommands(8);
      client.block.words.fill(0, 0, 14);
      client.block.view.setBigUint64(0, out.seq, true);
      client.block.view.setBigUint64(8, 1_000_000n, true);
      expect(await client.file.ioctlAsync(client.file.numbers.WAIT_CS, client.block)).toBe(0);
      expect(client.block.words[0]).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    });

    it('waits thousands of times at once', async () => {
      const { client, profile } = fixture;
      requires(fixture.node.kind === 'emulator', 'waits without polling');
      fixture.mapAll();
      writeFence(fixture.commands, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
      const { out } = fixture.submitCommands(8);
      const { file } = client;
      using memory = allocateScratch(WAITS * WAIT_BYTES);
      const blocks = Array.from({ length: WAITS }, (_, index) => {
        const at = index * WAIT_BYTES;
        const { buffer, byteOffset } = memory.view;
        const view = new DataView(buffer, byteOffset + at, WAIT_BYTES);
        HL_WAIT_CS_ARGS.in.encode({ seq: out.seq, timeout_us: 600_000_000n }, view);
        const words = new Uint32Array(buffer, byteOffset + at, WAIT_BYTES / 4);
        return { address: memory.address + at, words };
      });
      const waits = blocks.map((block) => file.ioctlAsync(file.numbers.WAIT_CS, block));
      // Meanwhile the file answers.
      expect(client.wait(out.seq).out.status).toBe(HL_WAIT_CS_STATUS.BUSY);
      fixture.raiseFence(profile.cfg.start + BigInt(profile.fences[0]!.fence0));
      expect(new Set(await Promise.all(waits))).toEqual(new Set([0]));
      expect(new Set(blocks.map(({ words }) => words[0]))).toEqual(new Set([HL_WAIT_CS_STATUS.COMPLETED]));
    });

    it('waits for the first of several on gaudi', () => {
      const { client } = fixture;
      const multi = (seq_arr_len: number, timeout_us = 0n) => {
        const seq = BigInt(client.dataAddress + 512);
        return client.waitCs({ seq, seq_arr_len, timeout_us, flags: HL_WAIT_CS_FLAGS.MULTI_CS });
      };
      if (!fixture.profile.capabilities.multiCs) {
        expect(multi(1).result).toBe(-Errno.EPERM);
        return;
      }
      fixture.mapAll();
      nop();
      const { out } = fixture.submitCommands(8);
      client.data.setBigUint64(512, out.seq, true);
      expect(multi(33).result).toBe(-Errno.EINVAL);
      const bad = { seq: 64n, seq_arr_len: 1, flags: HL_WAIT_CS_FLAGS.MULTI_CS };
      expect(client.waitCs(bad).result).toBe(-Errno.EFAULT);
      const { GONE, TIMESTAMP_VLD } = HL_WAIT_CS_STATUS_FLAG;
      const completed = { status: HL_WAIT_CS_STATUS.COMPLETED, cs_completion_map: 1 };
      expect(multi(1)).toMatchObject({ result: 0, out: { ...completed, flags: GONE, timestamp_nsec: 0n } });
      client.data.setBigUint64(512, 1000n, true);
      expect(multi(1).result).toBe(-Errno.EINVAL);
      // The answer has a timestamp if all complete submissions of the list have one: one without it, or one that is gone, removes it.
      const stamped = fixture.submitCommands(8, 0, { cs_flags: HL_CS_FLAGS.TIMESTAMP }).out.seq;
      const { timestamp_nsec } = client.wait(stamped, 1_000_000).out;
      client.data.setBigUint64(512, stamped, true);
      expect(multi(1)).toMatchObject({ result: 0, out: { ...completed, flags: TIMESTAMP_VLD, timestamp_nsec } });
      for (const other of [out.seq, 0n]) {
        client.data.setBigUint64(520, other, true);
        const map = { ...completed, cs_completion_map: 3, flags: GONE, timestamp_nsec: 0n };
        expect([other, multi(2)]).toMatchObject([other, { result: 0, out: map }]);
      }
    });

    const { userInterrupts, staged } = ASIC_PROFILES[asic].capabilities;
    if (userInterrupts) {
      interruptCases(fixture);
    } else {
      it('has no user interrupts', () => {
        expect(fixture.client.waitCs({ flags: HL_WAIT_CS_FLAGS.INTERRUPT }).result).toBe(-Errno.EPERM);
      });
    }
    if (staged) {
      stagedCases(fixture);
      internalStagedCases(fixture);
    }
  });
}

function stagedCases(fixture: DriverFixture): void {
  const STAGED = HL_CS_FLAGS.STAGED_SUBMISSION;

  it('permits two concurrent waits for several submissions, and refuses a third', async () => {
    const { client } = fixture;
    writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
    const first = fixture.submitCommands(8, 0, { cs_flags: STAGED | HL_CS_FLAGS.STAGED_SUBMISSION_FIRST }).out.seq;
    client.data.setBigUint64(512, first, true);
    const wait = { seq: BigInt(client.dataAddress + 512), seq_arr_len: 1, timeout_us: 60_000_000n };
    const waits = [1, 2, 3].map(() => {
      const block = allocateScratch(HL_WAIT_CS_ARGS.size);
      HL_WAIT_CS_ARGS.in.encode({ ...wait, flags: HL_WAIT_CS_FLAGS.MULTI_CS }, block.view);
      return client.file.ioctlAsync(client.file.numbers.WAIT_CS, block).finally(() => block.free());
    });
    expect(await waits[2]).toBe(-Errno.ENOMEM);
    fixture.submitCommands(8, 0, { cs_flags: STAGED | HL_CS_FLAGS.STAGED_SUBMISSION_LAST, seq: first });
    // Any call lets the driver detect that the submission is complete.
    client.wait(first);
    expect(await Promise.all(waits.slice(0, 2))).toEqual([0, 0]);
  });

  it('completes a staged submission with its last member', () => {
    const { client } = fixture;
    writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
    const first = fixture.submitCommands(8, 0, { cs_flags: STAGED | HL_CS_FLAGS.STAGED_SUBMISSION_FIRST }).out.seq;
    expect(client.wait(first).out.status).toBe(HL_WAIT_CS_STATUS.BUSY);
    expect(fixture.submitCommands(8, 0, { cs_flags: STAGED, seq: first }).out.seq).toBe(first);
    const last = { cs_flags: STAGED | HL_CS_FLAGS.STAGED_SUBMISSION_LAST, seq: first };
    expect(fixture.submitCommands(8, 0, last).out.seq).toBe(first);
    expect(client.wait(first, 1_000_000).out.status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    expect(fixture.submitCommands(8, 0, last).result).toBe(-Errno.EINVAL);
    expect(fixture.submitCommands(8, 0, { cs_flags: STAGED, seq: 999n }).result).toBe(-Errno.EINVAL);
  });
}

function internalStagedCases(fixture: DriverFixture): void {
  const { STAGED_SUBMISSION: STAGED, STAGED_SUBMISSION_FIRST: FIRST, STAGED_SUBMISSION_LAST: LAST } = HL_CS_FLAGS;
  /** A queue of a TPC, which does not signal completion. */
  const INTERNAL = 41;

  it('accepts internal queues only in all members of a staged submission but the last', async () => {
    const { client, host } = fixture;
    const hostVa = fixture.mapAll();
    const message = (value: number) =>
      fixture.chunk(INTERNAL, (words) =>
        writeMsgLong(words, 0, msgLongCtl(), value, ...halves(hostVa + 4n * BigInt(value))),
      );
    const first = client.submit([message(1)], { cs_flags: STAGED | FIRST });
    expect(first).toMatchObject({ result: 0, out: { seq: 1n } });
    // A wait for several submissions accepts every queue.
    client.data.setBigUint64(512, 1n, true);
    const multi = { seq: BigInt(client.dataAddress + 512), seq_arr_len: 1, flags: HL_WAIT_CS_FLAGS.MULTI_CS };
    expect(client.waitCs(multi)).toMatchObject({ result: 0, out: { status: HL_WAIT_CS_STATUS.BUSY } });
    expect(client.submit([message(2)], { cs_flags: STAGED, seq: 1n })).toMatchObject({ result: 0, out: { seq: 1n } });
    const before = client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out.ctx_validation_drop_cnt;
    expect(client.submit([message(3)], { cs_flags: STAGED | LAST, seq: 1n }).result).toBe(-Errno.EINVAL);
    expect(client.submit([message(3)], { cs_flags: STAGED | FIRST | LAST }).result).toBe(-Errno.EINVAL);
    expect(client.submit([message(3)]).result).toBe(-Errno.EINVAL);
    const { ctx_validation_drop_cnt } = client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;
    expect(ctx_validation_drop_cnt - before).toBe(3n);
    expect(client.wait(1n).out.status).toBe(HL_WAIT_CS_STATUS.BUSY);
    const last = fixture.chunk(0, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
    expect(client.submit([message(3), last], { cs_flags: STAGED | LAST, seq: 1n }).result).toBe(0);
    expect(client.wait(1n, 1_000_000).out.status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    // The internal queues do not signal completion: they may be later.
    await vi.waitFor(() => expect([...host.words.subarray(1, 4)]).toEqual([1, 2, 3]));
  });
}

/** The first interrupt of users. */
function firstOf({ profile }: DriverFixture): number {
  return profile.interrupts.firstUserInterrupt;
}

function interruptCases(fixture: DriverFixture): void {
  const flagsOf = (id: number, more = 0): number =>
    (HL_WAIT_CS_FLAGS.INTERRUPT | more | (id << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
  const KERNEL_CQ = HL_WAIT_CS_FLAGS.INTERRUPT_KERNEL_CQ;

  it('checks interrupt ids and counters', () => {
    const { client, host, asic } = fixture;
    const addr = BigInt(host.address);
    const first = firstOf(fixture);
    for (const id of WAITABLE[asic]) {
      expect([id, client.waitCs({ flags: flagsOf(id), addr, target: 0n }).result]).toEqual([id, 0]);
    }
    for (const id of UNKNOWN[asic]) {
      expect([id, client.waitCs({ flags: flagsOf(id), addr, target: 0n }).result]).toEqual([id, -Errno.EINVAL]);
    }
    expect(client.waitCs({ flags: flagsOf(first), addr: 64n, target: 0n }).result).toBe(-Errno.EFAULT);
    expect(client.waitCs({ flags: flagsOf(first, KERNEL_CQ), cq_counters_handle: 5n }).result).toBe(-Errno.EINVAL);
    const { out } = client.createCommandBuffer(4096);
    const outside = { flags: flagsOf(first, KERNEL_CQ), cq_counters_handle: out, cq_counters_offset: 512n };
    expect(client.waitCs(outside).result).toBe(-Errno.EINVAL);
    expect(client.waitCs({ ...outside, cq_counters_offset: 511n })).toMatchObject({ result: 0, out: { status: 0 } });
    // The size that was requested counts, not that in pages.
    const larger = { ...outside, cq_counters_handle: client.createCommandBuffer(5000).out };
    expect(client.waitCs({ ...larger, cq_counters_offset: 625n }).result).toBe(-Errno.EINVAL);
    expect(client.waitCs({ ...larger, cq_counters_offset: 624n }).result).toBe(0);
  });

  it('completes when the card raises a counter in memory of the user', async () => {
    const { client, host } = fixture;
    const hostVa = fixture.mapAll();
    const id = firstOf(fixture) + 2;
    const wait = { flags: flagsOf(id), addr: BigInt(host.address + 8), target: 2n, interrupt_timeout_us: 60_000_000n };
    expect(client.waitCs({ ...wait, interrupt_timeout_us: 0n }).out.status).toBe(HL_WAIT_CS_STATUS.BUSY);
    const block = allocateScratch(HL_WAIT_CS_ARGS.size);
    HL_WAIT_CS_ARGS.in.encode(wait, block.view);
    const waiting = client.file.ioctlAsync(client.file.numbers.WAIT_CS, block);
    fixture.raiseCounter(hostVa + 8n, 0, 2, id);
    expect(await waiting).toBe(0);
    expect(HL_WAIT_CS_ARGS.out.decode(block.view).status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    block.free();
  });

  it('wakes the waiters of the raised interrupt, and those of any', async () => {
    const { client, host } = fixture;
    const hostVa = fixture.mapAll();
    const id = firstOf(fixture) + 2;
    const start = (id: number, target: bigint) => {
      const block = allocateScratch(HL_WAIT_CS_ARGS.size);
      const addr = BigInt(host.address + 8);
      HL_WAIT_CS_ARGS.in.encode({ flags: flagsOf(id), addr, target, interrupt_timeout_us: 60_000_000n }, block.view);
      return client.file.ioctlAsync(client.file.numbers.WAIT_CS, block).then((result) => {
        const { status } = HL_WAIT_CS_ARGS.out.decode(block.view);
        block.free();
        return [result, status];
      });
    };
    const raise = (interrupt: number, from: number, to: number) => {
      fixture.raiseCounter(hostVa + 8n, from, to, interrupt);
    };
    const completed = [0, HL_WAIT_CS_STATUS.COMPLETED];
    const [one, any, later, other] = [start(id, 1n), start(0xfff, 1n), start(id, 2n), start(id + 1, 1n)];
    raise(id, 0, 1);
    expect(await Promise.all([one, any])).toEqual([completed, completed]);
    raise(id + 1, 1, 1);
    expect(await other).toEqual(completed);
    raise(id, 1, 2);
    expect(await later).toEqual(completed);
  });

  it('completes when the card raises the counter and the interrupt', () => {
    const { client } = fixture;
    fixture.mapAll();
    const id = firstOf(fixture) + 2;
    const handle = client.createCommandBuffer(4096, HL_CB_FLAGS.MAP).out;
    const info = { op: HL_CB_OP.INFO, cb_handle: handle, flags: HL_CB_FLAGS.GET_DEVICE_VA };
    const counter = client.commandBuffer(info).out.device_va;
    const stamps = client.memory({ op: HL_MEM_OP.TS_ALLOC, num_of_elements: 8 }).out.handle;
    const wait = { flags: flagsOf(id, KERNEL_CQ), cq_counters_handle: handle, target: 3n };
    const busy = { status: HL_WAIT_CS_STATUS.BUSY, flags: HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD };
    expect(client.waitCs(wait)).toMatchObject({ result: 0, out: busy });
    expect(client.waitCs({ ...wait, interrupt_timeout_us: 1000n }).out).toMatchObject({ ...busy, flags: 0 });
    const register = { flags: flagsOf(id, KERNEL_CQ | HL_WAIT_CS_FLAGS.REGISTER_INTERRUPT), timestamp_handle: stamps };
    const values = { ...wait, ...register, timestamp_offset: 2n };
    expect(client.waitCs({ ...values, timestamp_offset: 8n }).result).toBe(-Errno.EINVAL);
    expect(client.waitCs({ ...values, timestamp_handle: 1n }).result).toBe(-Errno.EINVAL);
    expect(client.waitCs(values).result).toBe(0);
    fixture.raiseCounter(counter, 0, 3, id);
    const done = client.waitCs({ ...wait, interrupt_timeout_us: 10_000_000n });
    expect(done).toMatchObject({ result: 0, out: { status: 0, flags: HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD } });
    const mapping = client.file.mmap(4096, stamps);
    expect(new DataView(mapping.buffer).getBigUint64(16, true)).toBeGreaterThan(0n);
    mapping.close();
  });
}
