/** A connection over a queue pair that executes nothing: slots, signals, flushes, failures, the parameters of the device. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { EndedCompletion, fakeIb } from '../../../../test/fixtures/transports/fake-ib.ts';
import { Errno, SyscallError } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { QpState, RNR_TIMER_US, SendFlag, SendWr, WrOpcode } from '../../../verbs/abi.ts';
import { type IbConnection, immediateOf, MessageKind } from './connection.ts';

expectNoLeaks();

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

function open(more: Parameters<typeof fakeIb>[0] = {}) {
  const made = fakeIb(more);
  const connection = made.connect();
  closing.push(() => {
    connection.destroy();
    made.close();
  });
  /** Posts a write; signaled if its end is to be reported. */
  const post = (isSignaled = true, completion?: EndedCompletion): void => {
    if (completion !== undefined) made.shared.outstanding += 1;
    connection.sends.entry.completion = completion;
    connection.post(connection.begin(WrOpcode.RDMA_WRITE, isSignaled));
  };
  return { ...made, connection, post };
}

const message = (more: object = {}) => ({
  type: 1 as const,
  mtu: 3,
  lid: 21,
  qpNum: 22,
  psn: 23,
  maxReads: 6,
  answerQpNum: 24,
  answerQkey: 25,
  connection: new Uint8Array(8),
  gid: new Uint8Array(16).fill(9),
  sender: new Uint8Array(16),
  receiver: new Uint8Array(16),
  ...more,
});

describe('a connection', () => {
  it('is established with the parameters of both ends, the smaller of each', () => {
    const { connection, qp, shared } = open();
    expect(qp.states[0]).toMatchObject({ state: QpState.INIT, port: 2, pkeyIndex: 3 });
    connection.establish(message());
    expect(connection.isUp).toBe(true);
    expect(qp.states[1]).toMatchObject({
      state: QpState.RTR,
      pathMtu: 3,
      destQpNum: 22,
      rqPsn: 23,
      maxDestRdAtomic: 7,
      path: { dlid: 21, sgidIndex: 5, hopLimit: 8, trafficClass: 7, serviceLevel: 6, port: 2, gid: message().gid },
    });
    // 1 ms is the first time of the table that is long enough, and 4.096 us * 2^8.
    const { minRnrTimer } = qp.states[1] as { minRnrTimer: number };
    expect(RNR_TIMER_US[minRnrTimer]! * 1000).toBeGreaterThanOrEqual(1e6);
    expect(RNR_TIMER_US[minRnrTimer - 1]! * 1000).toBeLessThan(1e6);
    expect(qp.states[2]).toMatchObject({
      state: QpState.RTS,
      sqPsn: connection.psn,
      timeout: 8,
      retryCount: 6,
      rnrRetry: 5,
      maxRdAtomic: 6,
    });
    Object.assign(shared.rc, { RNR_TIMEOUT: 1e12, TIMEOUT: 1e15, MAX_RD_ATOMIC: 12 });
    connection.establish(message({ mtu: 5, maxReads: 0 }));
    expect(qp.states[3]).toMatchObject({ pathMtu: 4, maxDestRdAtomic: 9, minRnrTimer: RNR_TIMER_US.length - 1 });
    expect(qp.states[4]).toMatchObject({ timeout: 31, maxRdAtomic: 1 });
  });

  it('that cannot be initialized is destroyed', () => {
    const made = fakeIb();
    made.qp.modify = () => {
      throw new SyscallError('ibv_modify_qp', Errno.EINVAL, 'refused');
    };
    expect(() => made.connect()).toThrow('refused');
    expect(made.qp.closes).toBe(1);
    made.close();
  });

  it('has the slots of its queue, and of those that connections share all but the ones for control messages', () => {
    const { connection, post, shared } = open({ sendDepth: 40 });
    expect(connection.freeSlots).toBe(16);
    shared.sendSlots = 12;
    // A quarter of 40 is kept.
    expect(connection.freeSlots).toBe(2);
    post();
    post();
    expect([connection.freeSlots, shared.sendSlots]).toEqual([0, 10]);
    connection.isUp = true;
    expect(connection.sendControl(MessageKind.CREDIT, 3)).toBe(true);
    expect(shared.sendSlots).toBe(9);
    connection.retire(2, Status.OK);
    expect(shared.sendSlots).toBe(12);
    shared.sendSlots = 0;
    expect(connection.sendControl(MessageKind.CREDIT, 3)).toBe(false);
    shared.sendSlots = 12;
  });

  it('sends control messages only while it is up and has not failed', () => {
    const { connection, qp } = open();
    expect(connection.sendControl(MessageKind.CLOSE, 0)).toBe(false);
    connection.isUp = true;
    expect(connection.sendControl(MessageKind.CREDIT, 0x1234)).toBe(true);
    const [sent] = qp.posted;
    expect(sent).toMatchObject({ opcode: WrOpcode.SEND_WITH_IMM, flags: SendFlag.SOLICITED | SendFlag.SIGNALED });
    expect(sent!.words[SendWr.IMM_DATA]).toBe(0x1234_0100);
    expect(immediateOf(MessageKind.AM, 31, 0xffff)).toBe(0xffff_001f);
    connection.fail(Status.IO_ERROR);
    expect(connection.sendControl(MessageKind.CREDIT, 1)).toBe(false);
  });

  it('reports the end of every fourth request, and of all while slots are scarce', () => {
    const { post, qp, shared } = open();
    const signals = () => qp.posted.map(({ flags }) => (flags & SendFlag.SIGNALED) !== 0);
    for (let i = 0; i < 9; i++) post(false);
    expect(signals()).toEqual([false, false, false, true, false, false, false, true, false]);
    post(true);
    for (let i = 0; i < 4; i++) post(false);
    expect(signals().slice(9)).toEqual([true, false, false, false, true]);
    shared.sendSlots = shared.sendDepth / 2;
    post(false);
    expect(signals().at(-1)).toBe(true);
  });
});

describe('work requests that have ended', () => {
  it('end in order: those before the last with OK, the last with its status', () => {
    const { connection, post, shared } = open();
    const all = [0, 1, 2].map(() => new EndedCompletion());
    for (const completion of all) post(true, completion);
    connection.retire(1, Status.INVALID_ADDR);
    expect(all.map(({ calls, failure }) => [calls, failure])).toEqual([
      [1, Status.OK],
      [1, Status.INVALID_ADDR],
      [0, Status.OK],
    ]);
    expect([shared.outstanding, connection.isBusy]).toEqual([1, true]);
    connection.retire(1, Status.OK);
    expect(all[1]!.calls).toBe(1);
    connection.retire(2, Status.OK);
    expect([shared.outstanding, shared.sendSlots, connection.isBusy]).toEqual([0, 400, false]);
  });

  it('end the flushes that wait for the last of them', () => {
    const { connection, post, shared, qp } = open();
    post(true);
    const [first, second, beside] = [new EndedCompletion(), new EndedCompletion(), new EndedCompletion()];
    shared.outstanding += 3;
    for (const flush of [first, beside]) expect(connection.flush(flush)).toBe(Status.INPROGRESS);
    post(false);
    // The end of the last is not reported: a write of nothing behind it is.
    expect(connection.flush(second)).toBe(Status.INPROGRESS);
    expect(qp.posted).toHaveLength(3);
    connection.retire(0, Status.OK);
    expect([first.calls, beside.calls, second.calls]).toEqual([1, 1, 0]);
    // The failure of that write is the result of the flush.
    connection.retire(2, Status.ENDPOINT_TIMEOUT);
    expect([second.calls, second.failure, shared.outstanding]).toEqual([1, Status.ENDPOINT_TIMEOUT, 0]);
    post(false);
    shared.sendSlots = 0;
    expect([connection.flush(undefined), connection.flush(first)]).toEqual([Status.INPROGRESS, Status.NO_RESOURCE]);
    shared.sendSlots = 399;
  });

  it('end with the failure of the connection, unless it is their own', () => {
    const { connection, post, shared } = open();
    const all = [0, 1].map(() => new EndedCompletion());
    for (const completion of all) post(true, completion);
    connection.fail(Status.ENDPOINT_TIMEOUT);
    connection.retire(0, Status.CONNECTION_RESET);
    connection.retire(1, Status.INVALID_ADDR);
    expect(all.map(({ failure }) => failure)).toEqual([Status.ENDPOINT_TIMEOUT, Status.INVALID_ADDR]);
    expect(shared.outstanding).toBe(0);
  });
});

describe('a connection that fails', () => {
  it('says so once, and stops its queue pair', () => {
    const { connection, qp, failures } = open();
    connection.fail(Status.IO_ERROR);
    connection.fail(Status.CONNECTION_RESET);
    expect([failures, connection.failure]).toEqual([[Status.IO_ERROR], Status.IO_ERROR]);
    expect(qp.states.filter(({ state }) => state === QpState.ERR)).toHaveLength(1);
  });

  it('because the device rejects a request ends that one with it', () => {
    const { connection, post, qp, failures, shared } = open();
    qp.result = Errno.ENOMEM;
    const completion = new EndedCompletion();
    post(true, completion);
    expect([failures, completion.calls]).toEqual([[Status.IO_ERROR], 0]);
    connection.destroy();
    expect([completion.calls, completion.failure, shared.outstanding, shared.sendSlots]).toEqual([
      1,
      Status.IO_ERROR,
      0,
      400,
    ]);
  });

  it('posts the held writes before its queue pair stops, so that it ends', () => {
    const { connection, post, qp } = open();
    connection.sends.cork();
    post();
    post();
    expect(qp.posted).toEqual([]);
    connection.fail(Status.IO_ERROR);
    expect([qp.calls, qp.posted.length]).toEqual([1, 2]);
  });

  it('by cancellation does so only after 50 ms, if anything is in flight still', () => {
    const { connection, post, clock, failures } = open();
    const completion = new EndedCompletion();
    post(true, completion);
    connection.cancel();
    connection.cancel();
    expect([clock.pendingTimers, clock.nextDeadlineNs]).toEqual([1, 50e6]);
    clock.advance(50e6);
    expect([connection.failure, failures]).toEqual([Status.CANCELED, []]);
    const other = open();
    other.post();
    other.connection.cancel();
    other.connection.retire(0, Status.OK);
    other.clock.advance(50e6);
    expect(other.connection.failure).toBe(Status.OK);
    const third = open();
    third.connection.cancel();
    third.connection.destroy();
    expect(third.clock.pendingTimers).toBe(0);
  });

  it('or is destroyed cancels what is in flight, once', () => {
    const { connection, post, qp, shared } = open();
    const completion = new EndedCompletion();
    post(true, completion);
    const destroy = (each: IbConnection): void => each.destroy();
    destroy(connection);
    destroy(connection);
    expect([qp.closes, completion.calls, completion.failure]).toEqual([1, 1, Status.CANCELED]);
    expect([shared.sendSlots, shared.outstanding, connection.isBusy]).toEqual([400, 0, false]);
    connection.fail(Status.IO_ERROR);
    expect(connection.failure).toBe(Status.CANCELED);
  });
});

describe('corked requests', () => {
  it('are one chain, in order, over the end of the queue', () => {
    const { connection, post, qp } = open();
    for (let i = 0; i < 14; i++) post();
    connection.retire(13, Status.OK);
    qp.posted.length = 0;
    qp.calls = 0;
    connection.sends.cork();
    for (let i = 0; i < 4; i++) post();
    connection.uncork();
    expect([qp.calls, qp.posted.map(({ words }) => words[SendWr.WR_ID])]).toEqual([1, [14, 15, 16, 17]]);
    post();
    expect([qp.calls, qp.posted.at(-1)!.words[SendWr.WR_ID]]).toEqual([2, 18]);
    connection.uncork();
    expect(qp.calls).toBe(2);
    // The queue has exactly its length.
    for (let i = 0; i < 11; i++) post();
    expect(connection.sends.free).toBe(0);
  });
});
