/** The datagrams that make connections, over a queue pair that executes nothing: slots, buffers, address handles, lengths, events. */

import { afterEach, describe, expect, it } from 'vitest';
import { EventFd, viewAt } from '../../../sys/index.ts';
import { LinkLayer, RecvWr, SendWr, Wc, WcStatus } from '../../../verbs/abi.ts';
import type { IbPort } from '../base/device.ts';
import { DatagramEvents, Datagrams, type DatagramTarget, pathTo } from './datagrams.ts';
import { CONNECT_BYTES, type ConnectMessage, packConnect } from './layout.ts';

const GRH = 40;
const SENDS = 32;
const CONFIG = { SL: 6, TRAFFIC_CLASS: 7, HOP_LIMIT: 8 } as never;

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

const MESSAGE: ConnectMessage = {
  ...{ type: 1, mtu: 3, lid: 21, qpNum: 22, psn: 23, maxReads: 6, answerQpNum: 24, answerQkey: 25 },
  ...{ connection: new Uint8Array(8), gid: new Uint8Array(16) },
  ...{ sender: new Uint8Array(16), receiver: new Uint8Array(16) },
};

function target(i: number): DatagramTarget {
  return { gid: Uint8Array.from({ length: 16 }, () => i & 0xff), lid: i, qpNum: 50, qkey: 60 };
}

function open() {
  const sent: { id: number; handle: number; qpNum: number; qkey: number }[] = [];
  const buffers: { id: number; address: number }[] = [];
  const waiting: Partial<Record<keyof typeof Wc, number>>[] = [];
  const handles: { path: unknown; closes: number }[] = [];
  const state = { result: 0, notifies: 0, consumed: 0, order: [] as string[] };
  interface Block {
    readonly words: Uint32Array;
  }
  const qp = {
    qpNum: 77,
    modify: () => undefined,
    postSend({ words }: Block): number {
      if (state.result !== 0) return state.result;
      const [handle, qpNum, qkey] = [SendWr.UD_AH, SendWr.UD_REMOTE_QPN, SendWr.UD_REMOTE_QKEY].map((at) => words[at]!);
      sent.push({ id: words[SendWr.WR_ID]!, handle: handle!, qpNum: qpNum!, qkey: qkey! });
      return 0;
    },
    postReceive({ words }: Block): number {
      buffers.push({ id: words[RecvWr.WR_ID]!, address: words[RecvWr.WORDS]! + words[RecvWr.WORDS + 1]! * 2 ** 32 });
      return 0;
    },
    close: () => undefined,
  };
  const cq = {
    poll({ words }: Block, count: number): number {
      state.order.push('poll');
      const taken = waiting.splice(0, count);
      for (const [i, fields] of taken.entries()) {
        for (const [name, value] of Object.entries(fields)) words[i * Wc.WORDS + Wc[name as keyof typeof Wc]] = value;
      }
      return taken.length;
    },
    requestNotify: () => void state.order.push('notify'),
    close: () => undefined,
  };
  const fd = new EventFd();
  const channel = { fd: fd.fd, consume: () => void fd.tryRead(), close: () => undefined };
  const device = {
    context: { createCompletionChannel: () => channel, createCq: () => cq },
    pd: {
      createQp: () => qp,
      regMr: () => ({ lkey: 5, close: () => undefined }),
      createAh(path: unknown) {
        const handle = { path, closes: 0, handle: 1000 + handles.length };
        handles.push(handle);
        return Object.assign(handle, {
          close() {
            handle.closes += 1;
          },
        });
      },
    },
  };
  const attributes = { linkLayer: LinkLayer.ETHERNET };
  const port = { device, number: 2, pkeyIndex: 3, attributes, gid: { index: 5 } } as unknown as IbPort;
  const datagrams = new Datagrams(port, CONFIG);
  closing.push(() => {
    datagrams.close();
    fd.close();
  });
  return { datagrams, port, sent, buffers, waiting, handles, state, fd };
}

describe('datagrams that are sent', () => {
  it('have the queue pair and the key of their target, and a slot until they are complete', () => {
    const { datagrams, sent, waiting } = open();
    for (let i = 0; i < SENDS; i++) expect(datagrams.send(MESSAGE, target(1))).toBe(true);
    expect(datagrams.send(MESSAGE, target(1))).toBe(false);
    expect(sent[0]).toMatchObject({ handle: 1000, qpNum: 50, qkey: 60 });
    expect(new Set(sent.map(({ id }) => id)).size).toBe(SENDS);
    waiting.push({ WR_ID: sent[3]!.id, STATUS: WcStatus.SUCCESS });
    datagrams.progress(() => undefined);
    expect(datagrams.send(MESSAGE, target(1))).toBe(true);
    expect(sent.at(-1)!.id).toBe(sent[3]!.id);
  });

  it('and are rejected keep no slot', () => {
    const { datagrams, state } = open();
    state.result = 12;
    for (let i = 0; i < 2 * SENDS; i++) expect(datagrams.send(MESSAGE, target(1))).toBe(false);
    state.result = 0;
    expect(datagrams.send(MESSAGE, target(1))).toBe(true);
  });

  it('keep the handles of at most 256 targets, the last ones, and close them', () => {
    const { datagrams, handles, sent, waiting } = open();
    for (let i = 0; i < 258; i++) {
      datagrams.send(MESSAGE, target(i));
      waiting.push({ WR_ID: sent.at(-1)!.id, STATUS: WcStatus.SUCCESS });
      datagrams.progress(() => undefined);
    }
    expect(handles.map(({ closes }) => closes)).toEqual([1, 1, ...new Array(256).fill(0)]);
    datagrams.close();
    closing.shift();
    expect(handles.every(({ closes }) => closes === 1)).toBe(true);
  });

  it('take a path with a GID on Ethernet, and without one on InfiniBand', () => {
    const { port } = open();
    const to = target(9);
    const same = { dlid: 9, sgidIndex: 5, hopLimit: 8, trafficClass: 7, serviceLevel: 6, port: 2 };
    expect(pathTo(port, CONFIG, to)).toEqual({ ...same, gid: to.gid });
    Object.assign(port.attributes, { linkLayer: LinkLayer.INFINIBAND });
    expect(pathTo(port, CONFIG, to)).toEqual({ ...same, gid: undefined });
  });
});

describe('datagrams that come', () => {
  it('are read with the length that came, and their buffers posted again', () => {
    const { datagrams, buffers, waiting } = open();
    expect(buffers).toHaveLength(64);
    const got: ConnectMessage[] = [];
    const come = (bytes: number, status: number = WcStatus.SUCCESS): void => {
      waiting.push({ WR_ID: 0, STATUS: status, BYTE_LEN: GRH + bytes });
      datagrams.progress((message) => got.push(message));
    };
    const { address } = buffers.find(({ id }) => id === 0)!;
    packConnect(MESSAGE, new Uint8Array(viewAt(address, GRH + CONNECT_BYTES)), GRH);
    come(CONNECT_BYTES);
    come(CONNECT_BYTES - 1);
    expect(got).toEqual([MESSAGE]);
    expect(buffers.slice(64).map(({ id }) => id)).toEqual([0, 0]);
    come(CONNECT_BYTES, WcStatus.WR_FLUSH_ERR);
    expect(buffers).toHaveLength(66);
  });

  it('before the request for events are read by it, and later ones are reported', async () => {
    const { datagrams, state, fd } = open();
    const events = new DatagramEvents(datagrams, () => undefined);
    closing.unshift(() => events.close());
    events.arm();
    expect(state.order).toEqual(['notify', 'poll']);
    for (let i = 2; i <= 3; i++) {
      fd.signal();
      while (state.order.length < 2 * i) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(state.order).toEqual(['notify', 'poll', 'notify', 'poll', 'notify', 'poll']);
  });
});
