/** What a peer may write: each limit directly, with its reason and nothing delivered behind it; and what a message waits for. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import {
  amFrame,
  amZcopyFrame,
  getFrame,
  putFrame,
  putRunFrame,
  signalFrame,
} from '../../../../../test/fixtures/transports/tcp-frames.ts';
import { NotedCompletion, type TcpLine, TcpLines } from '../../../../../test/fixtures/transports/tcp-line.ts';
import { Errno, tcpUnreadBytes } from '../../../../sys/index.ts';
import { Status } from '../../../../ucs/type/status.ts';
import { TcpKey } from '../../key.ts';
import { FRAME_BODY_BYTES_MAX, FrameType, GETS_MAX, HEADER_BYTES, PUT_HEADER_BYTES, PUTS_MAX } from '../../layout.ts';
import type { RecordStream } from '../../secure/session.ts';
import { FrameParser } from '../parser.ts';

expectNoLeaks();
const lines = new TcpLines();
const EIGHT = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
const FOREIGN_KEY = new TcpKey(2 ** 20, Int32Array.of(1, 2, 3, 4, 5, 6), undefined);
const KEY = [1, 2, 3, 4, 5, 6];

function progress(line: TcpLine, count = 4): void {
  for (let i = 0; i < count; i++) line.link.progress(16);
}

describe('a violation', () => {
  it.each<readonly [string, readonly Uint8Array[]]>([
    ['frame of unknown type 0', [signalFrame(0, 0)]],
    ['frame of unknown type 12', [signalFrame(12, 0)]],
    ['message with invalid length 4294967295', [amFrame(1, EIGHT, -1)]],
    ['message with invalid length 65537', [amFrame(1, EIGHT, 65_537)]],
    [`body with invalid length ${2 ** 30 + 1}`, [putFrame(KEY, 0, EIGHT, FRAME_BODY_BYTES_MAX + 1)]],
    ['body with invalid length 4294967288', [putFrame(KEY, 0, EIGHT, -8)]],
    ['run with invalid number of puts 0', [signalFrame(FrameType.PUT_RUN, 0)]],
    ['run with invalid number of puts 31', [signalFrame(FrameType.PUT_RUN, 31)]],
    [
      'frame of type 1 in a run of puts',
      [signalFrame(FrameType.PUT_RUN, 2), putFrame(KEY, 0, EIGHT).subarray(0, PUT_HEADER_BYTES), amFrame(1, EIGHT)],
    ],
    [`get with invalid length ${2 ** 30 + 1}`, [getFrame(KEY, 0, FRAME_BODY_BYTES_MAX + 1)]],
    ['acknowledgement of 1 puts that are not pending', [signalFrame(FrameType.ACK, 1)]],
    ['acknowledgement of 0 puts that are not pending', [signalFrame(FrameType.ACK, 0)]],
    ['unexpected NACK: no put is pending', [signalFrame(FrameType.NACK, Status.INVALID_ADDR)]],
    ['NACK with invalid status 0', [signalFrame(FrameType.NACK, 0)]],
    ['unexpected reply to a get, 8 bytes', [signalFrame(FrameType.GET_DATA, 8, EIGHT)]],
  ])('is %s', (reason, frames) => {
    const line = lines.up();
    line.log.allow(/protocol violation/);
    line.write(...frames, amFrame(3, EIGHT));
    progress(line);
    expect(line.ends).toMatchObject([
      { status: Status.CONNECTION_RESET, reason: `protocol violation by the peer: ${reason}` },
    ]);
    expect(line.messages).toEqual([]);
  });

  it('is one get more than 64 at a time, and not the 64th', () => {
    const line = lines.up();
    line.log.allow(/more than 64 pending gets/);
    const { words } = line.keyed(8);
    const gets = Array.from({ length: GETS_MAX }, () => getFrame(words, 0, 8));
    line.write(...gets);
    progress(line);
    // Those that were answered do not count.
    line.write(...gets);
    progress(line);
    expect([line.frames().length, line.link.state]).toEqual([2 * GETS_MAX, 'up']);
    line.write(...gets, getFrame(words, 0, 8));
    progress(line);
    expect(line.link.state).toBe('down');
  });

  it('is a peer that puts without reading its answers, at a limit', () => {
    const line = lines.up();
    line.log.allow(/too many puts without reading the replies/);
    const { transmitter } = line.link;
    const put = putFrame(KEY, 0, EIGHT);
    transmitter.length = PUTS_MAX + 1024;
    line.write(put);
    progress(line, 1);
    expect(line.link.state).toBe('up');
    transmitter.length = PUTS_MAX + 1025;
    line.write(put, amFrame(3, EIGHT));
    progress(line, 1);
    expect([line.link.state, line.messages]).toEqual(['down', []]);
    transmitter.length = 0;
  });

  it('is an answer with other bytes than its get wants', () => {
    const line = lines.up();
    line.log.allow(/unexpected reply to a get, 7 bytes/);
    const get = new NotedCompletion();
    line.endpoint().getShort(new Uint8Array(8), 0, 8, 0, FOREIGN_KEY, get);
    line.write(signalFrame(FrameType.GET_DATA, 7, EIGHT));
    progress(line);
    expect([line.link.state, get.statuses]).toEqual(['down', [Status.CONNECTION_RESET]]);
  });
});

describe('an answer to a get', () => {
  it('without bytes is a refusal, with the status of its end', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    const gets = [new NotedCompletion(), new NotedCompletion(), new NotedCompletion()];
    const target = new Uint8Array(8);
    for (const get of gets) endpoint.getShort(target, 0, 8, 0, FOREIGN_KEY, get);
    const refused = (status: number): Uint8Array =>
      Buffer.concat([signalFrame(FrameType.GET_DATA, 0), signalFrame(status, 0)]);
    const failed = Buffer.concat([signalFrame(FrameType.GET_DATA, 8, EIGHT), signalFrame(Status.INVALID_ADDR, 0)]);
    line.write(refused(Status.INVALID_ADDR), refused(Status.OK), failed);
    progress(line);
    expect(gets.map(({ statuses }) => statuses)).toEqual([
      [Status.INVALID_ADDR],
      [Status.IO_ERROR],
      [Status.INVALID_ADDR],
    ]);
  });

  it('has its bytes, or says that the key is not valid', () => {
    const line = lines.up();
    const { words, memory } = line.keyed(16);
    memory.bytes.set([...EIGHT].reverse(), 8);
    line.write(getFrame(words, 8, 8), getFrame(words, 9, 8), getFrame(KEY, 0, 8));
    progress(line);
    line.receive();
    const { rest } = line;
    const refusal = [FrameType.GET_DATA, 0, Status.INVALID_ADDR, 0];
    expect([...rest.subarray(HEADER_BYTES, 16)]).toEqual([...EIGHT].reverse());
    expect([...new Int32Array(rest.buffer.slice(rest.byteOffset + 24, rest.byteOffset + 56))]).toEqual([
      ...refusal,
      ...refusal,
    ]);
    expect(memory.inFlight).toBe(0);
  });
});

describe('a message', () => {
  it('waits for a handler, and nothing behind it is read', () => {
    const line = lines.up();
    const { handler } = line.shared;
    line.shared.handler = undefined;
    line.write(amFrame(1, EIGHT));
    progress(line);
    line.write(amFrame(2, EIGHT));
    progress(line);
    expect(tcpUnreadBytes(line.fd)).toBe(16);
    line.shared.handler = handler;
    progress(line);
    expect(line.messages).toEqual([
      [1, [...EIGHT]],
      [2, [...EIGHT]],
    ]);
  });

  it('is not received over by a handler that calls progress', () => {
    const line = lines.up();
    const seen: [number, number[]][] = [];
    line.shared.handler = (id, { bytes, offset, byteLength }) => {
      line.write(amFrame(id + 10, new Uint8Array(8).fill(9)));
      if (id < 10) expect(line.link.progress(16)).toBe(0);
      if (id < 20) seen.push([id, [...bytes.slice(offset, offset + byteLength)]]);
    };
    line.write(amFrame(1, EIGHT), amFrame(2, EIGHT));
    line.link.progress(1);
    line.link.progress(1);
    expect(seen).toEqual([
      [1, [...EIGHT]],
      [2, [...EIGHT]],
      [11, Array(8).fill(9)],
      [12, Array(8).fill(9)],
    ]);
  });

  it('whose memory was lost at its sender is ignored', () => {
    const line = lines.up();
    line.write(amZcopyFrame(1, EIGHT, Status.INVALID_ADDR), amZcopyFrame(2, EIGHT));
    progress(line);
    expect(line.messages).toEqual([[2, [...EIGHT]]]);
  });

  it('leaves frames that the program holds back where they are', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.cork();
    line.write(amFrame(1, EIGHT));
    progress(line);
    expect([line.messages.length, line.link.transmitter.isCorked]).toEqual([1, true]);
    endpoint.uncork();
    line.write(amFrame(1, EIGHT));
    progress(line);
    expect([line.messages.length, line.link.transmitter.isCorked]).toEqual([2, false]);
  });

  it('names its sender, and is counted', () => {
    const line = lines.up();
    let source = '';
    line.shared.handler = (_id, frame) => {
      source = frame.source;
    };
    line.write(amFrame(1, EIGHT), amFrame(1, new Uint8Array(17)));
    progress(line);
    expect(source).toBe('0102030405060708090a0b0c0d0e0f10');
    const { counters } = line.shared.counters.node({ transport: 'tcp', device: 'lo' } as never);
    expect(counters).toMatchObject({ rx_am: 2, rx_am_bytes: 25 });
  });
});

it('answers a get before it reads on', () => {
  // Memory for a few messages at a time, so that a read fills it.
  const line = lines.up({ UCX_TCP_RX_SEG_SIZE: '1k', UCX_TCP_TX_SEG_SIZE: '1k' });
  const { words } = line.keyed(8);
  line.write(getFrame(words, 0, 8), ...Array.from({ length: 40 }, () => amFrame(1, new Uint8Array(1000))));
  line.link.progress(64);
  expect(line.frames()).toEqual([[FrameType.GET_DATA, 8]]);
  expect(tcpUnreadBytes(line.fd)).toBeGreaterThan(20_000);
  progress(line, 20);
  expect(line.messages).toHaveLength(40);
});

describe('a run of puts', () => {
  it.each([
    ['at once', [0]],
    ['headers first', [HEADER_BYTES + 4 * PUT_HEADER_BYTES]],
    ['in the first body', [HEADER_BYTES + 4 * PUT_HEADER_BYTES + 3]],
    ['in the last padding', [HEADER_BYTES + 4 * PUT_HEADER_BYTES + 8, HEADER_BYTES + 4 * PUT_HEADER_BYTES + 40]],
  ])('with an empty one and padding arrives whole, cut %s', (_what, cuts) => {
    const line = lines.up();
    const { words, memory } = line.keyed(64);
    const bodies = [5, 0, 9, 16].map((length, i) => new Uint8Array(length).fill(i + 1));
    const run = putRunFrame(bodies.map((body, i) => putFrame(words, 16 * i, body)));
    let from = 0;
    for (const cut of [...cuts, run.byteLength]) {
      line.write(run.subarray(from, cut));
      progress(line);
      from = cut;
    }
    line.write(amFrame(6, EIGHT));
    progress(line);
    const expected = bodies.flatMap((body) => [...body, ...Array(16 - body.byteLength).fill(0)]);
    expect([[...memory.bytes], line.messages]).toEqual([expected, [[6, [...EIGHT]]]]);
    const acknowledged = line.frames().reduce((sum, [type, count]) => sum + (type === FrameType.ACK ? count : 100), 0);
    expect(acknowledged).toBe(4);
  });

  it('to a key that is not valid is refused put by put', () => {
    const line = lines.up();
    const { words, memory } = line.keyed(16);
    line.write(putRunFrame([putFrame(words, 0, EIGHT), putFrame(KEY, 0, EIGHT), putFrame(words, 8, EIGHT)]));
    progress(line);
    expect(line.frames()).toEqual([
      [FrameType.ACK, 1],
      [FrameType.NACK, Status.INVALID_ADDR],
      [FrameType.ACK, 1],
    ]);
    expect([...memory.bytes]).toEqual([...EIGHT, ...EIGHT]);
  });
});

describe('memory that was released while its bytes arrive', () => {
  it('is not acknowledged', () => {
    const line = lines.up();
    const { words, memory } = line.keyed(64);
    const put = putFrame(words, 0, new Uint8Array(64).fill(5));
    line.write(put.subarray(0, PUT_HEADER_BYTES + 32));
    progress(line);
    (memory as { live: boolean }).live = false;
    line.write(put.subarray(PUT_HEADER_BYTES + 32));
    progress(line);
    expect(line.frames()).toEqual([[FrameType.NACK, Status.INVALID_ADDR]]);
    expect([...memory.bytes]).toEqual([...Array(32).fill(5), ...Array(32).fill(0)]);
  });
});

describe('a parser', () => {
  let line: TcpLine;
  let parser: FrameParser;
  function open(): void {
    line = lines.idle();
    line.link.inbound.isUp = true;
    line.link.transmitter.attach(line.fd, undefined);
    parser = new FrameParser(line.fd, line.shared.buffers, line.link.inbound, undefined);
  }
  afterEach(() => line.close());

  it('takes frames and slices of bodies as signs of life', () => {
    open();
    const { words } = line.keyed(100_000);
    line.write(...Array.from({ length: 1024 }, () => signalFrame(FrameType.HEARTBEAT, 1000)));
    while (parser.receive(1) > 0);
    expect(parser.signsOfLife).toBe(1024);
    // The beginning of a body comes behind its header, the rest is received into the memory.
    const put = putFrame(words, 0, new Uint8Array(100_000));
    line.write(put.subarray(0, PUT_HEADER_BYTES + 4096));
    while (parser.receive(1) > 0);
    const afterHeader = parser.signsOfLife;
    expect(afterHeader).toBe(1024 + 1 + 1);
    line.write(put.subarray(PUT_HEADER_BYTES + 4096, PUT_HEADER_BYTES + 3 * 4096));
    while (parser.receive(1) > 0);
    expect(parser.signsOfLife).toBe(afterHeader + 2);
    // A part of a header is none.
    line.write(put.subarray(PUT_HEADER_BYTES + 3 * 4096));
    while (parser.receive(1) > 0);
    const whole = parser.signsOfLife;
    line.write(put.subarray(0, 16));
    while (parser.receive(1) > 0);
    expect(parser.signsOfLife).toBe(whole);
  });

  it('of an encrypted connection receives record after record, until a message waits for a handler', () => {
    open();
    const records = [1, 2, 3, 4].map((id) => amFrame(id, EIGHT));
    const stream = {
      receive(target: Uint8Array, at: number): number {
        const record = records.shift();
        if (record === undefined) return -Errno.EAGAIN;
        target.set(record, at);
        return record.byteLength;
      },
    };
    const encrypted = new FrameParser(line.fd, line.shared.buffers, line.link.inbound, stream as RecordStream);
    const recordBytes = records[0]!.byteLength;
    expect(encrypted.receive(2)).toBe(2 * recordBytes);
    expect(line.messages.map(([id]) => id)).toEqual([1, 2]);
    const { handler } = line.shared;
    line.shared.handler = undefined;
    expect([encrypted.receive(16), records.length]).toEqual([recordBytes, 1]);
    line.shared.handler = handler;
    expect([encrypted.receive(16), encrypted.end]).toEqual([recordBytes, undefined]);
    expect(line.messages.map(([id]) => id)).toEqual([1, 2, 3, 4]);
  });

  it('names how receiving has ended', () => {
    open();
    line.closePeer();
    parser.receive(1);
    expect([parser.end, parser.failure + 0]).toEqual(['closed', 0]);
    line.close();
    open();
    line.link.transmitter.signal(FrameType.BYE);
    // Closed with unread data.
    line.closePeer();
    parser.receive(1);
    expect([parser.end, parser.failure]).toEqual(['failed', Errno.ECONNRESET]);
  });
});
