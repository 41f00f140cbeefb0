/** How an operation ends over fake ranks: when all its parts have, when it fails, and that its scratch memory is given back, once. */

import { beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeMemory, FakeTeam } from '../../../../test/fixtures/coll/fake-team.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { Kind } from '../layout/header.ts';
import { Operation } from './operation.ts';

/** Numbers of a short message, and of a part whose receiver offers memory, which is mapped. */
const SHORT = 64;
const LONG = 32 * 1024;

let team: FakeTeam;
beforeEach(() => {
  team = new FakeTeam();
});

/** What the other rank adds. */
const twos = (numbers: number): Uint8Array => new Uint8Array(4 * numbers).fill(2);

describe('an operation', () => {
  it('ends when its messages have ended and those of the others have come, with their bytes', () => {
    const callback = vi.fn();
    const { request, recv } = team.allReduce(SHORT, { callback });
    expect([team.kinds, team.taken.size]).toEqual([['data 1'], 1]);
    team.receive(Kind.DATA, {}, { data: twos(SHORT) });
    expect([request.isCompleted, team.core.inProgress]).toEqual([false, 1]);
    team.endAll();
    expect([request.status, team.core.inProgress, team.taken.size]).toEqual([Status.OK, 0, 0]);
    expect(callback.mock.calls).toEqual([[request, Status.OK]]);
    expect(recv).toEqual(new Uint8Array(4 * SHORT).fill(3));
  });

  it('takes a message that came before it began, and gives it back', () => {
    const plan = team.plan('barrier');
    const first = team.begin(plan);
    const { header } = team.sent[0]!;
    team.receive(Kind.DATA, { sequence: 1 });
    expect([team.kept.size, first.isCompleted]).toEqual([1, false]);
    const second = team.begin(plan);
    team.endAll();
    expect([first.isCompleted, second.isCompleted, team.kept.size]).toEqual([false, true, 0]);
    team.receive(Kind.DATA, { sequence: header.sequence });
    expect(first.status).toBe(Status.OK);
  });

  it('that ends in its call has no request, unless one is wanted', () => {
    const alone = new FakeTeam({ size: 1 });
    expect(alone.core.begin(alone.plan('barrier'), undefined)).toBe(Status.OK);
    const callback = vi.fn();
    const request = alone.begin(alone.plan('barrier'), { callback });
    expect(callback.mock.calls).toEqual([[request, Status.OK]]);
  });

  it('whose callback throws passes that on to the worker', () => {
    team.begin(team.plan('barrier'), {
      callback: () => {
        throw new Error('thrown');
      },
    });
    team.receive(Kind.DATA);
    team.endAll();
    expect(team.worker.onThrown.mock.calls).toEqual([[new Error('thrown')]]);
    expect(team.core.inProgress).toBe(0);
  });
});

describe('an operation that makes progress', () => {
  const CHECK_NS = 20e6;

  it.each([
    ['ends', () => team.sent[0]!.end()],
    ['comes', () => team.receive(Kind.DATA, { round: 99, from: 1 })],
  ])('is not stuck: a message of it %s', (_name, happen) => {
    team.begin(team.plan('barrier'));
    team.clock.advance(CHECK_NS);
    happen();
    team.clock.advance(CHECK_NS);
    expect(team.kinds).toEqual(['data 1']);
    team.clock.advance(CHECK_NS);
    expect(team.kinds).toEqual(['data 1', 'check_receive 1']);
  });
});

describe('an operation that fails', () => {
  it('gives its scratch memory back when its messages have ended, not before', () => {
    const { request } = team.allReduce(SHORT);
    team.fail();
    expect([team.sent[0]!.isCanceled(), request.isCompleted, team.taken.size]).toEqual([true, false, 1]);
    team.sent[0]!.end(Status.CANCELED);
    expect([request.status, team.taken.size, team.core.inProgress]).toEqual([Status.CANCELED, 0, 0]);
    expect(request.error).toMatchObject({ code: 'ERR_COLL_RANK_FAILED' });
  });

  it('ends with the first failure', () => {
    const { request } = team.allReduce(SHORT);
    team.fail('rank 1 has no memory', { status: Status.NO_MEMORY });
    team.fail('rank 1 has cancelled', { status: Status.CANCELED });
    team.endAll();
    expect(request.status).toBe(Status.NO_MEMORY);
  });

  it('keeps memory that a peer may write to, until it says that it does not', () => {
    const { request } = team.allReduce(LONG);
    const [offer] = team.sent;
    expect([team.kinds, offer!.rest, team.mapper.mapped.size]).toEqual([['ready 1'], Uint8Array.of(1, 2, 3), 1]);
    offer!.end();
    team.fail();
    team.endAll();
    expect([request.isCompleted, team.taken.size]).toEqual([false, 1]);
    team.receive(Kind.NOTICE, { ...offer!.header, kind: Kind.NOTICE, from: 1, status: Status.CANCELED });
    expect([request.isCompleted, team.taken.size]).toEqual([true, 0]);
  });

  it('keeps it until the peer is lost', () => {
    const { request } = team.allReduce(LONG);
    team.fail();
    team.endAll();
    expect(request.isCompleted).toBe(false);
    team.receive(Kind.LEAVE, { from: 1, status: Status.OK });
    team.clock.advance(20e6);
    expect([request.isCompleted, team.taken.size]).toEqual([true, 0]);
  });

  it('does not wait for memory whose offer could not be sent', () => {
    const { request } = team.allReduce(LONG);
    team.sent[0]!.end(Status.IO_ERROR);
    expect([request.status, team.taken.size]).toEqual([Status.IO_ERROR, 0]);
  });

  it('refuses memory that peers offer for it, also later: they wait for an answer', () => {
    team.allReduce(LONG);
    const { header } = team.sent[0]!;
    team.receive(Kind.READY, { ...header, from: 1, kind: Kind.READY });
    expect(team.kinds).toEqual(['ready 1', 'data 1']);
    team.fail();
    team.receive(Kind.READY, { ...header, from: 1, kind: Kind.READY });
    expect(team.kinds.slice(2)).toEqual(['notice 1']);
    expect(team.sent[2]!.header).toMatchObject({ status: Status.CANCELED, slice: header.slice, round: header.round });
  });

  it('refuses memory that was offered for a part to come', () => {
    const { header } = team.allReduce(LONG) && team.sent[0]!;
    team.receive(Kind.READY, { ...header, from: 1, kind: Kind.READY, round: header.round + 1 });
    expect(team.kinds).toEqual(['ready 1']);
    team.fail();
    expect([team.kinds.at(-1), team.sent.at(-1)!.header.round]).toEqual(['notice 1', header.round + 1]);
  });

  it('does not wait for a peer that is lost already', () => {
    const { request } = team.allReduce(LONG);
    team.endAll();
    team.receive(Kind.LEAVE, { from: 1, status: Status.OK });
    request.cancel();
    expect([request.status, team.taken.size]).toEqual([Status.CANCELED, 0]);
  });

  it('does not wait for memory whose offer was canceled: no peer knows of it', () => {
    const { request } = team.allReduce(LONG);
    team.fail();
    team.sent[0]!.end(Status.CANCELED);
    expect([request.status, team.taken.size]).toEqual([Status.CANCELED, 0]);
  });

  it('does not wait for memory whose offer found the peer lost', () => {
    const { request } = team.allReduce(LONG);
    team.sent[0]!.end(Status.CONNECTION_RESET);
    expect(request.isCompleted).toBe(false);
    team.clock.advance(20e6);
    expect([request.status, team.taken.size]).toEqual([Status.CONNECTION_RESET, 0]);
  });

  it('gives back messages that came early', () => {
    const { header } = team.allReduce(SHORT) && team.sent[0]!;
    team.receive(Kind.DATA, { round: header.round + 1 }, { data: twos(SHORT) });
    expect(team.kept.size).toBe(1);
    team.fail();
    expect(team.kept.size).toBe(0);
  });

  it('cannot be canceled again', () => {
    const { request } = team.allReduce(SHORT);
    expect([request.cancel(), request.cancel()]).toEqual([true, false]);
    team.endAll();
    expect([request.status, request.cancel()]).toEqual([Status.CANCELED, false]);
    expect(team.kinds).toEqual(['data 1', 'failure 1']);
  });

  it('because memory is missing fails on all ranks', () => {
    vi.spyOn(team.mapper, 'memMap').mockImplementation(() => {
      throw statusError(Status.NO_MEMORY, 'map');
    });
    const { request } = team.allReduce(LONG);
    expect([request.status, team.kinds, team.core.inProgress]).toEqual([Status.NO_MEMORY, ['failure 1'], 0]);
  });
});

describe('a single operation', () => {
  it('ends with the first of several failures', () => {
    const onEnded = vi.fn();
    const operation = new Operation(team.core.state, 0, team.plan('barrier'), onEnded);
    operation.start();
    const [first, second] = [statusError(Status.NO_MEMORY, 'first'), statusError(Status.IO_ERROR, 'second')];
    operation.fail(first);
    operation.fail(second);
    expect([operation.failure, onEnded.mock.calls]).toEqual([first, []]);
    team.endAll();
    expect(onEnded.mock.calls).toEqual([[operation]]);
    operation.fail(second);
    expect(operation.failure).toBe(first);
  });
});

describe('a copy of this rank between memories of cards', () => {
  it('ends when its bytes are there, and the operation releases its key', () => {
    const alone = new FakeTeam({ size: 1 });
    const [send, recv] = [new FakeMemory(alone.mapper, 64, true), new FakeMemory(alone.mapper, 64, true)];
    Object.defineProperty(recv, 'sysDevice', { value: 1 });
    const request = alone.begin(alone.plan('allGather', send as never, recv as never));
    expect([alone.open.length, alone.sent[0]!.isPut, alone.keys]).toEqual([1, true, 1]);
    alone.open[0]!.end();
    expect([request.isCompleted, alone.open.length, alone.sent[1]!.isPut]).toEqual([false, 1, false]);
    alone.open[0]!.end();
    expect([request.status, alone.keys]).toEqual([Status.OK, 0]);
  });

  it('that fails fails the operation', () => {
    const alone = new FakeTeam({ size: 1 });
    const [send, recv] = [new FakeMemory(alone.mapper, 64, true), new FakeMemory(alone.mapper, 64, true)];
    Object.defineProperty(recv, 'sysDevice', { value: 1 });
    const request = alone.begin(alone.plan('allGather', send as never, recv as never));
    alone.open[0]!.end(Status.IO_ERROR);
    expect([request.status, alone.sent.length, alone.keys]).toEqual([Status.IO_ERROR, 1, 0]);
  });
});

describe('a part of another length', () => {
  it('fails the team: a message is not written to memory that is too short', () => {
    const { request, recv } = team.allReduce(SHORT);
    team.receive(Kind.DATA, {}, { data: twos(SHORT + 1) });
    team.endAll();
    expect([request.status, recv, team.taken.size]).toEqual([
      Status.INVALID_PARAM,
      new Uint8Array(4 * SHORT).fill(1),
      0,
    ]);
  });

  it('is refused if memory is offered for it', () => {
    const { request } = team.allReduce(LONG);
    const { header } = team.sent[0]!;
    team.receive(Kind.READY, { ...header, from: 1, kind: Kind.READY, byteLength: 4 * LONG - 4 });
    expect(team.kinds).toEqual(['ready 1', 'failure 1', 'notice 1']);
    expect(team.core.failure?.status).toBe(Status.INVALID_PARAM);
    expect(request.isCompleted).toBe(false);
  });
});

describe('a long part', () => {
  it('is written to the memory of its receiver, with the notice of it', () => {
    team.allReduce(LONG);
    const { header } = team.sent[0]!;
    const offered = { ...header, from: 1, kind: Kind.READY, offset: 64 };
    team.receive(Kind.READY, offered, { rest: Uint8Array.of(9, 9) });
    const put = team.sent[1]!;
    expect([put.isPut, put.bytes, put.header.kind, put.header.round]).toEqual([
      true,
      4 * LONG,
      Kind.NOTICE,
      header.round,
    ]);
  });

  it('has come with its notice; the operation reads it then', () => {
    const { request, recv } = team.allReduce(LONG);
    const { header } = team.sent[0]!;
    team.receive(Kind.READY, { ...header, from: 1, kind: Kind.READY, byteLength: 4 * LONG });
    [...team.mapper.mapped][0]!.bytes!.fill(2);
    team.receive(Kind.NOTICE, { ...header, from: 1, kind: Kind.NOTICE });
    const [offer, sent] = team.sent;
    sent!.end();
    // Nothing is missing but the end of the offer, whose header is in use.
    expect(request.isCompleted).toBe(false);
    offer!.end();
    expect([request.status, recv.every((byte) => byte === 3), team.taken.size]).toEqual([Status.OK, true, 0]);
  });
});
