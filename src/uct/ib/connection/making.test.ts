/** Making and ending connections of ib over datagrams and queue pairs that execute nothing: answers, repetitions, time limits, bounds, closing. */

import { afterEach, describe, expect, it } from 'vitest';
import { FakeQp, fakeIb } from '../../../../test/fixtures/transports/fake-ib.ts';
import { Errno, SyscallError } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { QpState, SendFlag, WrOpcode } from '../../../verbs/abi.ts';
import type { IbShared } from '../shared.ts';
import type { IbAddress } from './address.ts';
import { ConnectionTable } from './connection-table.ts';
import { IbConnector, PASSIVE_MAX } from './connector.ts';
import type { Datagrams, DatagramTarget } from './datagrams.ts';
import type { ConnectMessage } from './layout.ts';

const [OWN, PEER, OTHER] = [1, 2, 3].map((byte) => new Uint8Array(16).fill(byte)) as [
  Uint8Array,
  Uint8Array,
  Uint8Array,
];

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

function address(more: Partial<IbAddress> = {}): IbAddress {
  const place = { linkLayer: 2, mtu: 4, deviceIndex: 0, lid: 31, qpNum: 32, qkey: 33, segBytes: 256 };
  return { ...place, gid: new Uint8Array(16).fill(9), id: OWN, ...more };
}

function request(more: Partial<ConnectMessage> = {}): ConnectMessage {
  const numbers = { mtu: 3, lid: 21, qpNum: 22, psn: 23, maxReads: 6, answerQpNum: 24, answerQkey: 25 };
  const ids = { connection: new Uint8Array(8).fill(7), gid: new Uint8Array(16).fill(8), sender: PEER, receiver: OWN };
  return { type: 1, ...numbers, ...ids, ...more };
}

function open() {
  const made = fakeIb({ sendDepth: 100_000 });
  const warnings: string[] = [];
  const qps: FakeQp[] = [];
  const shared = Object.assign(made.shared, {
    warnings: { warn: (text: string) => warnings.push(text) },
  }) as unknown as IbShared;
  Object.assign(shared.port.device.pd, {
    createQp: () => {
      const qp = Object.assign(new FakeQp(), { qpNum: 100 + qps.length });
      qps.push(qp);
      return qp;
    },
  });
  const failed: [number, Status][] = [];
  const destroyed: number[] = [];
  let connector: IbConnector | undefined;
  const table = new ConnectionTable(
    shared,
    ({ qp }, status) => failed.push([qp.qpNum, status]),
    (connection) => {
      destroyed.push(connection.qp.qpNum);
      connector?.forget(connection);
    },
  );
  const sent: [ConnectMessage, DatagramTarget][] = [];
  const datagrams = { qpNum: 41, send: (message: ConnectMessage, to: DatagramTarget) => sent.push([message, to]) };
  connector = new IbConnector(table, datagrams as unknown as Datagrams, address());
  closing.push(() => {
    connector.close();
    table.destroyAll();
    made.close();
  });
  return { ...made, shared, warnings, qps, failed, destroyed, table, sent, connector };
}

describe('an interface that connects', () => {
  it('sends a request for the smaller packets until it is answered', () => {
    const { connector, sent, clock, state } = open();
    const connection = connector.connect(address({ id: PEER, mtu: 2, qpNum: 5 }));
    expect(sent[0]).toMatchObject([
      {
        type: 1,
        mtu: 2,
        lid: 31,
        qpNum: 100,
        maxReads: 7,
        answerQpNum: 41,
        answerQkey: 33,
        sender: OWN,
        receiver: PEER,
      },
      { qpNum: 5 },
    ]);
    const times: number[] = [];
    for (let ms = 1; ms <= 2900; ms++) {
      clock.advance(1e6);
      if (sent.length > times.length + 1) times.push(ms);
    }
    // Twice as long each time, and at most a second.
    expect(times).toEqual([20, 60, 140, 300, 620, 1260, 2260]);
    const answer = request({ type: 2, connection: connection.id });
    const before = state.wakes;
    for (const wrong of [{ sender: OTHER }, { receiver: OTHER }, { connection: new Uint8Array(8) }]) {
      connector.onMessage({ ...answer, ...wrong });
    }
    expect([connection.isUp, connector.pending]).toEqual([false, 1]);
    connector.onMessage(answer);
    expect([connection.isUp, connector.pending, state.wakes - before]).toEqual([true, 0, 1]);
    const count = sent.length;
    clock.advance(10e9);
    expect(sent).toHaveLength(count);
  });

  it('fails when the time is over, when it is refused, and when the device refuses the answer', () => {
    const { connector, failed, clock, qps } = open();
    const late = connector.connect(address({ id: PEER }));
    for (let ms = 0; ms < 4000; ms++) clock.advance(1e6);
    expect([late.failure, connector.pending]).toEqual([Status.ENDPOINT_TIMEOUT, 0]);
    const refused = connector.connect(address({ id: PEER }));
    connector.onMessage(request({ type: 3, connection: refused.id }));
    const bad = connector.connect(address({ id: PEER }));
    const { modify } = qps[2]!;
    Object.assign(qps[2]!, {
      modify(attributes: { state: number }) {
        if (attributes.state === QpState.RTR) throw new SyscallError('ibv_modify_qp', Errno.EINVAL, 'to state 2');
        modify.call(qps[2]!, attributes);
      },
    });
    Object.assign(bad.qp, { modify: qps[2]!.modify });
    connector.onMessage(request({ type: 2, connection: bad.id }));
    expect(failed).toEqual([
      [100, Status.ENDPOINT_TIMEOUT],
      [101, Status.REJECTED],
      [102, Status.UNREACHABLE],
    ]);
  });

  it('asks no more after the connection or the interface has ended', () => {
    const { connector, table, sent, clock } = open();
    const first = connector.connect(address({ id: PEER }));
    table.destroy(first);
    connector.connect(address({ id: PEER }));
    expect([connector.pending, table.find(100), table.find(101)?.qp.qpNum]).toEqual([1, undefined, 101]);
    connector.close();
    clock.advance(1e9);
    expect(sent).toHaveLength(2);
  });
});

describe('an interface that is connected', () => {
  it('answers a repeated request with the same message, at the queue pair of the request', () => {
    const { connector, sent, table } = open();
    for (let i = 0; i < 2; i++) connector.onMessage(request());
    expect(connector.passiveCount).toBe(1);
    expect(sent).toHaveLength(2);
    expect(sent[1]![0]).toBe(sent[0]![0]);
    expect(sent[0]).toMatchObject([
      { type: 2, mtu: 3, qpNum: 100, sender: OWN, receiver: PEER },
      { qpNum: 24, qkey: 25, lid: 21, gid: new Uint8Array(16).fill(8) },
    ]);
    table.destroy(table.find(100)!);
    expect(connector.passiveCount).toBe(0);
    connector.onMessage(request());
    expect(table.find(101)?.isUp).toBe(true);
  });

  it('promises no more reads than its device serves', () => {
    const { connector, sent, shared } = open();
    Object.assign(shared.port.device.attributes, { maxQpRdAtom: 2 });
    connector.onMessage(request());
    expect(sent[0]![0].maxReads).toBe(2);
  });

  it('destroys a connection whose parameters the device refuses', () => {
    const { connector, sent, shared, qps, warnings } = open();
    Object.assign(shared.port.device.pd, {
      createQp: () => {
        const qp = new FakeQp();
        Object.assign(qp, {
          modify({ state }: { state: number }) {
            if (state === QpState.RTR) throw new SyscallError('ibv_modify_qp', Errno.EINVAL, 'to state 2');
          },
        });
        qps.push(qp);
        return qp;
      },
    });
    connector.onMessage(request());
    expect([qps[0]!.closes, connector.passiveCount, sent.length, warnings.length]).toEqual([1, 0, 0, 1]);
  });

  it('refuses more peers than it takes, and looks which of them still live', () => {
    const { connector, sent, qps } = open();
    const id = (i: number): Uint8Array => Uint8Array.of(i & 0xff, i >> 8, 0, 0, 0, 0, 0, 1);
    for (let i = 0; i < PASSIVE_MAX; i++) connector.onMessage(request({ connection: id(i) }));
    expect([connector.passiveCount, qps.filter(({ calls }) => calls > 0).length]).toEqual([PASSIVE_MAX, 0]);
    connector.onMessage(request({ connection: id(PASSIVE_MAX) }));
    expect(connector.passiveCount).toBe(PASSIVE_MAX);
    expect(sent.at(-1)![0]).toMatchObject({ type: 3, sender: OWN, receiver: PEER, connection: id(PASSIVE_MAX) });
    expect(qps.filter(({ calls }) => calls > 0)).toHaveLength(PASSIVE_MAX);
  });
});

describe('the connections of an interface', () => {
  it('close once, behind everything that is posted, and end when it has ended', () => {
    const { connector, table, qps } = open();
    const connection = connector.connect(address({ id: PEER }));
    connector.onMessage(request({ type: 2, connection: connection.id }));
    connection.sends.cork();
    connection.post(connection.begin(WrOpcode.RDMA_WRITE, true));
    expect(qps[0]!.posted).toHaveLength(0);
    for (let i = 0; i < 2; i++) table.startClose(connection);
    expect(qps[0]!.posted.map(({ opcode }) => opcode)).toEqual([WrOpcode.RDMA_WRITE, WrOpcode.SEND_WITH_IMM]);
    expect(table.closing).toBe(1);
    table.progressClosing();
    expect(table.closing).toBe(1);
    connection.retire(1, Status.OK);
    table.progressClosing();
    expect([table.closing, connection.isDestroyed, table.find(100)]).toEqual([0, true, undefined]);
  });

  it('that have nothing posted do not wait to close', () => {
    const { connector, table } = open();
    const connection = connector.connect(address({ id: PEER }));
    table.startClose(connection);
    expect(table.closing).toBe(0);
  });

  it('leave no trace when they are destroyed while they close', () => {
    const { connector, table, destroyed } = open();
    const connection = connector.connect(address({ id: PEER }));
    connector.onMessage(request({ type: 2, connection: connection.id }));
    table.startClose(connection);
    expect(table.closing).toBe(1);
    table.destroy(connection);
    expect([table.closing, destroyed]).toEqual([0, [100]]);
  });

  it('return credits once, and later if there is no slot', () => {
    const { connector, table, shared, qps } = open();
    const connection = connector.connect(address({ id: PEER }));
    connector.onMessage(request({ type: 2, connection: connection.id }));
    connection.delivered = 3;
    const { sendSlots } = shared;
    shared.sendSlots = 0;
    table.returnCredits(connection);
    expect([qps[0]!.posted.length, connection.delivered]).toEqual([0, 3]);
    shared.sendSlots = sendSlots;
    for (let i = 0; i < 2; i++) table.progressCredits();
    expect([qps[0]!.posted.length, connection.delivered]).toEqual([1, 0]);
    expect(qps[0]!.posted[0]!.flags & SendFlag.SIGNALED).toBeDefined();
    connection.delivered = 2;
    connection.isClosing = true;
    table.returnCredits(connection);
    expect(qps[0]!.posted).toHaveLength(1);
  });

  it('wake those who sleep when one fails, and are reported', () => {
    const { connector, table, state, failed } = open();
    const connection = connector.connect(address({ id: PEER }));
    const before = state.wakes;
    connection.fail(Status.CONNECTION_RESET);
    expect([state.wakes - before, table.failed, failed]).toEqual([1, [connection], [[100, Status.CONNECTION_RESET]]]);
  });
});
