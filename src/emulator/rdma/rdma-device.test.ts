/** Emulated RDMA devices: operations of connections against an oracle, also with lost and delayed packets; refusals, limits and faults. */

import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { property } from '../../../test/fixtures/property.ts';
import { type Completed, RdmaEnd, type RdmaEndOptions } from '../../../test/fixtures/transports/rdma-end.ts';
import { Errno, isReadable, PollEvent, pollNow, SyscallError } from '../../sys/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import {
  AccessFlag,
  AsyncEventType,
  PortState,
  QpState,
  SendFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
} from '../../verbs/abi.ts';
import { EmulatedVerbs } from './emulated-verbs.ts';
import type { RdmaDevice } from './rdma-device.ts';
import { LocalWire } from './wire.ts';

const MTU = 4096;

/** Two devices on a wire of their own, with one end each. */
class Two {
  readonly clock: ManualClock = new ManualClock();
  readonly verbs: EmulatedVerbs;
  readonly devices: readonly RdmaDevice[];
  readonly near: RdmaEnd;
  readonly far: RdmaEnd;

  constructor(near: RdmaEndOptions = {}, far: RdmaEndOptions = {}) {
    const dmabufs = {
      attach: (fd: number): never => {
        throw new SyscallError('ibv_reg_dmabuf_mr', Errno.EINVAL, `descriptor ${fd}`);
      },
    };
    this.verbs = new EmulatedVerbs({ nics: 2, clock: this.clock, dmabufs, wire: new LocalWire() });
    this.devices = ['hca0', 'hca1'].map((name) => this.verbs.device(name));
    this.near = new RdmaEnd(this.verbs.open('hca0'), near);
    this.far = new RdmaEnd(this.verbs.open('hca1'), far);
  }

  /** Lets time pass, timer by timer, until both ends have nothing more to do. Returns the completions of the near end. */
  settle(): Completed[] {
    const completed = this.near.poll();
    for (let round = 0; this.clock.nextDeadlineNs !== undefined; round++) {
      if (round === 2000) expect.fail('the devices do not come to rest');
      this.clock.advance(Math.max(0, this.clock.nextDeadlineNs - this.clock.nowNs()));
      completed.push(...this.near.poll());
    }
    for (let some = this.near.poll(); some.length > 0; some = this.near.poll()) completed.push(...some);
    return completed;
  }

  close(): void {
    this.near.close();
    this.far.close();
    const left = this.devices.map(({ objectCount }) => objectCount);
    this.verbs.close();
    expect(left).toEqual([0, 0]);
    expect(this.clock.pendingTimers).toBe(0);
  }
}

let two: Two;

function open(near?: RdmaEndOptions, far?: RdmaEndOptions): Two {
  two.close();
  two = new Two(near, far);
  return two;
}

describe('RdmaDevice', () => {
  expectNoLeaks();
  beforeEach(() => {
    two = new Two();
  });
  afterEach(() => two.close());

  describe('operations', () => operationCases());
  describe('refusals', () => refusalCases());
  describe('faults', () => faultCases());
  describe('events', () => eventCases());
});

function operationCases(): void {
  it.each([0, 1, 8, MTU - 1, MTU, MTU + 1, 3 * MTU + 5, 60_000])('write and read %s bytes', (byteLength) => {
    const { near, far } = two;
    near.connect(far);
    fillPattern(near.memory.u8, 1);
    const expected = far.memory.u8.slice();
    expected.set(near.memory.u8.subarray(3, 3 + byteLength), 11);
    expect(near.write(7, 3, byteLength, far, 11)).toBe(0);
    expect(two.settle()).toEqual([
      { id: 7, status: 0, opcode: WcOpcode.RDMA_WRITE, byteLength, immediate: 0, sourceQp: 0 },
    ]);
    expect(Buffer.compare(far.memory.u8, expected)).toBe(0);
    near.memory.u8.fill(0);
    expect(near.read(2 ** 40, 5, byteLength, far, 11)).toBe(0);
    expect(two.settle()).toMatchObject([{ id: 2 ** 40, status: 0, opcode: WcOpcode.RDMA_READ }]);
    const target = new Uint8Array(near.memory.byteLength);
    target.set(expected.subarray(11, 11 + byteLength), 5);
    expect(Buffer.compare(near.memory.u8, target)).toBe(0);
  });

  it('send to the receives of a shared queue, in order, and wait while there is none', () => {
    const { near, far } = two;
    near.connect(far);
    fillPattern(near.memory.u8, 2);
    far.receive(100, 0, 5000);
    for (let i = 0; i < 3; i++) expect(near.send(i, i * 5000, 5000, 70 + i)).toBe(0);
    expect(near.poll().map(({ id }) => id)).toEqual([0]);
    far.receive(101, 5000, 5000);
    far.receive(102, 10_000, 6000);
    expect(two.settle()).toMatchObject([
      { id: 1, status: 0 },
      { id: 2, status: 0 },
    ]);
    expect(far.poll()).toMatchObject(
      [0, 1, 2].map((i) => ({ id: 100 + i, status: 0, byteLength: 5000, immediate: 70 + i, opcode: WcOpcode.RECV })),
    );
    expect(Buffer.compare(far.memory.u8.subarray(0, 15_000), near.memory.u8.subarray(0, 15_000))).toBe(0);
  });

  it('copy inline data when they are posted', () => {
    const { near, far } = two;
    near.connect(far);
    far.receive(1, 0, 300);
    expect(near.inline(1, new Uint8Array(256).fill(9))).toBe(0);
    expect(near.inline(2, new Uint8Array(257))).toBe(Errno.EINVAL);
    expect(two.settle()).toMatchObject([{ id: 1, status: 0 }]);
    expect(far.memory.u8.subarray(0, 256)).toEqual(new Uint8Array(256).fill(9));
  });

  it('add, and compare and swap, words of 64 bits', () => {
    const { near, far } = two;
    near.connect(far);
    const word = new DataView(far.memory.buffer);
    word.setBigUint64(16, 0xffff_ffff_ffffn, true);
    near.atomic(WrOpcode.ATOMIC_FETCH_AND_ADD, 1, 0, far, 16, [0xffff_0000_0000_0001n, 0n]);
    near.atomic(WrOpcode.ATOMIC_CMP_AND_SWP, 2, 8, far, 16, [0n, 5n]);
    near.atomic(WrOpcode.ATOMIC_CMP_AND_SWP, 3, 24, far, 16, [1n, 6n]);
    expect(two.settle().map(({ status }) => status)).toEqual([0, 0, 0]);
    const results = new DataView(near.memory.buffer);
    expect([0, 8, 24].map((at) => results.getBigUint64(at, true))).toEqual([0xffff_ffff_ffffn, 0n, 5n]);
    expect(word.getBigUint64(16, true)).toBe(5n);
  });

  it('complete when an atomic operation is answered before the read that precedes it', () => {
    const { near, far, verbs } = two;
    near.connect(far);
    verbs.device('hca0').inject({ kind: 'delay', delayNs: 1, count: 1 });
    // The first answer lets the fenced read go, inside the call that answers: the answer of the add overtakes that of the read.
    near.read(1, 0, 8, far, 0);
    near.read(2, 8, 8, far, 8, SendFlag.FENCE);
    near.atomic(WrOpcode.ATOMIC_FETCH_AND_ADD, 3, 16, far, 16, [1n, 0n]);
    expect(two.settle().map(({ id, status }) => [id, status])).toEqual([
      [1, 0],
      [2, 0],
      [3, 0],
    ]);
    expect(new DataView(far.memory.buffer).getBigUint64(16, true)).toBe(1n);
  });

  it('are within the limit of reads also while reads that were repeated are answered', () => {
    const { near, far, verbs } = two;
    near.connect(far);
    verbs.device('hca0').inject({ kind: 'delay', delayNs: 1, count: 5 });
    for (const id of [0, 1]) near.write(id, 0, MTU + 1, far, 0, SendFlag.FENCE);
    for (const id of [2, 3]) near.read(id, 0, 0, far, 0, SendFlag.FENCE);
    for (const id of [4, 5, 6]) near.atomic(WrOpcode.ATOMIC_FETCH_AND_ADD, id, 8 * id, far, 60_000, [1n, 0n]);
    near.read(7, 0, 0, far, 0, SendFlag.FENCE);
    expect(two.settle().map(({ id, status }) => [id, status])).toEqual([0, 1, 2, 3, 4, 5, 6, 7].map((id) => [id, 0]));
  });

  const step = fc.record({
    kind: fc.constantFrom('write', 'read', 'send', 'add') as fc.Arbitrary<'write' | 'read' | 'send' | 'add'>,
    byteLength: fc.oneof(fc.nat(64), fc.nat(3 * MTU)),
    local: fc.nat(20_000),
    remote: fc.nat(20_000),
  });
  const fault = fc.record({
    end: fc.constantFrom('hca0', 'hca1'),
    packet: fc.constantFrom(
      'any',
      'send',
      'write',
      'read-request',
      'read-response',
      'atomic-ack',
      'ack',
    ) as fc.Arbitrary<'any'>,
    after: fc.nat(10),
    // Three faults lose fewer packets in a row than a request has attempts.
    count: fc.integer({ min: 1, max: 2 }),
    delayNs: fc.option(fc.nat(500_000), { nil: undefined }),
  });

  property(
    'have the effects of their order, whatever is lost and delayed',
    [fc.array(step, { maxLength: 30 }), fc.array(fault, { maxLength: 3 })],
    (steps, faults) => {
      const { near, far, verbs } = open();
      near.connect(far);
      for (const { end, delayNs, ...drop } of faults) {
        verbs
          .device(end)
          .inject(delayNs === undefined ? { kind: 'drop', ...drop } : { kind: 'delay', delayNs, count: 5 });
      }
      fillPattern(near.memory.u8, 1);
      fillPattern(far.memory.u8, 2);
      const [here, there] = [near.memory.u8.slice(), far.memory.u8.slice()];
      const words = new DataView(there.buffer);
      for (let i = 0; i < 30; i++) far.receive(i, 40_000, 20_000);
      for (const [id, { kind, byteLength, local, remote }] of steps.entries()) {
        if (kind === 'write') {
          expect(near.write(id, local, byteLength, far, remote, SendFlag.FENCE)).toBe(0);
          there.set(here.subarray(local, local + byteLength), remote);
        } else if (kind === 'read') {
          expect(near.read(id, local, byteLength, far, remote, SendFlag.FENCE)).toBe(0);
          here.set(there.subarray(remote, remote + byteLength), local);
        } else if (kind === 'send') {
          expect(near.send(id, 50_000, byteLength, id)).toBe(0);
          there.set(here.subarray(50_000, 50_000 + byteLength), 40_000);
        } else {
          // Of memory that nothing else uses: no fence orders it after the reads before it.
          const at = 60_000 + (remote & 0xff8);
          const result = 36_000 + id * 8;
          expect(near.atomic(WrOpcode.ATOMIC_FETCH_AND_ADD, id, result, far, at, [BigInt(local), 0n])).toBe(0);
          const before = words.getBigUint64(at, true);
          here.set(there.subarray(at, at + 8), result);
          words.setBigUint64(at, before + BigInt(local), true);
        }
      }
      const completed = two.settle();
      expect(completed.map(({ id, status }) => [id, status])).toEqual(steps.map((_, id) => [id, 0]));
      expect(Buffer.compare(near.memory.u8, here)).toBe(0);
      expect(Buffer.compare(far.memory.u8, there)).toBe(0);
      const sent = steps.flatMap(({ kind }, id) => (kind === 'send' ? [id] : []));
      const arrived: number[] = [];
      for (let some = far.poll(); some.length > 0; some = far.poll())
        arrived.push(...some.map((each) => each.immediate));
      expect(arrived).toEqual(sent);
    },
  );
}

function refusalCases(): void {
  it('of a key that does not permit it end both queue pairs', () => {
    const { near, far } = open({}, { access: AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ });
    near.connect(far);
    near.read(1, 0, 8, far, 0);
    near.write(2, 0, 8, far, 0);
    near.write(3, 0, 8, far, 8);
    expect(two.settle().map(({ id, status }) => [id, status])).toEqual([
      [1, WcStatus.SUCCESS],
      [2, WcStatus.REM_ACCESS_ERR],
      [3, WcStatus.WR_FLUSH_ERR],
    ]);
    expect(far.memory.u8.every((byte) => byte === 0)).toBe(true);
    expect([near.qp.state, far.qp.state]).toEqual([QpState.ERR, QpState.ERR]);
    expect(far.context.nextAsyncEvent()).toEqual({ type: AsyncEventType.QP_ACCESS_ERR, element: far.qp.qpNum });
    expect(near.write(4, 0, 8, far, 0)).toBe(0);
    expect(near.poll()).toMatchObject([{ id: 4, status: WcStatus.WR_FLUSH_ERR }]);
  });

  it.each([
    [65_530, 8],
    [-8, 8],
    [2 ** 50, 1],
  ])('of remote memory outside of the region: %s of %s bytes', (offset, byteLength) => {
    const { near, far } = two;
    near.connect(far);
    near.write(1, 0, byteLength, far, offset);
    expect(two.settle()).toMatchObject([{ status: WcStatus.REM_ACCESS_ERR }]);
    expect(far.memory.u8.every((byte) => byte === 0)).toBe(true);
  });

  it('of memory that was deregistered, on both sides', () => {
    for (const side of ['near', 'far'] as const) {
      const { near, far } = open();
      near.connect(far);
      two[side].region.close();
      near.write(1, 0, 8, far, 0);
      const status = side === 'near' ? WcStatus.LOC_PROT_ERR : WcStatus.REM_ACCESS_ERR;
      expect(two.settle()).toMatchObject([{ status }]);
    }
  });

  it('of atomic operations on words that are not aligned', () => {
    const { near, far } = two;
    near.connect(far);
    near.atomic(WrOpcode.ATOMIC_FETCH_AND_ADD, 1, 0, far, 4, [1n, 0n]);
    expect(two.settle()).toMatchObject([{ status: WcStatus.REM_INV_REQ_ERR }]);
  });

  it('of sends that are longer than the receive fail both ends', () => {
    const { near, far } = two;
    near.connect(far);
    far.receive(9, 0, 100);
    near.send(1, 0, 101, 0);
    expect(two.settle()).toMatchObject([{ status: WcStatus.REM_INV_REQ_ERR }]);
    expect(far.poll()).toMatchObject([{ id: 9, status: WcStatus.LOC_LEN_ERR }]);
  });

  it('of posts name the errno: a full queue, a state without sends, too many entries', () => {
    const { near, far } = two;
    expect(near.write(1, 0, 8, far, 0)).toBe(Errno.EINVAL);
    near.connect(far);
    two.verbs.device('hca0').inject({ kind: 'drop', count: Number.POSITIVE_INFINITY });
    for (let i = 0; i < 128; i++) expect(near.write(i, 0, 8, far, 0)).toBe(0);
    expect(near.write(128, 0, 8, far, 0)).toBe(Errno.ENOMEM);
    expect(two.settle()).toHaveLength(128);
  });

  it('of transitions and of limits throw EINVAL', () => {
    const { near, far } = two;
    const refused = (call: () => unknown): void =>
      expect(call).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
    refused(() => near.qp.modify({ state: QpState.RTS }));
    refused(() => near.qp.modify({ state: QpState.INIT, port: 2, pkeyIndex: 0 }));
    near.connect(far);
    refused(() => near.qp.modify({ state: QpState.RTR }));
    refused(() => near.context.createCq(0, undefined));
    refused(() => near.context.createCq(2 ** 20, undefined));
    refused(() => near.pd.createSrq(9000, 1));
    refused(() => near.pd.regMr(near.memory.address, 100, near.memory.address, AccessFlag.REMOTE_WRITE));
    refused(() => near.pd.regMr(near.memory.address, 100, 1, 0));
    refused(() => near.context.queryPort(2));
  });

  it('of memory that is not mapped throw EFAULT', () => {
    const address = 4096;
    expect(isReadable(address, 4096)).toBe(false);
    const register = (): unknown => two.near.pd.regMr(address, 4096, address, 0);
    expect(register).toThrow(expect.objectContaining({ errno: Errno.EFAULT }));
  });

  it('packets of other queue pairs are dropped', () => {
    const { near, far, verbs } = two;
    near.connect(far);
    // It believes that it is connected to the far end, which knows the near one only.
    const path = { dlid: 0, gid: far.gid, sgidIndex: 0, hopLimit: 1, trafficClass: 0, serviceLevel: 0, port: 1 };
    const liar = new RdmaEnd(verbs.open('hca1'));
    liar.qp.modify({ state: QpState.INIT, port: 1, pkeyIndex: 0, accessFlags: 0 });
    const receiving = { pathMtu: 5, destQpNum: far.qp.qpNum, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 1, path };
    liar.qp.modify({ state: QpState.RTR, ...receiving });
    liar.qp.modify({ state: QpState.RTS, sqPsn: 0xfffffe, timeout: 4, retryCount: 1, rnrRetry: 1, maxRdAtomic: 1 });
    liar.memory.u8.fill(1);
    expect(liar.write(1, 0, 8, far, 0)).toBe(0);
    two.settle();
    expect(liar.poll()).toMatchObject([{ status: WcStatus.RETRY_EXC_ERR }]);
    expect(far.memory.u8[0]).toBe(0);
    liar.close();
  });
}

function faultCases(): void {
  it('lost for ever end the request after all retries', () => {
    const { near, far } = two;
    near.connect(far);
    two.verbs.device('hca0').inject({ kind: 'drop', packet: 'write', count: Number.POSITIVE_INFINITY });
    near.write(1, 0, 10_000, far, 0);
    near.write(2, 0, 8, far, 0);
    expect(two.settle().map(({ id, status }) => [id, status])).toEqual([
      [1, WcStatus.RETRY_EXC_ERR],
      [2, WcStatus.WR_FLUSH_ERR],
    ]);
    // Eight attempts of 4.096 us * 2^8 each.
    expect(two.clock.nowNs()).toBe(8 * 4096 * 256);
  });

  it('a receiver that is never ready ends the request after the retries', () => {
    const { near, far } = two;
    near.connect(far, { rnrRetry: 2 });
    near.send(1, 0, 8, 0);
    expect(two.settle()).toMatchObject([{ status: WcStatus.RNR_RETRY_EXC_ERR }]);
  });

  it('between the packets of a message leave its receive to it, when another queue pair uses the shared queue', () => {
    const { near, far, verbs } = two;
    near.connect(far);
    const other = new RdmaEnd(verbs.open('hca0'));
    const shared = new RdmaEnd(verbs.open('hca1'), { init: { srq: far.srq } });
    other.connect(shared);
    for (const id of [0, 1, 2]) far.receive(id, id * 16_384, 16_384);
    verbs.device('hca0').inject({ kind: 'drop', packet: 'send', after: 1, count: 1 });
    near.memory.u8.fill(7, 0, 2 * MTU);
    near.send(10, 0, 2 * MTU, 1);
    other.memory.u8.fill(8, 0, 8);
    other.send(11, 0, 8, 2);
    two.settle();
    expect(shared.poll()).toMatchObject([{ id: 1, status: WcStatus.SUCCESS, byteLength: 8, immediate: 2 }]);
    expect(far.poll()).toMatchObject([{ id: 0, status: WcStatus.SUCCESS, byteLength: 2 * MTU, immediate: 1 }]);
    expect(far.memory.u8.subarray(0, 2 * MTU).every((byte) => byte === 7)).toBe(true);
    expect(far.memory.u8.subarray(16_384, 16_392).every((byte) => byte === 8)).toBe(true);
    // A queue pair that fails in the middle of a message gives its receive back.
    verbs.device('hca0').inject({ kind: 'drop', packet: 'send', after: 1, count: Number.POSITIVE_INFINITY });
    near.send(12, 0, 2 * MTU, 3);
    far.qp.modify({ state: QpState.ERR });
    expect(far.poll()).toMatchObject([{ id: 2, status: WcStatus.WR_FLUSH_ERR }]);
    two.settle();
    other.close();
    shared.close();
  });

  it('of the link raise events, and what is sent meanwhile arrives after it', () => {
    const { near, far, verbs, clock } = two;
    near.connect(far);
    const device = verbs.device('hca0');
    device.inject({ kind: 'link-down' });
    expect(near.context.queryPort(1).state).toBe(PortState.DOWN);
    expect(near.context.nextAsyncEvent()).toEqual({ type: AsyncEventType.PORT_ERR, element: 1 });
    near.memory.u8.fill(7, 0, 8);
    near.write(1, 0, 8, far, 0);
    clock.advance(1_000_000);
    expect([near.poll(), far.memory.u8[0]]).toEqual([[], 0]);
    device.inject({ kind: 'link-up' });
    expect(near.context.nextAsyncEvent()).toEqual({ type: AsyncEventType.PORT_ACTIVE, element: 1 });
    expect(two.settle()).toMatchObject([{ id: 1, status: 0 }]);
    expect(far.memory.u8[7]).toBe(7);
  });

  it.each(['a lost packet', 'a receiver that is not ready'])('%s is retried by a program that only polls', (fault) => {
    // The event loop never comes to run a timer.
    const stopped = vi.spyOn(two.clock, 'setTimer').mockReturnValue({ cancel() {}, ref() {}, unref() {} });
    const { near, far, verbs, clock } = two;
    near.connect(far);
    const isLost = fault === 'a lost packet';
    if (isLost) verbs.device('hca0').inject({ kind: 'drop', count: 1 });
    else expect(near.send(1, 0, 8, 0)).toBe(0);
    far.receive(7, 0, 8);
    if (isLost) expect(near.send(1, 0, 8, 0)).toBe(0);
    expect([near.poll(), far.poll()]).toEqual([[], []]);
    clock.advance(1e9);
    expect(near.poll()).toMatchObject([{ id: 1, status: WcStatus.SUCCESS }]);
    expect(far.poll()).toMatchObject([{ id: 7, byteLength: 8 }]);
    stopped.mockRestore();
  });

  it('the removal of a device flushes its queue pairs, and nothing is created any more', () => {
    const { near, far, verbs } = two;
    near.connect(far);
    verbs.device('hca0').inject({ kind: 'drop', count: Number.POSITIVE_INFINITY });
    near.write(1, 0, 8, far, 0);
    const device = verbs.device('hca0');
    device.inject({ kind: 'remove' });
    expect(near.poll()).toMatchObject([{ id: 1, status: WcStatus.WR_FLUSH_ERR }]);
    expect(near.context.nextAsyncEvent()).toMatchObject({ type: AsyncEventType.DEVICE_FATAL });
    expect(() => near.context.allocPd()).toThrow(expect.objectContaining({ errno: Errno.EIO }));
    expect(verbs.devices().map(({ name }) => name)).toEqual(['hca1']);
    expect(() => verbs.open('hca0')).toThrow(expect.objectContaining({ errno: Errno.ENODEV }));
    // The other end notices when it sends.
    far.write(2, 0, 8, near, 0);
    two.settle();
    expect(far.poll()).toMatchObject([{ id: 2, status: WcStatus.RETRY_EXC_ERR }]);
    expect(device.isUp).toBe(false);
  });

  it.each([
    { kind: 'drop', packet: 'nothing' },
    { kind: 'drop', count: 0 },
    { kind: 'drop', after: -1 },
    { kind: 'delay', delayNs: -1 },
    { kind: 'delay', delayNs: 1, count: 0.5 },
  ])('that are wrong are refused: %o', (fault) => {
    const inject = (): void => two.verbs.device('hca0').inject(fault as never);
    expect(inject).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });
}

function eventCases(): void {
  it('come once after they were requested, for the next completion', () => {
    const { near, far } = two;
    near.connect(far);
    const isSignalled = (): boolean => (pollNow(near.channel.fd, PollEvent.IN) & PollEvent.IN) !== 0;
    near.write(1, 0, 8, far, 0);
    near.cq.requestNotify();
    expect(isSignalled()).toBe(false);
    near.write(2, 0, 8, far, 0);
    expect(isSignalled()).toBe(true);
    near.channel.consume();
    near.write(3, 0, 8, far, 0);
    expect(isSignalled()).toBe(false);
    expect(near.poll()).toHaveLength(3);
  });
}
