/** How operations end before their answers: cancelled by their endpoint, or with their connection, each once, and their memory is free. */

import { fstatSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import { amFrame, putFrame, signalFrame } from '../../../../../test/fixtures/transports/tcp-frames.ts';
import { NotedCompletion, type TcpLine, TcpLines } from '../../../../../test/fixtures/transports/tcp-line.ts';
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

/** Reads until the connection is not blocked any more. */
function drain(line: TcpLine): void {
  for (let round = 0; round < 1000 && line.link.wantsWrite; round++) {
    line.receive();
    line.link.progress(1);
  }
  expect(line.link.wantsWrite).toBe(false);
}

describe('cancelling', () => {
  it('discards the rest of a get that is being received, and the answer to the next', () => {
    const line = lines.up();
    const [endpoint, other] = [line.endpoint(), line.endpoint()];
    const completions = [new NotedCompletion(), new NotedCompletion(), new NotedCompletion()];
    const memories = completions.map(() => line.memory(16));
    for (const [i, user] of [endpoint, endpoint, other].entries()) {
      user.getZcopy([{ memory: memories[i]!, offset: 0, byteLength: 16 }], 0, FOREIGN_KEY, completions[i]!);
    }
    const answer = (value: number): Uint8Array =>
      Buffer.concat([signalFrame(FrameType.GET_DATA, 16, new Uint8Array(16).fill(value)), signalFrame(Status.OK, 0)]);
    line.write(answer(1).subarray(0, HEADER_BYTES + 8));
    line.link.progress(1);
    endpoint.cancel();
    expect(completions.map(({ statuses }) => statuses)).toEqual([[Status.CANCELED], [Status.CANCELED], []]);
    line.write(answer(1).subarray(HEADER_BYTES + 8), answer(2), answer(3));
    for (let i = 0; i < 4; i++) line.link.progress(4);
    expect(completions.map(({ statuses }) => statuses)).toEqual([[Status.CANCELED], [Status.CANCELED], [Status.OK]]);
    expect([...memories[0]!.bytes]).toEqual([...Array(8).fill(1), ...Array(8).fill(0)]);
    expect([...memories[1]!.bytes]).toEqual(Array(16).fill(0));
    expect([...memories[2]!.bytes]).toEqual(Array(16).fill(3));
    expect(memories.map(({ inFlight }) => inFlight)).toEqual([0, 0, 0]);
    // The next gets reuse what the cancelled ones have left.
    const next = memories.map(() => new NotedCompletion());
    for (const [i, completion] of next.entries()) {
      other.getZcopy([{ memory: memories[i]!, offset: 0, byteLength: 16 }], 0, FOREIGN_KEY, completion);
    }
    line.write(answer(4), answer(5), answer(6));
    for (let i = 0; i < 4; i++) line.link.progress(4);
    expect(next.map(({ statuses }) => statuses)).toEqual(Array(3).fill([Status.OK]));
    expect(memories.map(({ bytes }) => [...bytes])).toEqual([4, 5, 6].map((value) => Array(16).fill(value)));
  });

  it('does not touch a put of the peer, or the get of another endpoint', () => {
    const line = lines.up();
    const { memory, words } = line.keyed(16);
    const put = putFrame(words, 0, new Uint8Array(16).fill(6));
    line.write(put.subarray(0, PUT_HEADER_BYTES + 8));
    line.link.progress(1);
    line.endpoint().cancel();
    line.link.cancel(undefined as never);
    line.write(put.subarray(PUT_HEADER_BYTES + 8));
    line.link.progress(1);
    line.link.progress(1);
    expect([[...memory.bytes], line.frames()]).toEqual([Array(16).fill(6), [[FrameType.ACK, 1]]]);
    const [get, target] = [new NotedCompletion(), line.memory(16)];
    const user = line.endpoint();
    user.getZcopy([{ memory: target, offset: 0, byteLength: 16 }], 0, FOREIGN_KEY, get);
    line.write(signalFrame(FrameType.GET_DATA, 16, EIGHT));
    line.link.progress(1);
    line.endpoint().cancel();
    line.write(EIGHT, signalFrame(Status.OK, 0));
    line.link.progress(1);
    expect([get.statuses, [...target.bytes]]).toEqual([[Status.OK], [...EIGHT, ...EIGHT]]);
  });

  it('ends puts, messages and flushes of one endpoint only, and releases their memory', () => {
    const line = lines.small();
    const [endpoint, other] = [line.endpoint(), line.endpoint()];
    line.fill(endpoint);
    const [memory, kept] = [line.memory(64), line.memory(64)];
    const iov = [{ memory, offset: 0, byteLength: 64 }];
    const [put, message, flush, others] = Array.from({ length: 4 }, () => new NotedCompletion());
    endpoint.putZcopy(iov, 0, FOREIGN_KEY, put!);
    endpoint.amZcopy(3, NO_WORDS, 0, iov, message!);
    endpoint.flush(flush!);
    other.amZcopy(3, NO_WORDS, 0, [{ memory: kept, offset: 0, byteLength: 64 }], others!);
    endpoint.cancel();
    expect([put, message, flush, others].map((each) => each!.statuses)).toEqual([
      [Status.CANCELED],
      [Status.CANCELED],
      [Status.CANCELED],
      [],
    ]);
    expect([memory.inFlight, kept.inFlight, line.shared.outstanding.count]).toEqual([0, 1, 0]);
    drain(line);
    expect([others!.statuses, kept.inFlight]).toEqual([[Status.OK], 0]);
  });
});

describe('the end of a connection', () => {
  it('is reported once, while its descriptor is open, and ends everything', () => {
    const line = lines.small();
    const { link } = line;
    const endpoint = line.endpoint();
    let isOpen = false;
    const reports = line.reports as { onDown: typeof line.reports.onDown };
    const { onDown } = reports;
    reports.onDown = (each, reason) => {
      isOpen = fstatSync(each.fd).isSocket();
      onDown(each, reason);
    };
    line.fill(endpoint);
    const memory = line.memory(64);
    const iov = [{ memory, offset: 0, byteLength: 64 }];
    const all = Array.from({ length: 4 }, () => new NotedCompletion());
    endpoint.putZcopy(iov, 0, FOREIGN_KEY, all[0]!);
    endpoint.getZcopy(iov, 0, FOREIGN_KEY, all[1]!);
    endpoint.amZcopy(3, NO_WORDS, 0, iov, all[2]!);
    endpoint.flush(all[3]!);
    link.fail(Status.ENDPOINT_TIMEOUT, 'first');
    link.fail(Status.CANCELED, 'second');
    expect(line.ends).toMatchObject([{ status: Status.ENDPOINT_TIMEOUT, reason: 'first' }]);
    expect([isOpen, link.fd, link.status]).toEqual([true, -1, Status.ENDPOINT_TIMEOUT]);
    expect(all.map(({ statuses }) => statuses)).toEqual(Array(4).fill([Status.ENDPOINT_TIMEOUT]));
    expect([memory.inFlight, line.shared.outstanding.count]).toEqual([0, 0]);
    expect(endpoint.amShort(1, NO_WORDS, 0, EIGHT, 0, 8)).toBe(Status.ENDPOINT_TIMEOUT);
  });

  it('releases the records of an encrypted one', () => {
    const line = lines.idle();
    let closed = 0;
    const records = { isPending: false, close: () => (closed += 1) };
    line.link.attach(line.fd, 65_536, { recordsOver: () => records } as never);
    line.link.fail(Status.CANCELED, '');
    expect(closed).toBe(1);
  });

  it('in a handler delivers no further message', () => {
    const line = lines.up();
    const ids: number[] = [];
    line.shared.handler = (id) => {
      ids.push(id);
      line.link.fail(Status.CANCELED, '');
    };
    line.write(amFrame(1, EIGHT), amFrame(2, EIGHT));
    line.link.progress(4);
    expect(ids).toEqual([1]);
  });

  it('by its interface sends the batch, and reads what the peer has sent, so that nothing is lost', () => {
    const line = lines.up();
    const endpoint = line.endpoint();
    for (let i = 0; i < 4; i++) endpoint.amShort(1, NO_WORDS, 0, EIGHT, 0, 8);
    line.write(amFrame(2, EIGHT));
    line.link.close();
    expect(line.receive()).toBe(0);
    expect(line.frames()).toEqual(Array(4).fill([FrameType.AM, 8]));
  });
});
