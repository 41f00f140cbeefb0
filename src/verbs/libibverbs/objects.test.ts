/** The objects of libibverbs: what they pass to its functions, and that each is acknowledged and destroyed once. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { allocateScratch, EventFd, type ScratchBlock, viewAt } from '../../sys/index.ts';
import { QpState, QpType } from '../abi.ts';
import type { VerbsBlock } from '../port.ts';
import {
  AsyncEventLayout,
  ChannelLayout,
  ContextLayout,
  DeviceAttrLayout,
  GidEntryLayout,
  MrLayout,
  PortAttrLayout,
} from './layouts.ts';
import { Libibverbs } from './libibverbs.ts';
import { LibibverbsContext } from './libibverbs-context.ts';
import type { Device, LibibverbsFunctions } from './library.ts';
import { Pd } from './protection-domain.ts';
import { Channel, Qp, Srq } from './queues.ts';

const DEVICE = 0x7000;

expectNoLeaks();

let scratch: ScratchBlock;
/** Memory of structs of the library. */
let struct: ScratchBlock;
let event: EventFd;
/** Calls that the fakes note, in their order. */
let calls: (string | number)[][];

beforeEach(() => {
  scratch = allocateScratch(256);
  struct = allocateScratch(ContextLayout.BYTES);
  struct.u8.fill(0);
  event = new EventFd();
  calls = [];
});
afterEach(() => {
  scratch.free();
  struct.free();
  event.close();
});

/** A function that notes its arguments. */
function noting(name: string, result = 0): (...values: number[]) => number {
  return (...values) => {
    calls.push([name, ...values]);
    return result;
  };
}

function view(address: number, byteLength: number): DataView {
  return new DataView(viewAt(address, byteLength));
}

/** The state that the objects of an open device share. */
function deviceWith(functions: Partial<LibibverbsFunctions>, others: Partial<Device> = {}): Device {
  const post = (): number => 0;
  return {
    functions: functions as LibibverbsFunctions,
    context: 1,
    scratch,
    postSend: post,
    postReceive: post,
    postSrqReceive: post,
    pollCq: post,
    requestNotify: post,
    ...others,
  };
}

function blockAt(address: number): VerbsBlock {
  return { address, u8: new Uint8Array(0), words: new Uint32Array(0) };
}

describe('a completion channel', () => {
  it('acknowledges each event to the queue that raised it', () => {
    struct.view.setInt32(ChannelLayout.FD, event.fd, true);
    const raised = [0x11n, 0x22n];
    const getCqEvent = (_channel: number, cq: number): number => {
      const next = raised.shift();
      if (next === undefined) return -1;
      view(cq, 8).setBigUint64(0, next, true);
      return 0;
    };
    const functions = { getCqEvent, ackCqEvents: noting('ack'), destroyCompChannel: noting('destroy') };
    const channel = new Channel(deviceWith(functions), struct.address);
    expect(channel.fd).toBe(event.fd);
    channel.consume();
    channel.close();
    channel.close();
    expect(calls).toEqual([
      ['ack', 0x11, 1],
      ['ack', 0x22, 1],
      ['destroy', struct.address],
    ]);
  });
});

describe('work requests', () => {
  it('are posted at their addresses, also after the program has changed to another block', () => {
    const posts = { postSend: noting('send'), postReceive: noting('receive'), postSrqReceive: noting('shared') };
    const device = deviceWith({ destroyQp: noting('destroy'), destroySrq: noting('destroy') }, posts);
    const queue = new Qp(device, struct.address, QpType.RC, 0);
    const shared = new Srq(device, 0x50);
    const blocks = [blockAt(0x1000), blockAt(0x2000)];
    for (const block of [...blocks, ...blocks]) {
      queue.postSend(block, 128);
      queue.postReceive(block, 64);
      shared.postReceive(block, 32);
    }
    const expected = (base: number): (string | number)[][] => [
      ['send', struct.address, base + 128, scratch.address],
      ['receive', struct.address, base + 64, scratch.address],
      ['shared', 0x50, base + 32, scratch.address],
    ];
    expect(calls).toEqual([0x1000, 0x2000, 0x1000, 0x2000].flatMap(expected));
  });
});

describe('a queue pair', () => {
  it('has the state of its last transition that succeeded', () => {
    const results = [0, -22, 12];
    const functions = { modifyQp: () => results.shift()!, destroyQp: noting('destroy') };
    const queue = new Qp(deviceWith(functions), struct.address, QpType.RC, 0);
    expect(queue.state).toBe(QpState.RESET);
    queue.modify({ state: QpState.INIT });
    expect(queue.state).toBe(QpState.INIT);
    // Some versions return a negative errno.
    for (const [errno, errnoName] of [
      [22, 'EINVAL'],
      [12, 'ENOMEM'],
    ]) {
      expect(() => queue.modify({ state: QpState.RTR })).toThrow(expect.objectContaining({ errno, errnoName }));
    }
    expect(queue.state).toBe(QpState.INIT);
  });
});

describe('a memory region', () => {
  it('is registered with its address, length, address for peers and access, in this order', () => {
    struct.view.setUint32(MrLayout.LKEY, 5, true);
    struct.view.setUint32(MrLayout.RKEY, 6, true);
    const functions = {
      regMrIova2: noting('register', struct.address),
      regDmabufMr: noting('dma-buf', struct.address),
      deregMr: noting('deregister'),
      deallocPd: noting('deallocate'),
    };
    const pd = new Pd(deviceWith(functions), 0x77);
    const region = pd.regMr(0x1000, 4096, 0x9000, 7);
    expect([region.lkey, region.rkey]).toEqual([5, 6]);
    region.close();
    pd.regDmabufMr(3, 64, 4096, 0x9000, 7).close();
    pd.close();
    pd.close();
    expect(calls).toEqual([
      ['register', 0x77, 0x1000, 4096, 0x9000, 7],
      ['deregister', struct.address],
      ['dma-buf', 0x77, 64, 4096, 0x9000, 3, 7],
      ['deregister', struct.address],
      ['deallocate', 0x77],
    ]);
  });
});

describe('the list of devices', () => {
  it('is freed after each use, also after an error', () => {
    struct.view.setBigUint64(0, BigInt(DEVICE), true);
    const getDeviceList = (count: number): number => {
      view(count, 4).setInt32(0, 1, true);
      return struct.address;
    };
    const functions = { getDeviceList, freeDeviceList: noting('free'), getDeviceName: () => 'mlx5_0' };
    const verbs = new Libibverbs(functions as unknown as LibibverbsFunctions);
    expect(verbs.devices()).toEqual([{ name: 'mlx5_0', pciPath: undefined, numaNode: -1 }]);
    expect(calls).toEqual([['free', struct.address]]);
    expect(() => verbs.open('mlx5_1')).toThrow(expect.objectContaining({ errnoName: 'ENODEV' }));
    expect(calls).toEqual([
      ['free', struct.address],
      ['free', struct.address],
    ]);
  });
});

describe('an open device', () => {
  function openContext(functions: Partial<LibibverbsFunctions>): LibibverbsContext {
    const { POLL_CQ, REQ_NOTIFY_CQ, POST_SRQ_RECV, POST_SEND, POST_RECV, ASYNC_FD } = ContextLayout;
    // None of them is called.
    for (const offset of [POLL_CQ, REQ_NOTIFY_CQ, POST_SRQ_RECV, POST_SEND, POST_RECV]) {
      struct.view.setBigUint64(offset, BigInt(struct.address), true);
    }
    struct.view.setInt32(ASYNC_FD, event.fd, true);
    const all = { openDevice: () => struct.address, closeDevice: noting('close'), ...functions };
    return new LibibverbsContext(all as LibibverbsFunctions, 'mlx5_0', DEVICE);
  }

  it('is closed once', () => {
    const context = openContext({});
    expect(context.asyncFd).toBe(event.fd);
    context.close();
    context.close();
    expect(calls).toEqual([['close', struct.address]]);
  });

  it('acknowledges its events', () => {
    let isRaised = true;
    const getAsyncEvent = (_context: number, address: number): number => {
      if (!isRaised) return -1;
      isRaised = false;
      view(address, AsyncEventLayout.BYTES).setInt32(AsyncEventLayout.EVENT_TYPE, 10, true);
      view(address, AsyncEventLayout.BYTES).setInt32(AsyncEventLayout.ELEMENT, 2, true);
      calls.push(['event', address]);
      return 0;
    };
    const context = openContext({ getAsyncEvent, ackAsyncEvent: noting('acknowledge') });
    expect([context.nextAsyncEvent(), context.nextAsyncEvent()]).toEqual([{ type: 10, element: 2 }, undefined]);
    expect(calls).toEqual([
      ['event', calls[0]![1]],
      ['acknowledge', calls[0]![1]],
    ]);
    context.close();
  });

  it('reads partition keys in network byte order', () => {
    const queryPort = (_context: number, _port: number, address: number): number => {
      view(address, PortAttrLayout.BYTES).setUint16(PortAttrLayout.PKEY_TBL_LEN, 2, true);
      return 0;
    };
    const queryPkey = (_context: number, _port: number, index: number, address: number): number => {
      view(address, 2).setUint16(0, index === 0 ? 0xffff : 0x8001, false);
      return 0;
    };
    const context = openContext({ queryPort, queryPkey });
    expect(context.pkeys(1)).toEqual([0xffff, 0x8001]);
    context.close();
  });

  it('has the GIDs of one port', () => {
    const queryDevice = (_context: number, address: number): number => {
      view(address, DeviceAttrLayout.BYTES).setUint8(DeviceAttrLayout.PHYS_PORT_CNT, 2);
      return 0;
    };
    const queryPort = (_context: number, _port: number, address: number): number => {
      view(address, PortAttrLayout.BYTES).setInt32(PortAttrLayout.GID_TBL_LEN, 2, true);
      return 0;
    };
    const entries = [
      { port: 1, index: 0, type: 1 },
      { port: 2, index: 0, type: 2 },
      { port: 2, index: 1, type: 0 },
    ];
    const queryGidTable = (_context: number, address: number, entriesMax: number): number => {
      calls.push(['table', entriesMax]);
      const table = view(address, entries.length * GidEntryLayout.BYTES);
      for (const [at, { port, index, type }] of entries.entries()) {
        const offset = at * GidEntryLayout.BYTES;
        table.setUint8(offset + GidEntryLayout.GID, 0xa0 + at);
        table.setUint32(offset + GidEntryLayout.GID_INDEX, index, true);
        table.setUint32(offset + GidEntryLayout.PORT_NUM, port, true);
        table.setUint32(offset + GidEntryLayout.GID_TYPE, type, true);
      }
      return entries.length;
    };
    const context = openContext({ queryDevice, queryPort, queryGidTable });
    const gids = (port: number): unknown => context.gids(port).map(({ index, gid, type }) => [index, gid[0], type]);
    expect(gids(1)).toEqual([[0, 0xa0, 'roce_v1']]);
    expect(gids(2)).toEqual([
      [0, 0xa1, 'roce_v2'],
      [1, 0xa2, 'ib'],
    ]);
    expect(calls).toEqual([
      ['table', 4],
      ['table', 4],
    ]);
    context.close();
  });
});
