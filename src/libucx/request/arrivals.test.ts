/** Active messages that arrive, over a fake libucp which calls the callback: what is copied, what is kept, and what is given back. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { MessageHandler, ReceivedMessage } from '../../api/awaited/messages.ts';
import { addressOf, allocateScratch, functionAt, viewAt } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_AM_HANDLER_PARAM, UCP_AM_RECV_ATTR, UCP_AM_RECV_PARAM } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { Arrivals, CLOSE_AM_ID, checkProgramId, NOTIFICATION_AM_ID, STAGING_AM_ID } from './arrivals.ts';

const EP = 0x1_0000_0010;
const ID = 7;

const released: number[] = [];
const ids: number[] = [];
const countMessage = vi.fn();
const onNotice = vi.fn();
const sender = {};
let callback: number;
let arrivals: Arrivals;

beforeEach(() => {
  released.length = 0;
  ids.length = 0;
  countMessage.mockClear();
  onNotice.mockClear();
  let view: DataView;
  const functions = {
    ucp_worker_set_am_recv_handler: (_worker: number, param: number) => {
      if (ids.length === 0) {
        view = new DataView(viewAt(param, UCP_AM_HANDLER_PARAM.size));
        callback = Number(view.getBigUint64(UCP_AM_HANDLER_PARAM.at.cb, true));
      }
      ids.push(view.getUint16(UCP_AM_HANDLER_PARAM.at.id, true));
      return Status.OK;
    },
    ucp_am_data_release: (_worker: number, data: number) => void released.push(data),
  } as unknown as LibucpFunctions;
  const senderOf = (ep: number): object => (ep === EP ? sender : expect.fail(`endpoint ${ep}`));
  arrivals = new Arrivals(functions, 1, { countMessage } as never, { owner: {} as never, senderOf, onNotice });
  arrivals.open();
});
afterEach(() => arrivals.close());

/** The call of libucp for a message. @param held the descriptor of a long one */
function arrive(id: number, header: Uint8Array, data: Uint8Array, { held = 0, ep = EP } = {}): Status {
  using param = allocateScratch(UCP_AM_RECV_PARAM.size);
  const { FIELD_REPLY_EP, FLAG_RNDV } = UCP_AM_RECV_ATTR;
  const attributes = (ep === 0 ? 0 : FIELD_REPLY_EP) | (held === 0 ? 0 : FLAG_RNDV);
  param.view.setBigUint64(UCP_AM_RECV_PARAM.at.recv_attr, BigInt(attributes), true);
  param.view.setBigUint64(UCP_AM_RECV_PARAM.at.reply_ep, BigInt(ep), true);
  const call = functionAt(
    callback,
    'int8_t',
    Array.from({ length: 6 }, () => 'uint64_t'),
  );
  const [at, from] = [header, data].map((bytes) => (bytes.byteLength === 0 ? 0 : addressOf(bytes)));
  const dataAt = held === 0 ? from : held;
  return call(id, at, header.byteLength, dataAt, data.byteLength, param.address) as Status;
}

const bytes = (length: number, first: number): Uint8Array => Uint8Array.from({ length }, (_, at) => first + at);
const NONE = new Uint8Array(0);

/** Handles messages of an id: the copies of header and data. */
function keep(id = ID): unknown[] {
  const kept: unknown[] = [];
  arrivals.setHandler(id, (message) => {
    kept.push([(message as ReceivedMessage).sender, message.header.slice(), (message as ReceivedMessage).data.slice()]);
  });
  return kept;
}

describe('a short message', () => {
  it('is copied inside the call of C, and handled after it, in order', () => {
    const kept = keep();
    const [header, data] = [bytes(3, 1), bytes(300, 7)];
    expect(arrive(ID, header, data)).toBe(Status.OK);
    expect(arrive(ID, bytes(1, 9), NONE, { ep: 0 })).toBe(Status.OK);
    const expected = [
      [sender, header.slice(), data.slice()],
      [undefined, bytes(1, 9), NONE],
    ];
    // The memory of libucp is another message's by now.
    header.fill(0);
    data.fill(0);
    expect([kept, arrivals.hasWaiting]).toEqual([[], true]);
    expect([arrivals.dispatch(), kept, arrivals.hasWaiting]).toEqual([2, expected, false]);
    expect(countMessage).toHaveBeenCalledTimes(2);
  });

  it('uses the memory of an earlier one, not that of one that waits', () => {
    const kept = keep();
    for (const first of [10, 20, 30]) {
      arrive(ID, bytes(2, first), bytes(4, first + 2));
      arrive(ID, bytes(2, first + 100), bytes(4, first + 102));
      arrivals.dispatch();
    }
    expect(kept).toEqual([10, 110, 20, 120, 30, 130].map((first) => [sender, bytes(2, first), bytes(4, first + 2)]));
  });

  it('has nothing of an earlier one', () => {
    const seen: unknown[] = [];
    arrivals.setHandler(ID, (message) => {
      const { sender: from, isReceived, isTaken } = message as ReceivedMessage;
      seen.push([from, isReceived, isTaken]);
      Object.assign(message, { isReceived: true, isTaken: true });
    });
    for (const ep of [EP, 0]) {
      arrive(ID, NONE, NONE, { ep });
      arrivals.dispatch();
    }
    expect(seen).toEqual([
      [sender, false, false],
      [undefined, false, false],
    ]);
  });

  it('of any length has memory for header and data', () => {
    const kept = keep();
    arrive(ID, bytes(2, 1), bytes(600, 2));
    arrivals.dispatch();
    expect(kept).toEqual([[sender, bytes(2, 1), bytes(600, 2)]]);
  });

  it('of an id without a handler is dropped, and not counted', () => {
    arrive(ID, NONE, NONE);
    expect([arrivals.dispatch(), countMessage.mock.calls.length]).toEqual([1, 0]);
  });

  it('is over when its handler has returned', () => {
    let view: ReceivedMessage | undefined;
    arrivals.setHandler(ID, (message) => {
      view = message as ReceivedMessage;
    });
    arrive(ID, bytes(2, 1), NONE);
    arrivals.dispatch();
    expect(() => view!.header).toThrow(/before its handler returns/);
  });

  it('whose handler throws is passed on; the others are handled in the next progress', () => {
    const kept = keep(ID + 1);
    arrivals.setHandler(ID, () => {
      throw new Error('thrown');
    });
    arrive(ID, NONE, NONE);
    arrive(ID + 1, bytes(1, 1), NONE);
    expect(() => arrivals.dispatch()).toThrow('thrown');
    expect([kept.length, arrivals.dispatch(), kept.length]).toEqual([0, 1, 1]);
  });
});

describe('the data of a long message', () => {
  const LONG = 0x9000;
  const long = (): Status => arrive(ID, bytes(2, 1), new Uint8Array(5), { held: LONG });

  it('stays with libucp until its handler returns', () => {
    const seen: unknown[] = [];
    arrivals.setHandler(ID, (message) => {
      seen.push(message.isRendezvous, message.byteLength, message.header.slice(), released.slice());
    });
    expect(long()).toBe(Status.INPROGRESS);
    arrivals.dispatch();
    expect([seen, released]).toEqual([[true, 5, bytes(2, 1), []], [LONG]]);
    arrivals.drop();
    expect(released).toEqual([LONG]);
  });

  it.each([
    ['throws', { isTaken: false, isReceived: false }, 1],
    ['keeps it', { isTaken: true, isReceived: false }, 0],
    ['receives it', { isTaken: false, isReceived: true }, 0],
  ])('is released by a handler that %s (%j): %i', (name, fields, releases) => {
    arrivals.setHandler(ID, (message) => {
      Object.assign(message, fields);
      if (name === 'throws') throw new Error(name);
    });
    long();
    if (name === 'throws') expect(() => arrivals.dispatch()).toThrow(name);
    else arrivals.dispatch();
    expect(released.length).toBe(releases);
  });

  it('belongs to its receive once it is taken: it is not released', () => {
    const handler: MessageHandler = (message) => {
      (message as ReceivedMessage).isReceived = true;
    };
    arrivals.setHandler(ID, handler);
    long();
    arrivals.dispatch();
    expect(arrivals.take({ address: LONG })).toBe(LONG);
    arrivals.release({ address: LONG });
    arrivals.drop();
    expect(released).toEqual([]);
  });

  it('is dropped, once, when the worker closes before it is received', () => {
    const handler = vi.fn();
    arrivals.setHandler(ID, handler);
    long();
    arrivals.drop();
    arrivals.drop();
    expect([released, arrivals.dispatch(), handler.mock.calls]).toEqual([[LONG], 0, []]);
  });
});

describe('the messages of the engine itself', () => {
  it('are a notice of the peer, or say that it has closed', () => {
    arrive(CLOSE_AM_ID, NONE, NONE);
    arrive(CLOSE_AM_ID, bytes(1, 3), NONE);
    expect(onNotice.mock.calls).toEqual([
      [EP, undefined],
      [EP, 3],
    ]);
    expect([arrivals.hasWaiting, arrivals.dispatch()]).toEqual([false, 0]);
  });

  it('are dropped without a sender: those of another program', () => {
    for (const id of [CLOSE_AM_ID, STAGING_AM_ID, NOTIFICATION_AM_ID]) {
      expect(arrive(id, bytes(1, 1), NONE, { ep: 0 })).toBe(Status.OK);
    }
    expect([onNotice.mock.calls, arrivals.hasWaiting]).toEqual([[], false]);
  });

  it('are not counted', () => {
    arrivals.serve(STAGING_AM_ID, () => {});
    arrive(STAGING_AM_ID, NONE, NONE);
    expect([arrivals.dispatch(), countMessage.mock.calls]).toEqual([1, []]);
  });

  it('have ids that a program cannot use', () => {
    for (const id of [CLOSE_AM_ID, STAGING_AM_ID, NOTIFICATION_AM_ID, -1, 65_536, 0.5]) {
      expect(() => checkProgramId(id)).toThrow(/must be an integer from 0 to 65535/);
    }
    expect(() => checkProgramId(65_535)).not.toThrow();
  });
});

it('every id has the callback, the highest first', () => {
  expect([ids.length, ids[0], ids.at(-1)]).toEqual([65_536, 65_535, 0]);
});
