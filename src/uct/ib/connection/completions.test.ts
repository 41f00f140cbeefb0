/** The completions of an interface of ib, read from queues that a test fills: buffers, messages, credits, failures. */

import { afterEach, describe, expect, it } from 'vitest';
import { EndedCompletion, fakeIb } from '../../../../test/fixtures/transports/fake-ib.ts';
import { Status } from '../../../ucs/type/status.ts';
import { RecvWr, Sge, Wc, WcOpcode, WcStatus, WrOpcode } from '../../../verbs/abi.ts';
import { CqReader, SlotMemory } from '../base/queues.ts';
import type { IbShared } from '../shared.ts';
import { Completions } from './completions.ts';
import { immediateOf, MessageKind } from './connection.ts';
import { ConnectionTable } from './connection-table.ts';

/** Length of the receive queue: a batch of buffers, and some more. */
const RECEIVES = 20;
const QP = 4711;

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

/** A queue of completions, by the fields of each. */
class FakeCq {
  readonly waiting: Partial<Record<keyof typeof Wc, number>>[] = [];
  notifies = 0;
  poll(block: { readonly words: Uint32Array }, count: number): number {
    const taken = this.waiting.splice(0, count);
    block.words.fill(0);
    for (const [i, fields] of taken.entries()) {
      for (const [name, value] of Object.entries(fields))
        block.words[i * Wc.WORDS + Wc[name as keyof typeof Wc]] = value;
    }
    return taken.length;
  }
  requestNotify(): void {
    this.notifies += 1;
  }
  close(): void {}
}

function open() {
  const made = fakeIb();
  const posts: number[][] = [];
  const srq = {
    postReceive(block: { readonly words: Uint32Array; readonly address: number }, offset: number): number {
      const slots: number[] = [];
      for (let at = offset / 4; ; ) {
        slots.push(block.words[at + RecvWr.WR_ID]!);
        expect(block.words[at + RecvWr.WORDS + Sge.LENGTH]).toBe(256);
        const next = block.words[at + RecvWr.NEXT]! + block.words[at + RecvWr.NEXT + 1]! * 2 ** 32;
        if (next === 0) break;
        at = (next - block.address) / 4;
      }
      posts.push(slots);
      return 0;
    },
  };
  const [sendCq, receiveCq] = [new FakeCq(), new FakeCq()];
  const device = (made.shared as unknown as IbShared).port.device;
  const rx = new SlotMemory(device, RECEIVES, 256);
  const readers = { sends: new CqReader(sendCq as never), receives: new CqReader(receiveCq as never) };
  const log = { debug: () => undefined };
  const shared = Object.assign(made.shared, { srq, rx, log, ...readers }) as unknown as IbShared;
  const table = new ConnectionTable(
    shared,
    () => undefined,
    () => undefined,
  );
  const closed: unknown[] = [];
  const completions = new Completions(table, (connection) => closed.push(connection));
  const connection = table.create({ peer: 'peer', id: new Uint8Array(8), isActive: true });
  connection.isUp = true;
  table.add(connection);
  closing.push(() => {
    table.destroyAll();
    completions.close();
    readers.sends.close();
    readers.receives.close();
    rx.close();
    made.close();
  });
  /** A message has come. */
  const message = (slot: number, immediate: number, byteLength = 8): void => {
    const fields = { WR_ID: slot, QP_NUM: QP, BYTE_LEN: byteLength, IMM_DATA: immediate };
    receiveCq.waiting.push({ ...fields, STATUS: WcStatus.SUCCESS, OPCODE: WcOpcode.RECV });
  };
  /** Posts a write with an operation. */
  const write = (): EndedCompletion => {
    const completion = new EndedCompletion();
    made.shared.outstanding += 1;
    connection.sends.entry.completion = completion;
    connection.post(connection.begin(WrOpcode.RDMA_WRITE, true));
    return completion;
  };
  return { ...made, shared, posts, sendCq, receiveCq, rx, table, completions, connection, closed, message, write };
}

describe('the buffers of messages', () => {
  it('are posted in chains of sixteen, all of them at first', () => {
    const { posts } = open();
    expect(posts.map((slots) => slots.length)).toEqual([16, 4]);
    expect(posts.flat().sort((a, b) => a - b)).toEqual(Array.from({ length: RECEIVES }, (_, i) => i));
  });

  it('are posted again after delivery, after a control message and after a failure', () => {
    const { posts, completions, message, receiveCq } = open();
    completions.handler = () => undefined;
    for (let slot = 0; slot < 6; slot++) message(slot, immediateOf(MessageKind.AM, 1, 0));
    for (let slot = 6; slot < 11; slot++) message(slot, immediateOf(MessageKind.CREDIT, 0, 1));
    for (let slot = 11; slot < 14; slot++)
      receiveCq.waiting.push({ WR_ID: slot, QP_NUM: QP, STATUS: WcStatus.WR_FLUSH_ERR });
    for (let slot = 14; slot < 16; slot++) {
      receiveCq.waiting.push({ WR_ID: slot, QP_NUM: 9, STATUS: WcStatus.SUCCESS, OPCODE: WcOpcode.RECV });
    }
    completions.receive();
    expect(completions.deliver()).toBe(6);
    expect(posts.slice(2).map((slots) => slots.sort((a, b) => a - b))).toEqual([
      Array.from({ length: 16 }, (_, i) => i),
    ]);
  });
});

describe('messages', () => {
  it('are delivered in their order, with id and length, and nothing after the interface has closed', () => {
    const { completions, message, rx } = open();
    for (const [slot, byte] of [
      [3, 30],
      [1, 10],
      [2, 20],
    ] as const) {
      rx.bytes.fill(byte, slot * 256, slot * 256 + 4);
      message(slot, immediateOf(MessageKind.AM, 31, 0), slot);
    }
    completions.receive();
    expect(completions.deliver()).toBe(0);
    const got: [number, number, string, number[]][] = [];
    completions.handler = (id, { bytes, offset, byteLength, source }) => {
      got.push([id, byteLength, source, [...bytes.subarray(offset, offset + byteLength)]]);
      if (got.length === 2) completions.stop();
    };
    completions.deliver();
    expect(got).toEqual([
      [31, 3, 'peer', [30, 30, 30]],
      [31, 1, 'peer', [10]],
    ]);
  });

  it('return credits at half of the window', () => {
    const { completions, message, connection, qp, shared } = open();
    Object.assign(shared.rc, { FC_WND_SIZE: 4 });
    completions.handler = () => undefined;
    message(0, immediateOf(MessageKind.AM, 1, 0));
    completions.receive();
    completions.deliver();
    expect([qp.posted.length, connection.delivered]).toEqual([0, 1]);
    message(1, immediateOf(MessageKind.AM, 1, 0));
    completions.receive();
    completions.deliver();
    expect([qp.posted.length, connection.delivered]).toEqual([1, 0]);
  });

  it('of control grant credits up to the window and wake, or close', () => {
    const { completions, message, connection, state, closed } = open();
    connection.credits = 0;
    message(0, immediateOf(MessageKind.CREDIT, 0, 2));
    const before = state.wakes;
    completions.receive();
    expect([connection.credits, state.wakes - before]).toEqual([2, 1]);
    message(1, immediateOf(MessageKind.CREDIT, 0, 0xffff));
    completions.receive();
    expect([connection.credits, closed]).toEqual([3, []]);
    message(2, immediateOf(MessageKind.CLOSE, 0, 0));
    completions.receive();
    expect(closed).toEqual([connection]);
  });
});

describe('ended work requests', () => {
  it('end their operations, which are counted, and fail the connection if they failed', () => {
    const { completions, sendCq, connection, write } = open();
    const [first, second, third] = [write(), write(), write()];
    sendCq.waiting.push({ WR_ID: 1, QP_NUM: QP, STATUS: WcStatus.SUCCESS });
    expect(completions.progressSends()).toBe(2);
    expect([first.calls, second.calls, third.calls]).toEqual([1, 1, 0]);
    sendCq.waiting.push({ WR_ID: 2, QP_NUM: QP, STATUS: WcStatus.REM_ACCESS_ERR });
    expect(completions.progressSends()).toBe(1);
    expect([third.failure, connection.failure]).toEqual([Status.INVALID_ADDR, Status.CONNECTION_RESET]);
    sendCq.waiting.push({ WR_ID: 3, QP_NUM: QP, STATUS: WcStatus.WR_FLUSH_ERR });
    expect(completions.progressSends()).toBe(0);
  });

  it('from before a request for events are found by it', () => {
    const { completions, sendCq, receiveCq, message } = open();
    expect(completions.requestNotify()).toBe(false);
    expect([sendCq.notifies, receiveCq.notifies]).toEqual([1, 1]);
    message(0, immediateOf(MessageKind.AM, 1, 0));
    expect(completions.requestNotify()).toBe(true);
    completions.receive();
    expect(completions.requestNotify()).toBe(false);
    completions.handler = () => undefined;
    expect(completions.requestNotify()).toBe(true);
  });
});
