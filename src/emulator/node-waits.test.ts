/** How waits end on an emulated card whose submissions time out or are aborted, because it is reset, fails or is removed. */

import { afterEach, describe, expect, it } from 'vitest';
import { halves } from '../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import { useErrnoRecord } from '../../test/fixtures/driver/errno-record.ts';
import { allocateScratch, Errno } from '../sys/index.ts';
import {
  HL_CS_FLAGS,
  HL_DEVICE_STATUS,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  HL_WAIT_CS_STATUS_FLAG,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  WAIT_CS_INTERRUPT_SHIFT,
  writeMsgLong,
  writeNop,
} from '../uapi/index.ts';
import { PrimaryFile } from './driver/ioctl/file.ts';
import type { Fault } from './faults/fault-plan.ts';

useErrnoRecord();

const MINUTE_US = 60_000_000n;
const MIB = 2 ** 20;
const LIST_BYTES = 256;
const TWO_SECONDS = { cs_flags: HL_CS_FLAGS.CUSTOM_TIMEOUT, timeout: 2 };

/** After these nothing is in flight. */
const FAULTS: readonly (readonly [string, Fault])[] = [
  ['a hard reset', { kind: 'hard-reset' }],
  ['the removal of the card', { kind: 'unplug' }],
  ['a malfunction', { kind: 'malfunction' }],
  ['the status NEEDS_RESET', { kind: 'status', status: HL_DEVICE_STATUS.NEEDS_RESET }],
];

type WaitValues = Parameters<EmulatedCard['client']['waitCs']>[0];
type SubmitValues = Parameters<EmulatedCard['client']['submit']>[1];

let card: EmulatedCard;
afterEach(() => card.close());

/** Starts a wait that does not block the thread; returns its result, and its arguments before and after it. */
async function waitAsync(values: WaitValues) {
  const { file } = card.client;
  const block = allocateScratch(HL_WAIT_CS_ARGS.size);
  HL_WAIT_CS_ARGS.in.encode(values, block.view);
  const before = [...block.words];
  const result = await file.ioctlAsync(file.numbers.WAIT_CS, block);
  const after = [...block.words];
  block.free();
  return { result, before, after };
}

it('a wait for a complete submission has its result at once, and leaves no timer', async () => {
  card = new EmulatedCard();
  const { client, node } = card;
  const { file, block } = client;
  if (!(file instanceof PrimaryFile)) throw new Error('no primary file');
  const poll = (seq: bigint): number | Promise<number> => {
    HL_WAIT_CS_ARGS.in.encode({ seq, timeout_us: 10n }, block.view);
    return file.ioctlOrWait(file.numbers.WAIT_CS, block);
  };
  const { seq } = card.submit(0, 4 * writeNop(card.words(0), 0, packetCtl(PacketOpcode.NOP))).out;
  expect([poll(seq), HL_WAIT_CS_ARGS.out.decode(block.view).status]).toEqual([0, HL_WAIT_CS_STATUS.COMPLETED]);
  expect(node.card(0).waiters.any).toBe(false);
  expect(poll(1000n)).toBe(-Errno.EINVAL);
  const waiting = poll(card.block(MIB));
  expect(typeof waiting).toBe('object');
  card.clock.advance(10_000);
  expect(await waiting).toBe(0);
});

describe('waits in progress', () => {
  it.each(FAULTS)('end at %s', async (_, fault) => {
    card = new EmulatedCard();
    const { client, host, node } = card;
    const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | (48 << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
    const interrupt = { flags, target: 1n, interrupt_timeout_us: MINUTE_US };
    const kernelCq = {
      ...interrupt,
      flags: flags | HL_WAIT_CS_FLAGS.INTERRUPT_KERNEL_CQ,
      cq_counters_handle: client.createCommandBuffer(4096).out,
    };
    const waits = [
      waitAsync({ seq: card.block(0), timeout_us: MINUTE_US }),
      waitAsync({ ...interrupt, addr: BigInt(host.address + MIB) }),
      waitAsync(kernelCq),
    ];
    // The clock stands still: no wait reaches its time-out.
    node.inject(0, fault);
    const [submission, userCounter, kernelCounter] = await Promise.all(waits);
    expect([submission!.result, submission!.after[0]]).toEqual([-Errno.EIO, HL_WAIT_CS_STATUS.ABORTED]);
    expect([userCounter!.result, userCounter!.after[0]]).toEqual([0, HL_WAIT_CS_STATUS.ABORTED]);
    expect([kernelCounter!.result, kernelCounter!.after]).toEqual([-Errno.EIO, kernelCounter!.before]);
  });
});

describe('submissions in flight', () => {
  it.each(FAULTS)('do not run after %s', (_, fault) => {
    card = new EmulatedCard();
    card.node.inject(0, { kind: 'hang', delayNs: 1e9 });
    writeMsgLong(card.words(0), 0, msgLongCtl(), 42, ...halves(card.hostVa + BigInt(MIB)));
    expect(card.submit(0, 16).result).toBe(0);
    card.node.inject(0, fault);
    card.clock.advance(1e9);
    expect(card.words(MIB)[0]).toBe(0);
  });

  it('stay aborted when the card recovers, which then runs others', () => {
    card = new EmulatedCard();
    const aborted = card.block(0);
    card.node.inject(0, { kind: 'malfunction' });
    card.node.inject(0, { kind: 'recover' });
    const status = HL_WAIT_CS_STATUS.ABORTED;
    expect(card.client.wait(aborted)).toMatchObject({ result: -Errno.EIO, out: { status } });
    writeNop(card.words(64), 0, packetCtl(PacketOpcode.NOP));
    expect(card.client.wait(card.submit(64, 8).out.seq).out.status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
  });
});

describe('a wait for several submissions', () => {
  /** Submits a command buffer of the driver that does nothing. */
  function nop(values: SubmitValues = {}): bigint {
    const { client } = card;
    const cb = client.createCommandBuffer(4096).out;
    const mapping = client.file.mmap(4096, cb);
    writeNop(new Uint32Array(mapping.buffer), 0, packetCtl(PacketOpcode.NOP));
    mapping.close();
    const { result, out } = client.submit([{ queue: 0, cb, byteLength: 8 }], values);
    expect(result).toBe(0);
    return out.seq;
  }

  /** Submits one that does not complete. */
  function held(values?: SubmitValues): bigint {
    card.node.inject(0, { kind: 'completion' });
    return nop(values);
  }

  /** The arguments of the wait. The list is at byte `offset` of the host memory. */
  function multi(sequences: readonly bigint[], timeout_us = 0n, offset = 0): WaitValues {
    for (const [index, seq] of sequences.entries()) card.host.view.setBigUint64(offset + 8 * index, seq, true);
    const seq = BigInt(card.host.address + offset);
    return { seq, seq_arr_len: sequences.length, timeout_us, flags: HL_WAIT_CS_FLAGS.MULTI_CS };
  }

  it('ends with the error of the first in the list that has one, whichever others are complete', () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const { client } = card;
    const aborted = held();
    card.node.inject(0, { kind: 'malfunction' });
    card.node.inject(0, { kind: 'recover' });
    const [complete, pending] = [nop(), held()];
    expect(client.wait(aborted).result).toBe(-Errno.EIO);
    const completed = { status: HL_WAIT_CS_STATUS.COMPLETED, cs_completion_map: 2 };
    expect(client.waitCs(multi([pending, complete]))).toMatchObject({ result: 0, out: completed });
    for (const list of [[aborted], [complete, aborted], [aborted, complete], [pending, aborted]]) {
      expect([list, client.waitCs(multi(list, MINUTE_US)).result]).toEqual([list, -Errno.EIO]);
    }
    expect(client.waitCs(multi([pending])).out.status).toBe(HL_WAIT_CS_STATUS.BUSY);
  });

  it('reports the time of the submission that ends it, if that has one', async () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const stamped = { cs_flags: HL_CS_FLAGS.TIMESTAMP };
    const { GONE, TIMESTAMP_VLD } = HL_WAIT_CS_STATUS_FLAG;
    for (const [values, flags] of [
      [{}, GONE],
      [stamped, TIMESTAMP_VLD],
    ] as const) {
      // Its jobs are done, but it is not complete.
      const pending = held(stamped);
      card.node.inject(0, { kind: 'completion', delayNs: 1e9 });
      const wait = waitAsync(multi([pending, nop(values)], MINUTE_US));
      card.clock.advance(1e9);
      const { result, after } = await wait;
      const out = HL_WAIT_CS_ARGS.out.words;
      expect([result, after[out.status], after[out.flags], after[out.cs_completion_map]]).toEqual([0, 0, flags, 2]);
    }
  });

  it('ends with the error of the first in the list when a time-out resets the card', async () => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const [first, second] = [held(TWO_SECONDS), held()];
    const waits = [
      waitAsync(multi([first, second], MINUTE_US)),
      waitAsync(multi([second, first], MINUTE_US, LIST_BYTES)),
    ];
    card.clock.advance(2e9);
    const ends = await Promise.all(waits);
    expect(ends.map(({ result }) => result)).toEqual([-Errno.ETIMEDOUT, -Errno.EIO]);
    // As the driver, which writes an answer only without an error.
    for (const { before, after } of ends) expect(after).toEqual(before);
  });

  it.each(FAULTS)('ends with EIO at %s', async (_, fault) => {
    card = new EmulatedCard({ asic: 'gaudi' });
    const wait = waitAsync(multi([held(), held()], MINUTE_US));
    card.node.inject(0, fault);
    const { result, before, after } = await wait;
    expect([result, after]).toEqual([-Errno.EIO, before]);
  });
});
