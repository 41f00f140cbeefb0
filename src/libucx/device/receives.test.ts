/** Receives of the data of active messages over a fake libucp: what becomes of the data that libucp keeps, and of its sender. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeCore, FakeEndpoint } from '../../../test/fixtures/libucp/fake-core.ts';
import { FakeLibucp } from '../../../test/fixtures/libucp/fake-libucp.ts';
import { ReceivedMessage } from '../../api/awaited/messages.ts';
import { addressOf } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UcpRequest } from '../request/request.ts';
import { DataReceives } from './receives.ts';

const DESCRIPTOR = { address: 0x9000 };
const LENGTH = 16;

const ucp_am_recv_data_nbx = vi.fn((_worker: number, _data: number, _address: number, _count: number, _p: number) => 0);
const release = vi.fn();
const take = vi.fn(({ address }: { address: number }) => address);
const copyOut = vi.fn();
const releaseData = vi.fn();
let fake: FakeCore;
let receives: DataReceives;

beforeEach(() => {
  for (const mock of [ucp_am_recv_data_nbx, release, take, copyOut, releaseData]) mock.mockClear();
  ucp_am_recv_data_nbx.mockReturnValue(0);
  fake = new FakeCore(new FakeLibucp({ ucp_am_recv_data_nbx }));
  receives = new DataReceives(fake.core, { release, take } as never, fake.steps, { copyOut } as never);
});
afterEach(() => fake[Symbol.dispose]());

function message({ isLong = true, sender = undefined as FakeEndpoint | undefined } = {}): ReceivedMessage {
  const arrived = new ReceivedMessage({ releaseData } as never);
  arrived.byteLength = LENGTH;
  arrived.sender = sender;
  if (isLong) arrived.waiting = DESCRIPTOR;
  else arrived.source = new Uint8Array(LENGTH);
  return arrived;
}

const into = (bytes: Uint8Array, localOffset = 0, byteLength = bytes.byteLength - localOffset) => ({
  local: bytes,
  localOffset,
  byteLength,
});

describe('a receive', () => {
  it('of data that libucp keeps passes it on, to as much memory as there is data', () => {
    const bytes = new Uint8Array(64);
    const arrived = message();
    expect(receives.receive(arrived, into(bytes, 8), undefined)).toBe(Status.OK);
    expect(ucp_am_recv_data_nbx.mock.calls[0]!.slice(1, 4)).toEqual([0x9000, addressOf(bytes) + 8, LENGTH]);
    expect([take.mock.calls.length, release.mock.calls, arrived.waiting, arrived.isReceived]).toEqual([
      1,
      [],
      undefined,
      true,
    ]);
    expect(fake.core.requests.operations.values['bytes_rx']).toBe(LENGTH);
  });

  it('that is pending ends with its sender', () => {
    const sender = new FakeEndpoint();
    ucp_am_recv_data_nbx.mockReturnValue(fake.requests.libucp.request());
    const request = receives.receive(message({ sender }), into(new Uint8Array(64)), undefined) as UcpRequest;
    expect([request.endpoint, request.isCompleted]).toEqual([sender, false]);
  });

  it('into memory that is too short is refused, and possible again', () => {
    const arrived = message();
    for (const range of [into(new Uint8Array(15)), into(new Uint8Array(64), 0, 15), into(new Uint8Array(8), 0, 0.5)]) {
      expect(() => receives.receive(arrived, range, undefined)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
      );
    }
    expect(() => receives.receive(arrived, { ...into(new Uint8Array(64)), localOffset: 60 }, undefined)).toThrow();
    expect([arrived.isReceived, arrived.waiting, take.mock.calls, fake.core.requests.inUse]).toEqual([
      false,
      DESCRIPTOR,
      [],
      0,
    ]);
    expect(receives.receive(arrived, into(new Uint8Array(LENGTH)), undefined)).toBe(Status.OK);
  });

  it('from a sender that has failed ends with its failure, and releases the data once', () => {
    const sender = new FakeEndpoint();
    sender.status = Status.CONNECTION_RESET;
    const arrived = message({ sender });
    // Memory that is wrong is reported first, as for every receive.
    const outside = { ...into(new Uint8Array(64)), localOffset: 60 };
    expect(() => receives.receive(arrived, outside, undefined)).toThrow(/localOffset|offset/);
    expect([release.mock.calls, arrived.isReceived]).toEqual([[], false]);
    expect(receives.receive(arrived, into(new Uint8Array(64)), undefined)).toBe(Status.CONNECTION_RESET);
    expect([release.mock.calls, ucp_am_recv_data_nbx.mock.calls, arrived.isReceived]).toEqual([
      [[DESCRIPTOR]],
      [],
      true,
    ]);
    arrived.release();
    expect(releaseData).not.toHaveBeenCalled();
  });

  it('without a free request can be tried again', () => {
    const held = Array.from({ length: 64 }, () => fake.core.requests.beginComposite('list')!);
    const arrived = message();
    const short = message({ isLong: false });
    for (const each of [arrived, short]) {
      expect(receives.receive(each, into(new Uint8Array(64)), undefined)).toBe(Status.NO_RESOURCE);
      expect(each.isReceived).toBe(false);
    }
    expect([take.mock.calls, arrived.waiting]).toEqual([[], DESCRIPTOR]);
    fake.core.requests.discard(held[0]!);
    expect(receives.receive(arrived, into(new Uint8Array(64)), undefined)).toBe(Status.OK);
  });

  it('of data that has come copies it', () => {
    const bytes = new Uint8Array(64);
    const arrived = message({ isLong: false });
    expect(receives.receive(arrived, into(bytes, 8), undefined)).toBe(Status.OK);
    expect(copyOut.mock.calls[0]!.slice(1)).toEqual([
      [expect.objectContaining({ memory: bytes, offset: 8, byteLength: LENGTH })],
      arrived,
    ]);
    const { bytes_rx, bytes_tx, am_tx, am_rx_data } = fake.core.requests.operations.values;
    expect([arrived.isReceived, bytes_rx, bytes_tx, am_tx, am_rx_data]).toEqual([true, LENGTH, 0, 0, 1]);
  });
});

describe('a receive of the engine itself', () => {
  const done = vi.fn();
  beforeEach(() => done.mockClear());
  const start = (arrived: ReceivedMessage, isWanted = () => true): void =>
    receives.receiveOwn(arrived, into(new Uint8Array(LENGTH)), isWanted, done);

  it('ends when the data is in its memory', () => {
    const handle = fake.requests.libucp.request();
    ucp_am_recv_data_nbx.mockReturnValue(handle);
    const arrived = message();
    start(arrived);
    fake.progress();
    expect(done).not.toHaveBeenCalled();
    const request = fake.core.requests.all[0]!;
    request.end(Status.OK);
    fake.progress();
    expect(done.mock.calls).toEqual([[Status.OK, undefined]]);
    expect([fake.core.requests.inUse, releaseData.mock.calls]).toEqual([0, []]);
  });

  it('that is not wanted any more drops the data', () => {
    const arrived = message();
    start(arrived, () => false);
    expect([done.mock.calls, releaseData.mock.calls.length]).toEqual([[[Status.CANCELED, undefined]], 1]);
    expect(ucp_am_recv_data_nbx).not.toHaveBeenCalled();
  });

  it('keeps the message while no request is free, beyond its handler', () => {
    const held = Array.from({ length: 64 }, () => fake.core.requests.beginComposite('list')!);
    const arrived = message();
    start(arrived);
    expect([arrived.isTaken, done.mock.calls]).toEqual([true, []]);
    // The next message uses the object.
    arrived.isOver = true;
    arrived.waiting = undefined;
    fake.progress();
    fake.core.requests.discard(held[0]!);
    fake.progress();
    expect([done.mock.calls, ucp_am_recv_data_nbx.mock.calls[0]![1]]).toEqual([[[Status.OK, undefined]], 0x9000]);
    expect(releaseData).not.toHaveBeenCalled();
  });

  it('that is not wanted while it waits drops the data', () => {
    const held = Array.from({ length: 64 }, () => fake.core.requests.beginComposite('list')!);
    let isWanted = true;
    start(message(), () => isWanted);
    isWanted = false;
    fake.core.requests.discard(held[0]!);
    fake.progress();
    expect([done.mock.calls, releaseData.mock.calls.length]).toEqual([[[Status.CANCELED, undefined]], 1]);
  });
});
