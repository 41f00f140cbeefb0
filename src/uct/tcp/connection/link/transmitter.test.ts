/** The order of outgoing frames: batches, frames that are held back, acknowledgements and refusals, on a socket with room and without. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import {
  FILL_BYTES,
  NotedCompletion,
  type TcpLine,
  TcpLines,
} from '../../../../../test/fixtures/transports/tcp-line.ts';
import { Errno, tcpSend } from '../../../../sys/index.ts';
import { Status } from '../../../../ucs/type/status.ts';
import type { TcpEndpoint } from '../../endpoint.ts';
import { TcpKey } from '../../key.ts';
import { FrameType, PUT_RUN_MAX } from '../../layout.ts';
import { QUEUE_MAX } from '../sender.ts';

expectNoLeaks();
const lines = new TcpLines();
const NO_WORDS = new Int32Array(0);
const FOREIGN_KEY = new TcpKey(2 ** 20, Int32Array.of(1, 2, 3, 4, 5, 6), undefined);
const LONG = new Uint8Array(FILL_BYTES);
const FILLED = [FrameType.AM, FILL_BYTES] as const;

function send(endpoint: TcpEndpoint, byteLength: number): Status {
  return endpoint.amShort(1, NO_WORDS, 0, LONG, 0, byteLength);
}

function am(byteLength: number): readonly [number, number] {
  return [FrameType.AM, byteLength];
}

/** Reads everything that waits. */
function drained(line: TcpLine): (readonly [number, number])[] {
  for (let round = 0; round < 1000 && line.link.wantsWrite; round++) {
    line.receive();
    line.link.progress(1);
  }
  expect(line.link.wantsWrite).toBe(false);
  return line.frames();
}

describe('a batch', () => {
  it('is not blocked, and leaves at its end', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    for (const bytes of [8, 16, 24]) send(endpoint, bytes);
    expect([line.frames(), line.link.wantsWrite]).toEqual([[am(8)], false]);
    line.link.endBatch();
    line.link.endBatch();
    expect(line.frames()).toEqual([am(16), am(24)]);
    send(endpoint, 32);
    expect(line.frames()).toEqual([am(32)]);
  });

  it('leaves before a long frame', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    for (const bytes of [8, 16, 9000]) send(endpoint, bytes);
    expect(line.frames()).toEqual([am(8), am(16), am(9000)]);
  });

  it.each([
    ['32 frames', 8, 33],
    ['64 KiB', 8200, 9],
  ])('leaves when it has %s', (_what, bytes, count) => {
    const line = lines.up();
    const endpoint = line.endpoint();
    for (let i = 1; i < count; i++) send(endpoint, bytes);
    expect(line.frames()).toEqual([am(bytes)]);
    send(endpoint, bytes);
    expect(line.frames()).toEqual(Array(count - 1).fill(am(bytes)));
  });

  it('leaves when those of all connections have much memory', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    const { pool } = line.shared.buffers;
    pool.takenBytes += 2 ** 20;
    for (const bytes of [8, 16]) send(endpoint, bytes);
    expect(line.frames()).toEqual([am(8), am(16)]);
    pool.takenBytes -= 2 ** 20;
  });

  it('waits while frames are held back, however many', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.cork();
    for (let i = 0; i < 40; i++) send(endpoint, 8);
    line.link.endBatch();
    expect(line.frames()).toHaveLength(1);
    endpoint.uncork();
    expect([line.frames().length, line.link.transmitter.isEmpty]).toEqual([39, true]);
  });

  it('of which the socket takes nothing waits for room', () => {
    const line = lines.small();
    const endpoint = line.endpoint();
    send(endpoint, 8);
    line.frames();
    line.stuff();
    for (let i = 0; i < 32; i++) expect(send(endpoint, 8)).toBe(Status.OK);
    expect([line.link.wantsWrite, line.link.isBroken]).toEqual([true, false]);
    expect(drained(line)).toEqual(Array(32).fill(am(8)));
  });

  it('that fails is over, and nothing is sent behind it', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    for (const bytes of [8, 16]) send(endpoint, bytes);
    line.link.transmitter.attach(-1, undefined);
    line.link.endBatch();
    expect(line.link.isBroken).toBe(true);
    line.link.transmitter.attach(line.fd, undefined);
    expect([send(endpoint, 8) < 0, send(endpoint, 9000) < 0]).toEqual([true, true]);
    expect(line.link.transmitter.signal(FrameType.BYE)).toBe(Status.IO_ERROR);
    expect([line.frames(), line.link.wantsWrite]).toEqual([[am(8)], true]);
  });
});

describe('the queue', () => {
  it('has a limit of frames, and of copied bytes', () => {
    const line = lines.up();
    const { transmitter } = line.link;
    const endpoint = line.endpoint();
    endpoint.cork();
    // The first is sent at once.
    for (let i = 0; i < QUEUE_MAX + 1; i++) expect(send(endpoint, 8)).toBe(Status.OK);
    expect([send(endpoint, 8), transmitter.isFull, transmitter.length]).toEqual([Status.NO_RESOURCE, true, QUEUE_MAX]);
    endpoint.uncork();
    expect([transmitter.isFull, transmitter.length, send(endpoint, 8)]).toEqual([false, 0, Status.OK]);
  });

  it('of a socket without room has a limit of copied bytes, until they are sent', () => {
    const line = lines.small();
    const { transmitter } = line.link;
    const endpoint = line.endpoint();
    line.fill(endpoint);
    while (send(endpoint, FILL_BYTES) === Status.OK);
    // The first of them is sent in part.
    expect([27, 28]).toContain(transmitter.length);
    expect([transmitter.isFull, send(endpoint, 8)]).toEqual([true, Status.NO_RESOURCE]);
    drained(line);
    expect([transmitter.isFull, send(endpoint, FILL_BYTES)]).toEqual([false, Status.OK]);
  });

  it('is sent with several calls if it has many pieces', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.cork();
    const completions = Array.from({ length: 40 }, () => new NotedCompletion());
    const iov = [{ memory: line.memory(9), offset: 0, byteLength: 9 }];
    for (const completion of completions) endpoint.amZcopy(1, NO_WORDS, 0, iov, completion);
    expect(line.frames()).toEqual([]);
    endpoint.uncork();
    expect(line.link.wantsWrite).toBe(false);
    expect(line.frames()).toEqual(Array(40).fill([FrameType.AM_ZCOPY, 9]));
    expect(completions.map(({ statuses }) => statuses)).toEqual(Array(40).fill([Status.OK]));
    expect(iov[0]!.memory.inFlight).toBe(0);
  });

  it('keeps its frames whole when long memory is lost, and the operation fails', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.cork();
    const memory = line.memory(40_001);
    const message = new NotedCompletion();
    endpoint.amZcopy(1, NO_WORDS, 0, [{ memory, offset: 0, byteLength: 40_001 }], message);
    LONG.fill(9);
    send(endpoint, 8);
    (memory as { live: boolean }).live = false;
    memory.bytes.fill(9);
    endpoint.uncork();
    line.receive();
    expect(line.rest.subarray(8, 40_009).every((byte) => byte === 0)).toBe(true);
    expect(line.frames()).toEqual([[FrameType.AM_ZCOPY, 40_001], am(8)]);
    LONG.fill(0);
    expect([message.statuses, memory.inFlight]).toEqual([[Status.INVALID_ADDR], 0]);
  });

  it('ends each operation once, with the end of its connection', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.cork();
    const memory = line.memory(8);
    const message = new NotedCompletion();
    endpoint.amZcopy(1, NO_WORDS, 0, [{ memory, offset: 0, byteLength: 8 }], message);
    line.link.transmitter.cancel(endpoint);
    line.link.transmitter.cancel(endpoint);
    line.link.fail(Status.ENDPOINT_TIMEOUT, '');
    expect(message.count).toBe(0);
    expect([message.statuses, memory.inFlight, line.shared.buffers.pool.takenBytes]).toEqual([[Status.CANCELED], 0, 0]);
  });

  it('ends its operations when the last byte was sent, not before', () => {
    const line = lines.small();
    const endpoint = line.endpoint();
    line.fill(endpoint);
    const message = new NotedCompletion();
    endpoint.amZcopy(1, NO_WORDS, 0, [{ memory: line.memory(60_000), offset: 0, byteLength: 60_000 }], message);
    for (let round = 0; round < 1000 && line.link.wantsWrite; round++) {
      expect(message.statuses).toEqual([]);
      line.receive(30_000);
      line.link.progress(1);
    }
    expect([message.statuses, line.link.transmitter.isEmpty]).toEqual([[Status.OK], true]);
  });
});

describe('a run of puts', () => {
  it('has those of one endpoint, and at most 30', () => {
    const line = lines.up();
    const [endpoint, other] = [line.endpoint(), line.endpoint()];
    const iov = [{ memory: line.memory(8), offset: 0, byteLength: 8 }];
    const put = (user: TcpEndpoint): Status => user.putZcopy(iov, 0, FOREIGN_KEY, new NotedCompletion());
    endpoint.cork();
    for (let i = 0; i < PUT_RUN_MAX + 2; i++) put(endpoint);
    put(other);
    put(other);
    put(endpoint);
    const { transmitter } = line.link;
    expect([transmitter.length, transmitter.openRunOf(endpoint)?.runLength]).toEqual([4, 1]);
    expect(transmitter.openRunOf(other)).toBeUndefined();
    send(endpoint, 8);
    expect(transmitter.openRunOf(endpoint)).toBeUndefined();
  });

  it('takes no put while a record contains its beginning, or when nothing is held back', () => {
    const line = lines.up();
    const { transmitter } = line.link;
    const endpoint = line.endpoint();
    const iov = [{ memory: line.memory(8), offset: 0, byteLength: 8 }];
    endpoint.cork();
    endpoint.putZcopy(iov, 0, FOREIGN_KEY, new NotedCompletion());
    expect(transmitter.openRunOf(endpoint)).toBeDefined();
    const records = { isPending: true };
    transmitter.attach(line.fd, records as never);
    expect(transmitter.openRunOf(endpoint)).toBeUndefined();
    records.isPending = false;
    expect(transmitter.openRunOf(endpoint)).toBeDefined();
    transmitter.attach(line.fd, undefined);
    transmitter.isCorked = false;
    expect(transmitter.openRunOf(endpoint)).toBeUndefined();
  });
});

describe('acknowledgements', () => {
  /** Counts puts of the peer that have arrived. */
  function arrive(line: TcpLine, count: number): void {
    for (let i = 0; i < count; i++) line.link.transmitter.addPendingAck();
  }

  it('leave once, all together, with the next frame', () => {
    const line = lines.up();
    const { transmitter } = line.link;
    arrive(line, 3);
    send(line.endpoint(), 8);
    expect([line.frames(), transmitter.hasPendingAcks]).toEqual([[[FrameType.ACK, 3], am(8)], false]);
    arrive(line, 2);
    transmitter.acknowledge();
    transmitter.acknowledge();
    line.link.endBatch();
    expect(line.frames()).toEqual([[FrameType.ACK, 2]]);
  });

  it('leave once, with a frame for which the socket has no room', () => {
    const line = lines.small();
    line.frames();
    line.stuff();
    arrive(line, 2);
    expect(send(line.endpoint(), 8)).toBe(Status.OK);
    expect([line.link.wantsWrite, line.link.isBroken, line.link.transmitter.hasPendingAcks]).toEqual([
      true,
      false,
      false,
    ]);
    expect(drained(line)).toEqual([[FrameType.ACK, 2], am(8)]);
  });

  it('stand before frames that wait, but do not tear one that has begun', () => {
    const line = lines.small();
    const endpoint = line.endpoint();
    const count = line.fill(endpoint);
    arrive(line, 5);
    expect(line.link.transmitter.acknowledge()).toBe(Status.OK);
    const seen = drained(line);
    const at = seen.findIndex(([type]) => type === FrameType.ACK);
    expect(at).toBeLessThan(count - 5);
    expect(seen).toEqual([...Array(at).fill(FILLED), [FrameType.ACK, 5], ...Array(count - at).fill(FILLED)]);
  });

  it('stand behind the only frame if that has begun, and before the next', () => {
    const line = lines.up();
    const { transmitter } = line.link;
    const endpoint = line.endpoint();
    const buffers = line.shared.buffers as { pieces: typeof line.shared.buffers.pieces };
    const { pieces } = buffers;
    endpoint.cork();
    endpoint.amZcopy(1, NO_WORDS, 0, [{ memory: line.memory(8), offset: 0, byteLength: 8 }], new NotedCompletion());
    // A socket that takes four bytes.
    let first = 0;
    const add = (address: number): void => {
      if (first === 0) first = address;
    };
    buffers.pieces = { clear: () => undefined, add, send: (fd: number) => tcpSend(fd, first, 4) } as never;
    endpoint.uncork();
    buffers.pieces = pieces;
    expect(line.link.wantsWrite).toBe(true);
    arrive(line, 1);
    transmitter.acknowledge();
    send(endpoint, 16);
    expect(drained(line)).toEqual([[FrameType.AM_ZCOPY, 8], [FrameType.ACK, 1], am(16)]);
  });

  it('that overtake frames do not end a flush of these', () => {
    const line = lines.up();
    const { transmitter } = line.link;
    const endpoint = line.endpoint();
    endpoint.cork();
    for (let i = 0; i < 3; i++) {
      endpoint.amZcopy(1, NO_WORDS, 0, [{ memory: line.memory(8), offset: 0, byteLength: 8 }], new NotedCompletion());
    }
    const { queued } = transmitter;
    arrive(line, 1);
    transmitter.acknowledge();
    expect([transmitter.queued, transmitter.length, transmitter.released]).toEqual([queued, 4, 0]);
    endpoint.uncork();
    expect([transmitter.released, transmitter.queued, transmitter.length]).toEqual([3, 3, 0]);
  });

  it('come before a refusal of a later put and never overtake it, until it was sent', () => {
    const line = lines.small();
    const { transmitter } = line.link;
    const endpoint = line.endpoint();
    line.fill(endpoint);
    arrive(line, 2);
    expect(transmitter.putsInRow).toBe(2);
    transmitter.sendNack(Status.INVALID_ADDR);
    expect(transmitter.putsInRow).toBe(0);
    arrive(line, 1);
    transmitter.acknowledge();
    expect(transmitter.putsInRow).toBe(1);
    const answers = drained(line).filter(([type]) => type !== FrameType.AM);
    expect(answers).toEqual([
      [FrameType.ACK, 2],
      [FrameType.NACK, Status.INVALID_ADDR],
      [FrameType.ACK, 1],
    ]);
    const count = line.fill(endpoint);
    arrive(line, 4);
    transmitter.acknowledge();
    const seen = drained(line);
    expect(seen.findIndex(([type]) => type === FrameType.ACK)).toBeLessThan(count - 5);
  });

  it('do not enter the queue before a record that contains its beginning', () => {
    const line = lines.up();
    const { transmitter } = line.link;
    const endpoint = line.endpoint();
    endpoint.cork();
    endpoint.amZcopy(1, NO_WORDS, 0, [{ memory: line.memory(8), offset: 0, byteLength: 8 }], new NotedCompletion());
    transmitter.attach(line.fd, { isPending: true } as never);
    arrive(line, 1);
    transmitter.acknowledge();
    transmitter.attach(line.fd, undefined);
    endpoint.uncork();
    expect(line.frames()).toEqual([
      [FrameType.AM_ZCOPY, 8],
      [FrameType.ACK, 1],
    ]);
  });
});

describe('a signal', () => {
  it('leaves at once, behind the frames that are held back', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    endpoint.cork();
    for (let i = 0; i < 2; i++) send(endpoint, 8);
    line.link.transmitter.signal(FrameType.HEARTBEAT, 5);
    expect(line.frames()).toEqual([am(8), am(8), [FrameType.HEARTBEAT, 5]]);
  });
});

it('names the error of the kernel', () => {
  const line = lines.up();
  line.link.transmitter.attach(-1, undefined);
  expect(send(line.endpoint(), 8)).toBe(Status.CONNECTION_RESET);
  expect(line.link.transmitter.failure).toBe(Errno.EBADF);
});
