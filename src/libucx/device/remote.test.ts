/** Operations that the owner of the memory executes, over a fake endpoint: what they wait for, and how many there are at once. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeCore, FakeEndpoint } from '../../../test/fixtures/libucp/fake-core.ts';
import { MessageId } from '../../api/layout/message.ts';
import { writeData, writeReply } from '../../api/layout/rendezvous.ts';
import { Operation } from '../../api/operation/call.ts';
import type { WordOperation } from '../../api/operation/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import type { UcpRequest } from '../request/request.ts';
import { firstWord, packMessage, parseMessage } from './layout.ts';
import { OwnerRequest, OwnerRequests, RemoteOperation } from './remote.ts';
import type { StepDone } from './steps.ts';

const UNANSWERED_MAX = 16;
const EXPORT_ID = 0x1_0000_0005;
const REMOTE = { rkey: { exportId: EXPORT_ID }, remoteOffset: 2 ** 33 + 8 };
const LOCAL = { local: new Uint8Array(32), localOffset: 4, byteLength: 16 };

interface Receive {
  readonly message: { readonly byteLength: number };
  readonly target: unknown;
  readonly isWanted: () => boolean;
  readonly done: StepDone;
}

let fake: FakeCore;
let endpoint: FakeEndpoint;
let receives: Receive[];
let owners: OwnerRequests;
beforeEach(() => {
  fake = new FakeCore();
  endpoint = new FakeEndpoint();
  receives = [];
  const receiveOwn = (...[message, target, isWanted, done]: [Receive['message'], unknown, () => boolean, StepDone]) =>
    void receives.push({ message, target, isWanted, done });
  owners = new OwnerRequests({ receiveOwn } as never);
});
afterEach(() => fake[Symbol.dispose]());

function start(
  asked: OwnerRequest,
  to = endpoint,
): { readonly request: UcpRequest; readonly operation: RemoteOperation } {
  const request = fake.requests.requests.beginComposite('put/remote')!;
  const operation = new RemoteOperation(fake.tracker, [to.engine, request], owners, asked);
  operation.start();
  return { request, operation };
}

const transfer = (operation: Operation) =>
  start(OwnerRequest.ofTransfer({ operation, endpoint, ...REMOTE, ...LOCAL } as never));
const put = () => transfer(Operation.PUT);
const get = () => transfer(Operation.GET);
const atomic = (wordBytes: number) => {
  const word = { operation: 1, wordBytes, value: 5n, compare: 0n } as unknown as WordOperation;
  return start(OwnerRequest.ofWord(word, REMOTE as never));
};

/** The answer of the owner. */
function reply(id: number, status: Status = Status.OK, [low, high] = [0, 0], from = endpoint): void {
  const bytes = packMessage(writeReply(firstWord(MessageId.REPLY), { request: id, status, low, high }));
  owners.onReply(from.engine, parseMessage(bytes)!, {} as never);
}

function data(id: number, byteLength = 16): void {
  const bytes = packMessage(writeData(firstWord(MessageId.DATA), id, 0));
  owners.onReply(endpoint.engine, parseMessage(bytes)!, { byteLength } as never);
}

/** Ends the message of the operation that was started last but so many. */
function sent(status: Status = Status.OK, index = endpoint.calls.length - 1): void {
  endpoint.calls[index]!.end(status);
  fake.progress();
}

describe('a put', () => {
  it('sends its bytes with the place in the memory of the owner', () => {
    const { operation } = put();
    expect(endpoint.started).toEqual(['sendOwn']);
    const [id, header, payload] = endpoint.calls[0]!.values;
    expect([id, payload]).toEqual([STAGING_AM_ID, expect.objectContaining(LOCAL)]);
    const { frame, exportId, ...message } = parseMessage(header as Uint8Array)!;
    expect([message.id, exportId, frame.words[1], frame.words[2], frame.words[3], frame.words[4]]).toEqual([
      MessageId.PUT,
      EXPORT_ID,
      operation.requestId,
      8,
      2,
      16,
    ]);
  });

  it('ends when its message has ended and the owner has answered, in either order', () => {
    const first = put();
    sent();
    expect(first.request.isCompleted).toBe(false);
    reply(first.operation.requestId);
    expect(first.request.status).toBe(Status.OK);
    const second = put();
    reply(second.operation.requestId);
    expect(second.request.isCompleted).toBe(false);
    sent();
    expect([second.request.status, fake.tracker.isEmpty, endpoint.unconfirmed]).toEqual([Status.OK, true, 0]);
  });

  it('fails with the status of the owner', () => {
    const { request, operation } = put();
    sent();
    reply(operation.requestId, Status.INVALID_ADDR);
    expect(request.status).toBe(Status.INVALID_ADDR);
  });

  it('fails with its message, without the answer', () => {
    const { request } = put();
    sent(Status.CONNECTION_RESET);
    expect([request.status, fake.tracker.isEmpty]).toEqual([Status.CONNECTION_RESET, true]);
  });

  it('does not mind an answer of another peer, of no operation, or a second one', () => {
    const { request, operation } = put();
    reply(operation.requestId, Status.IO_ERROR, [0, 0], new FakeEndpoint());
    reply(operation.requestId + 1, Status.IO_ERROR);
    reply(operation.requestId);
    reply(operation.requestId, Status.IO_ERROR);
    sent();
    expect(request.status).toBe(Status.OK);
  });
});

describe('a get', () => {
  it.each([
    ['before', true],
    ['after', false],
  ])('ends when its bytes have come %s the reply, and are in its memory', (_name, isFirst) => {
    const { request, operation } = get();
    expect(endpoint.calls[0]!.values[2]).toBeUndefined();
    sent();
    const { requestId } = operation;
    if (isFirst) data(requestId);
    reply(requestId);
    if (!isFirst) data(requestId);
    const [receive] = receives;
    expect([receive!.target, receive!.isWanted(), request.isCompleted]).toEqual([
      expect.objectContaining(LOCAL),
      true,
      false,
    ]);
    receive!.done(Status.OK);
    expect(request.status).toBe(Status.OK);
  });

  it('waits for its bytes although the owner has answered', () => {
    const { request, operation } = get();
    sent();
    reply(operation.requestId);
    expect([request.isCompleted, fake.tracker.isEmpty]).toEqual([false, false]);
  });

  it('receives them once', () => {
    const { operation } = get();
    data(operation.requestId);
    data(operation.requestId);
    expect(receives.length).toBe(1);
  });

  it.each([15, 17])('fails if they are %i instead of 16', (byteLength) => {
    const { request, operation } = get();
    sent();
    data(operation.requestId, byteLength);
    expect([request.status, receives]).toEqual([Status.IO_ERROR, []]);
  });

  it('that has failed waits for bytes that are being received, and takes none later', () => {
    const [first, second] = [get(), get()];
    data(first.operation.requestId);
    for (const { operation } of [first, second]) operation.abort(Status.CANCELED);
    sent(Status.OK, 0);
    sent(Status.OK, 1);
    expect([second.request.status, first.request.isCompleted]).toEqual([Status.CANCELED, false]);
    expect([receives.length, receives[0]!.isWanted()]).toEqual([1, false]);
    data(second.operation.requestId);
    expect(receives.length).toBe(1);
    receives[0]!.done(Status.CANCELED);
    expect(first.request.status).toBe(Status.CANCELED);
  });

  it('that has failed takes no bytes while its message is in flight', () => {
    const { operation } = get();
    operation.abort(Status.CANCELED);
    fake.progress();
    data(operation.requestId);
    expect(receives).toEqual([]);
  });

  it('fails with the receive of its bytes', () => {
    const { request, operation } = get();
    sent();
    data(operation.requestId);
    reply(operation.requestId);
    receives[0]!.done(Status.IO_ERROR, 'cause');
    expect([request.status, request.error]).toEqual([Status.IO_ERROR, 'cause']);
  });
});

describe('an atomic operation', () => {
  it.each([
    [4, 0xffff_fffen],
    [8, 0xffff_ffff_ffff_fffen],
  ])('on a word of %i bytes returns it', (wordBytes, result) => {
    const { request, operation } = atomic(wordBytes);
    sent();
    reply(operation.requestId, Status.OK, [-2, -1]);
    expect([request.status, request.atomicResult]).toEqual([Status.OK, result]);
  });
});

describe('the operations of one endpoint', () => {
  it('are 16 at most without an answer; the others follow in order, with ids of their own', () => {
    const all = Array.from({ length: UNANSWERED_MAX + 2 }, put);
    const isSent = (index: number): boolean => endpoint.calls.length > index;
    expect([endpoint.calls.length, fake.wake.mock.calls.length]).toEqual([UNANSWERED_MAX, 0]);
    expect(new Set(all.slice(0, UNANSWERED_MAX).map(({ operation }) => operation.requestId)).size).toBe(UNANSWERED_MAX);
    reply(all[3]!.operation.requestId);
    fake.progress();
    expect(isSent(UNANSWERED_MAX)).toBe(false);
    sent(Status.OK, 3);
    expect([endpoint.calls.length, all[UNANSWERED_MAX]!.operation.requestId]).toEqual([
      UNANSWERED_MAX + 1,
      UNANSWERED_MAX + 1,
    ]);
    expect(all[UNANSWERED_MAX + 1]!.operation.requestId).toBe(0);
  });

  it('that wait send nothing once they are canceled, and leave their turn to the next', () => {
    const all = Array.from({ length: UNANSWERED_MAX + 2 }, put);
    all[UNANSWERED_MAX]!.operation.abort(Status.CANCELED);
    fake.progress();
    expect([all[UNANSWERED_MAX]!.request.status, endpoint.calls.length]).toEqual([Status.CANCELED, UNANSWERED_MAX]);
    reply(all[0]!.operation.requestId);
    sent(Status.OK, 0);
    expect([endpoint.calls.length, all[UNANSWERED_MAX + 1]!.operation.requestId]).toEqual([
      UNANSWERED_MAX + 1,
      UNANSWERED_MAX + 1,
    ]);
  });

  it('do not wait for those of another one', () => {
    for (let i = 0; i < UNANSWERED_MAX; i++) put();
    const other = new FakeEndpoint();
    start(OwnerRequest.ofTransfer({ operation: Operation.PUT, ...REMOTE, ...LOCAL } as never), other);
    expect(other.started).toEqual(['sendOwn']);
  });
});

it('a callback of the program may start the next operation', () => {
  const { request, operation } = put();
  const next = vi.fn(() => put());
  request.callback = () => void next();
  sent();
  reply(operation.requestId);
  expect(next).toHaveBeenCalledTimes(1);
  expect(endpoint.calls.length).toBe(2);
});
