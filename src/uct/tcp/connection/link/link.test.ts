/** What a connection owes its peer and its endpoints: acknowledgements, flushes, the reason of its end, each once and in the call that is named. */

import { describe, expect, it, vi } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import {
  amFrame,
  getFrame,
  putFrame,
  putRunFrame,
  signalFrame,
} from '../../../../../test/fixtures/transports/tcp-frames.ts';
import {
  FILL_BYTES,
  NotedCompletion,
  type TcpLine,
  TcpLines,
} from '../../../../../test/fixtures/transports/tcp-line.ts';
import { Errno, tcpShutdown } from '../../../../sys/index.ts';
import { Status } from '../../../../ucs/type/status.ts';
import type { RemoteKey } from '../../../api/memory.ts';
import { TcpKey } from '../../key.ts';
import { FrameType, HEADER_BYTES, PUT_HEADER_BYTES } from '../../layout.ts';

expectNoLeaks();
const lines = new TcpLines();
const NO_WORDS = new Int32Array(0);
const EIGHT = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);

/** A key of memory of the peer. */
const FOREIGN_KEY: RemoteKey = new TcpKey(2 ** 20, Int32Array.of(1, 2, 3, 4, 5, 6), undefined);

function byeOf(): Uint8Array {
  return signalFrame(FrameType.BYE, 0);
}

function acknowledged({ words }: { readonly words: readonly number[] }): Uint8Array {
  return putFrame(words, 0, EIGHT);
}

/** Reads until the connection is not blocked any more. */
function drain(line: TcpLine): void {
  for (let round = 0; round < 1000 && line.link.wantsWrite; round++) {
    line.receive();
    line.link.progress(1);
  }
  expect(line.link.wantsWrite).toBe(false);
}

describe('puts of the peer', () => {
  it('are acknowledged by the next call of progress', () => {
    const line = lines.up();
    const { link } = line;
    const target = line.keyed(64);
    line.write(acknowledged(target));
    expect(link.progress(1)).toBe(1);
    expect([line.frames(), link.hasMore, line.reports.blocked.has(link)]).toEqual([[], true, true]);
    expect([...target.memory.bytes.subarray(0, 8)]).toEqual([...EIGHT]);
    link.progress(1);
    expect([line.frames(), link.hasMore]).toEqual([[[FrameType.ACK, 1]], false]);
  });

  it('are acknowledged before a sleep, which has no progress', () => {
    const line = lines.up();
    line.write(acknowledged(line.keyed(64)), acknowledged(line.keyed(64)));
    line.link.progress(1);
    line.link.acknowledge();
    line.link.acknowledge();
    expect(line.frames()).toEqual([[FrameType.ACK, 2]]);
  });

  it('of one run are acknowledged together, however they arrive', () => {
    const line = lines.up();
    const { words } = line.keyed(64);
    const run = putRunFrame([putFrame(words, 0, EIGHT), putFrame(words, 8, EIGHT), putFrame(words, 16, EIGHT)]);
    const first = HEADER_BYTES + 3 * PUT_HEADER_BYTES + 8;
    line.write(run.subarray(0, first));
    for (let i = 0; i < 3; i++) line.link.progress(1);
    expect(line.frames()).toEqual([]);
    line.write(run.subarray(first));
    for (let i = 0; i < 2; i++) line.link.progress(1);
    expect(line.frames()).toEqual([[FrameType.ACK, 3]]);
  });

  it('with a part of their bytes are progress', () => {
    const line = lines.up();
    const { words, memory } = line.keyed(64);
    const put = putFrame(words, 0, new Uint8Array(40).fill(9));
    line.write(put.subarray(0, PUT_HEADER_BYTES + 16));
    expect(line.link.progress(1)).toBeGreaterThan(0);
    line.write(put.subarray(PUT_HEADER_BYTES + 16));
    line.link.progress(1);
    expect([...memory.bytes]).toEqual([...Array(40).fill(9), ...Array(24).fill(0)]);
  });

  it('and gets are answered although a handler throws', () => {
    const line = lines.up();
    const { words } = line.keyed(64);
    line.shared.handler = () => {
      throw new Error('of the program');
    };
    line.write(putFrame(words, 0, EIGHT), amFrame(1, EIGHT));
    expect(() => line.link.progress(1)).toThrow('of the program');
    expect([line.link.hasMore, line.reports.blocked.has(line.link)]).toEqual([true, true]);
    line.link.acknowledge();
    expect(line.frames()).toEqual([[FrameType.ACK, 1]]);
  });

  it('cannot be acknowledged to a disconnected peer, which the interface detects', () => {
    const line = lines.up();
    const { link, reports } = line;
    line.write(acknowledged(line.keyed(64)));
    link.progress(1);
    reports.blocked.clear();
    link.transmitter.attach(-1, undefined);
    link.acknowledge();
    expect([link.isBroken, link.hasMore, reports.blocked.has(link)]).toEqual([true, true, true]);
  });
});

describe('a flush', () => {
  it('ends in the call that receives the last answer', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    const flush = new NotedCompletion();
    for (let i = 0; i < 2; i++) endpoint.putShort(EIGHT, 0, 8, 0, FOREIGN_KEY);
    expect(endpoint.flush(flush)).toBe(Status.INPROGRESS);
    line.write(signalFrame(FrameType.ACK, 1));
    line.link.progress(1);
    expect([flush.statuses, line.shared.outstanding.count]).toEqual([[], 1]);
    line.write(signalFrame(FrameType.ACK, 1));
    line.link.progress(1);
    expect([flush.statuses, line.shared.outstanding.count]).toEqual([[Status.OK], 0]);
  });

  it('reports a put that the peer has refused, once', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.putShort(EIGHT, 0, 8, 0, FOREIGN_KEY);
    line.write(signalFrame(FrameType.NACK, Status.INVALID_ADDR));
    line.link.progress(1);
    expect([endpoint.flush(undefined), endpoint.flush(undefined)]).toEqual([Status.INVALID_ADDR, Status.OK]);
  });

  it('of a connection that has ended reports the refused put before the end', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.putShort(EIGHT, 0, 8, 0, FOREIGN_KEY);
    line.write(signalFrame(FrameType.NACK, Status.INVALID_ADDR));
    line.link.progress(1);
    line.link.fail(Status.ENDPOINT_TIMEOUT, 'a test');
    expect([endpoint.flush(undefined), endpoint.flush(undefined)]).toEqual([
      Status.INVALID_ADDR,
      Status.ENDPOINT_TIMEOUT,
    ]);
  });

  it('waits for a get', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    const [get, flush] = [new NotedCompletion(), new NotedCompletion()];
    const target = new Uint8Array(8);
    endpoint.getShort(target, 0, 8, 0, FOREIGN_KEY, get);
    expect(endpoint.flush(flush)).toBe(Status.INPROGRESS);
    line.write(signalFrame(FrameType.GET_DATA, 8, EIGHT), signalFrame(Status.OK, 0));
    line.link.progress(1);
    expect([get.statuses, flush.statuses, [...target]]).toEqual([[Status.OK], [Status.OK], [...EIGHT]]);
  });

  it('waits for messages that have no room, and ends with the last of them', () => {
    const line = lines.small();
    const endpoint = line.endpoint();
    const flush = new NotedCompletion();
    const count = line.fill(endpoint);
    expect(endpoint.flush(flush)).toBe(Status.INPROGRESS);
    line.link.progress(1);
    expect(flush.statuses).toEqual([]);
    let moved = 0;
    for (let round = 0; round < 1000 && flush.statuses.length === 0; round++) {
      line.receive();
      moved += line.link.progress(1);
    }
    expect([flush.statuses, moved > 0, line.link.wantsWrite]).toEqual([[Status.OK], true, false]);
    line.receive();
    expect(line.frames()).toEqual(Array(count).fill([FrameType.AM, FILL_BYTES]));
  });
});

describe('the event loop', () => {
  it('sends messages that were reported as sent, when the socket has room', () => {
    const line = lines.small();
    let awaited = 0;
    line.link.room = { await: () => (awaited += 1), close: () => undefined } as never;
    const count = line.fill(line.endpoint());
    expect([awaited > 0, line.reports.blocked.has(line.link)]).toEqual([true, true]);
    let moved = 0;
    for (let round = 0; round < 1000 && line.link.wantsWrite; round++) {
      line.receive();
      moved += line.link.sendReported();
    }
    expect([line.link.sendReported(), moved > 0]).toEqual([0, true]);
    expect(line.frames()).toHaveLength(count);
  });

  it('ends no operation and no flush', () => {
    for (const kind of ['message', 'flush']) {
      const line = lines.small();
      const endpoint = line.endpoint();
      const completion = new NotedCompletion();
      line.fill(endpoint);
      const iov = [{ memory: line.memory(64), offset: 0, byteLength: 64 }];
      if (kind === 'message') endpoint.amZcopy(3, NO_WORDS, 0, iov, completion);
      else endpoint.flush(completion);
      for (let round = 0; round < 100; round++) {
        line.receive();
        expect(line.link.sendReported()).toBe(0);
      }
      expect(completion.statuses).toEqual([]);
      drain(line);
      expect(completion.statuses).toEqual([Status.OK]);
    }
  });
});

describe('a connection whose sending has failed', () => {
  it('delivers what the peer has sent before, and then ends with the failure', () => {
    const line = lines.up();
    const { link, reports } = line;
    const endpoint = line.endpoint();
    link.transmitter.failure = Errno.ETIMEDOUT;
    expect(endpoint.amShort(1, NO_WORDS, 0, EIGHT, 0, 8)).toBe(Status.ENDPOINT_TIMEOUT);
    expect([link.hasMore, reports.blocked.has(link), line.ends]).toEqual([true, true, []]);
    reports.blocked.clear();
    line.write(amFrame(5, EIGHT));
    expect(link.progress(1)).toBe(1);
    expect([line.messages, link.state, reports.blocked.has(link)]).toEqual([[[5, [...EIGHT]]], 'up', true]);
    link.progress(1);
    expect(line.ends).toMatchObject([{ status: Status.ENDPOINT_TIMEOUT }]);
    expect(link.state).toBe('down');
  });

  it('is ended by a check', () => {
    const line = lines.up();
    line.link.transmitter.failure = Errno.EPIPE;
    expect(line.link.checkPeer()).toBe(Status.CONNECTION_RESET);
    expect(line.ends).toHaveLength(1);
  });

  it('ends with that failure, not with the end of the stream behind it', () => {
    const line = lines.up();
    line.link.transmitter.failure = Errno.EHOSTUNREACH;
    line.closePeer();
    line.link.progress(1);
    expect(line.ends).toMatchObject([{ status: Status.ENDPOINT_TIMEOUT }]);
  });
});

describe('an end that has no more endpoints', () => {
  it('tells the peer once, and ends when the peer says the same', () => {
    const line = lines.up();
    const { link } = line;
    line.endpoint().close();
    link.retire();
    expect([line.frames(), link.departure, link.revive()]).toEqual([[[FrameType.BYE, 0]], 'self', false]);
    line.write(byeOf());
    link.progress(1);
    expect([link.state, line.ends.map(({ status }) => status)]).toEqual(['down', [Status.CANCELED]]);
  });

  it('ends at once if the peer has said so', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    line.write(byeOf());
    line.link.progress(1);
    expect([line.link.state, line.link.departure]).toEqual(['up', 'peer']);
    endpoint.close();
    expect([line.link.state, line.frames()]).toEqual(['down', [[FrameType.BYE, 0]]]);
  });

  it('ends when the peer leaves, if it never had any', () => {
    const line = lines.up();
    line.write(byeOf());
    line.link.progress(1);
    expect(line.ends.map(({ status }) => status)).toEqual([Status.CANCELED]);
  });

  it('sends its last messages before it ends', () => {
    const line = lines.small();
    const endpoint = line.endpoint();
    const count = line.fill(endpoint);
    line.write(byeOf());
    line.link.progress(1);
    endpoint.close();
    expect(line.link.state).toBe('up');
    for (let round = 0; round < 1000 && line.link.state === 'up'; round++) {
      line.receive();
      line.link.progress(1);
    }
    expect(line.link.state).toBe('down');
    expect(line.frames()).toEqual([...Array(count).fill([FrameType.AM, FILL_BYTES]), [FrameType.BYE, 0]]);
  });

  it('sends them from the event loop too', () => {
    const line = lines.small();
    const endpoint = line.endpoint();
    line.fill(endpoint);
    line.write(byeOf());
    line.link.progress(1);
    endpoint.close();
    for (let round = 0; round < 1000 && line.link.state === 'up'; round++) {
      line.receive();
      line.link.sendReported();
    }
    expect(line.link.state).toBe('down');
  });

  it('is not a failure if the peer closes first', () => {
    const line = lines.small();
    const endpoint = line.endpoint();
    line.fill(endpoint);
    line.write(byeOf());
    line.link.progress(1);
    endpoint.close();
    tcpShutdown(line.peerFd);
    line.link.progress(1);
    expect(line.ends.map(({ status }) => status)).toEqual([Status.CANCELED]);
  });

  it('before it was connected can be used again, and tells the peer otherwise', () => {
    const [again, left, idle] = [lines.idle(), lines.idle(), lines.idle()];
    for (const { link } of [again, left]) {
      link.state = 'waiting';
      link.retire();
      expect(link.departure).toBe('self');
    }
    expect([again.link.revive(), again.link.departure]).toEqual([true, 'none']);
    again.attach();
    left.attach();
    expect([again.frames(), left.frames()]).toEqual([[], [[FrameType.BYE, 0]]]);
    idle.link.retire();
    expect([idle.link.state, idle.ends.map(({ status }) => status)]).toEqual(['down', [Status.CANCELED]]);
  });
});

describe('a check of the peer', () => {
  it('does not end a connection whose data is not read', () => {
    const line = lines.up();
    line.write(amFrame(7, EIGHT));
    line.closePeer();
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.link.progress(1);
    expect(line.messages).toEqual([[7, [...EIGHT]]]);
    expect(line.link.checkPeer()).toBe(Status.CONNECTION_RESET);
    expect(line.ends).toHaveLength(1);
  });

  it('finds a peer that is silent for longer than its heartbeats and the time limit', () => {
    const line = lines.up();
    line.write(signalFrame(FrameType.HEARTBEAT, 2000));
    line.link.progress(1);
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.clock.advance(6e9);
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.clock.advance(1e6);
    expect(line.link.checkPeer()).toBe(Status.ENDPOINT_TIMEOUT);
    expect(line.ends).toMatchObject([
      { status: Status.ENDPOINT_TIMEOUT, reason: 'no data and no heartbeat for 6000 ms (UCX_TCP_PEER_TIMEOUT)' },
    ]);
  });

  it('takes unread data and each frame as a sign of life, and not its own frames', () => {
    const line = lines.up();
    const beat = signalFrame(FrameType.HEARTBEAT, 1000);
    line.write(beat);
    line.link.progress(1);
    line.link.checkPeer();
    line.clock.advance(3e9 + 1e6);
    line.write(beat);
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.link.progress(1);
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.clock.advance(3e9);
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.clock.advance(1e6);
    expect(line.link.checkPeer()).toBe(Status.ENDPOINT_TIMEOUT);
  });

  it('expects no heartbeats of a peer that has sent none, or none with a positive interval', () => {
    const line = lines.up();
    line.write(signalFrame(FrameType.HEARTBEAT, 0), signalFrame(FrameType.HEARTBEAT, -5));
    line.link.progress(1);
    // The first check sees the frames, which are a sign of life; the next one sees none.
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.clock.advance(1e12);
    expect(line.link.checkPeer()).toBe(Status.OK);
    line.write(signalFrame(FrameType.HEARTBEAT, 1000), signalFrame(FrameType.HEARTBEAT, -5));
    line.link.progress(1);
    line.link.checkPeer();
    line.clock.advance(1e10);
    expect(line.link.checkPeer()).toBe(Status.ENDPOINT_TIMEOUT);
  });
});

describe('a heartbeat', () => {
  it('has its interval, and is not queued behind frames that wait', () => {
    const line = lines.up();
    line.link.heartbeat(1234);
    expect(line.frames()).toEqual([[FrameType.HEARTBEAT, 1234]]);
    const blocked = lines.small();
    blocked.fill(blocked.endpoint());
    const { length } = blocked.link.transmitter;
    blocked.link.heartbeat(1234);
    expect(blocked.link.transmitter.length).toBe(length);
  });

  it('notes since when the host of the peer has to acknowledge it', () => {
    const line = lines.up();
    line.clock.advance(7e6);
    const ask = vi.spyOn(line.link.inbound.liveness, 'ask');
    line.link.heartbeat(9);
    expect(ask.mock.calls).toEqual([[line.fd, 5007]]);
    ask.mockRestore();
  });

  it('sends the batch first', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    for (let i = 0; i < 3; i++) endpoint.amShort(1, NO_WORDS, 0, EIGHT, 0, 8);
    line.link.heartbeat(9);
    expect(line.frames()).toEqual([...Array(3).fill([FrameType.AM, 8]), [FrameType.HEARTBEAT, 9]]);
  });
});

it('requests a connection once, and remembers which received last', () => {
  const idle = lines.idle();
  const endpoint = idle.endpoint();
  expect(endpoint.amShort(1, NO_WORDS, 0, EIGHT, 0, 8)).toBe(Status.NO_RESOURCE);
  idle.link.state = 'waiting';
  expect(endpoint.amShort(1, NO_WORDS, 0, EIGHT, 0, 8)).toBe(Status.NO_RESOURCE);
  expect(idle.connects).toBe(1);
  const line = lines.up();
  const { words } = line.keyed(8);
  line.link.progress(1);
  expect(line.reports.hot).toBeUndefined();
  line.write(getFrame(words, 0, 8));
  line.link.progress(1);
  expect(line.reports.hot).toBe(line.link);
  expect(line.frames()).toEqual([[FrameType.GET_DATA, 8]]);
});
