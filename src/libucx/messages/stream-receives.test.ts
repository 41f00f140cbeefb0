/** Receives of a stream over a fake libucp, whose bytes come in chunks: order, lengths, cancellation, and chunks that are released once. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeCore } from '../../../test/fixtures/libucp/fake-core.ts';
import { FakeLibucp } from '../../../test/fixtures/libucp/fake-libucp.ts';
import type { RequestParams, StreamRecvParams } from '../../api/contract/request.ts';
import { addressOf, viewAt } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { DataReceives } from '../device/receives.ts';
import { UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRequest } from '../request/request.ts';
import { EndpointStream, StreamReceives } from './stream-receives.ts';

const EP = 0x3300;
const QUIET_CALLS = 64;

let fake: FakeCore;
let streams: StreamReceives;
let stream: EndpointStream;
/** Chunks that libucp has, and those that it has passed on and that were not released. */
let arrived: Uint8Array[];
let held: Uint8Array[];
/** Copies to a card, which the test ends. */
let copies: { readonly source: Uint8Array; readonly params: RequestParams }[];
const copyOut = vi.fn();

beforeEach(() => {
  arrived = [];
  held = [];
  copies = [];
  copyOut.mockReset();
  copyOut.mockImplementation(({ source }: { source: Uint8Array }, _given: unknown, params: RequestParams) => {
    copies.push({ source: source.slice(), params });
    return {};
  });
  const libucp = new FakeLibucp({
    ucp_stream_recv_data_nb: (ep, length) => {
      expect(ep).toBe(EP);
      const chunk = arrived.shift();
      if (chunk === undefined) return 0;
      held.push(chunk);
      new DataView(viewAt(length, 8)).setBigUint64(0, BigInt(chunk.byteLength), true);
      return addressOf(chunk);
    },
    ucp_stream_data_release: (_ep, data) => {
      const at = held.findIndex((chunk) => addressOf(chunk) === data);
      expect(at).toBeGreaterThanOrEqual(0);
      // Its memory is libucp's again.
      held.splice(at, 1)[0]!.fill(0xee);
    },
  });
  fake = new FakeCore(libucp);
  streams = new StreamReceives({ copyOut } as unknown as DataReceives);
  stream = new EndpointStream(fake.core, streams, EP);
});
afterEach(() => {
  streams.close();
  fake[Symbol.dispose]();
});

const bytes = (first: number, length: number): Uint8Array => Uint8Array.from({ length }, (_, at) => first + at);

function receive(into: Uint8Array | UcpMemory, params?: StreamRecvParams): UcpRequest | Status {
  const range = { local: into, localOffset: 0, byteLength: into.byteLength };
  return stream.receive(range, params) as UcpRequest | Status;
}

function pending(into: Uint8Array | UcpMemory, params?: StreamRecvParams): UcpRequest {
  const started = receive(into, params);
  expect(typeof started).toBe('object');
  return started as UcpRequest;
}

function card(): UcpMemory {
  const extent = { memoryType: MemoryType.GAUDI, sysDevice: undefined, address: 0n, byteLength: 8, bytes: undefined };
  const parts = { memh: 0, allocation: undefined, exportId: 1, access: MemAccess.ALL };
  return new UcpMemory(fake.core.context, { ...extent, mapped: true } as never, parts);
}

const endCopy = (index: number, status: Status = Status.OK): void =>
  copies[index]!.params.callback!({ free: () => {} } as never, status);

describe('a receive', () => {
  it('takes what has come, and leaves the rest to the next', () => {
    arrived.push(bytes(1, 6));
    const [first, second] = [new Uint8Array(4), new Uint8Array(4)];
    expect(receive(first)).toBe(Status.OK);
    expect([first, held.length]).toEqual([bytes(1, 4), 1]);
    expect(receive(second)).toBe(Status.OK);
    expect([second, held.length]).toEqual([Uint8Array.of(5, 6, 0, 0), 0]);
    expect(fake.core.requests.operations.values['bytes_rx']).toBe(6);
  });

  it('goes over chunks as long as there are some', () => {
    arrived.push(bytes(1, 2), bytes(3, 2), bytes(5, 2));
    const into = new Uint8Array(5);
    expect(receive(into)).toBe(Status.OK);
    expect([into, held.length]).toEqual([bytes(1, 5), 1]);
    expect([stream.take(), held]).toEqual([bytes(6, 1), []]);
  });

  it('of all bytes waits until its memory is full', () => {
    const into = new Uint8Array(4);
    arrived.push(bytes(1, 3));
    const request = pending(into, { waitAll: true });
    expect([request.isCompleted, request.byteLength]).toEqual([false, 4]);
    arrived.push(bytes(4, 2));
    expect([streams.progress(1), request.status, request.receivedBytes, into]).toEqual([1, Status.OK, 4, bytes(1, 4)]);
  });

  it('of no bytes ends at once, in its turn', () => {
    expect(receive(new Uint8Array(0))).toBe(Status.OK);
    pending(new Uint8Array(2));
    const empty = pending(new Uint8Array(0));
    arrived.push(bytes(1, 2));
    expect([streams.progress(1), empty.status]).toEqual([2, Status.OK]);
  });

  it('comes behind those before it, and bytes are not taken beside it', () => {
    const [first, second] = [new Uint8Array(2), new Uint8Array(2)];
    const requests = [pending(first), pending(second)];
    arrived.push(bytes(1, 3));
    expect(stream.take()).toBeUndefined();
    expect(streams.checkReady()).toBe(true);
    expect(streams.progress(1)).toBe(2);
    expect([first, second, requests[1]!.receivedBytes]).toEqual([bytes(1, 2), Uint8Array.of(3, 0), 1]);
  });

  it('looks at its stream at every 64th progress, without a report of libucp', () => {
    const request = pending(new Uint8Array(2));
    arrived.push(bytes(1, 2));
    for (let i = 1; i < QUIET_CALLS; i++) streams.progress(0);
    expect(request.isCompleted).toBe(false);
    streams.progress(0);
    expect(request.status).toBe(Status.OK);
  });

  it('without a free request takes nothing', () => {
    while (fake.core.requests.beginComposite('list') !== undefined);
    arrived.push(bytes(1, 2));
    expect(receive(new Uint8Array(2))).toBe(Status.NO_RESOURCE);
    expect(arrived.length).toBe(1);
  });
});

describe('a cancellation', () => {
  it('ends a receive that has received nothing, and leaves the bytes to the others', () => {
    const [first, second] = [new Uint8Array(2), new Uint8Array(2)];
    const requests = [pending(first), pending(second)];
    expect([requests[0]!.cancel(), requests[0]!.status]).toEqual([true, Status.CANCELED]);
    arrived.push(bytes(1, 2));
    streams.progress(1);
    expect([first, second, requests[1]!.status]).toEqual([new Uint8Array(2), bytes(1, 2), Status.OK]);
    expect([requests[0]!.cancel(), requests[1]!.cancel()]).toEqual([false, false]);
  });

  it('is too late once bytes are in the memory', () => {
    arrived.push(bytes(1, 2));
    const request = pending(new Uint8Array(4), { waitAll: true });
    expect([request.cancel(), request.isCompleted]).toEqual([false, false]);
  });

  it('is too late while bytes are copied to a card', () => {
    arrived.push(bytes(1, 8));
    const request = pending(card());
    expect([copies.length, request.cancel(), request.isCompleted]).toEqual([1, false, false]);
    endCopy(0);
    expect([request.status, held]).toEqual([Status.OK, []]);
  });
});

describe('a receive into a card', () => {
  it('ends with its copy; the next waits for it', () => {
    arrived.push(bytes(1, 8), bytes(9, 2));
    const into = new Uint8Array(2);
    const requests = [pending(card()), pending(into)];
    expect([copies[0]!.source, requests[1]!.isCompleted, held.length > 0]).toEqual([bytes(1, 8), false, true]);
    endCopy(0);
    expect(requests.map(({ status }) => status)).toEqual([Status.OK, Status.OK]);
    expect([into, held]).toEqual([bytes(9, 2), []]);
  });

  it('counts once: its copies are parts of it', () => {
    const datatype = { copyOut: () => {} };
    const receives = new DataReceives(fake.core, {} as never, fake.steps, datatype as never);
    copyOut.mockImplementation((...values: Parameters<DataReceives['copyOut']>) => receives.copyOut(...values));
    arrived.push(bytes(1, 8));
    expect(receive(card())).toBe(Status.OK);
    const { stream_rx, bytes_rx, bytes_tx, am_tx, am_rx_data } = fake.core.requests.operations.values;
    expect([stream_rx, bytes_rx, bytes_tx, am_tx, am_rx_data]).toEqual([1, 8, 0, 0, 0]);
  });

  it('that could not be copied fails', () => {
    arrived.push(bytes(1, 8));
    const request = pending(card());
    endCopy(0, Status.IO_ERROR);
    expect(request.status).toBe(Status.IO_ERROR);
  });

  it('is tried again while no request is free, and its bytes stay', () => {
    copyOut.mockReturnValueOnce(Status.NO_RESOURCE);
    arrived.push(bytes(1, 8));
    const request = pending(card());
    expect([request.isCompleted, copies.length]).toEqual([false, 0]);
    streams.progress(1);
    expect(copies[0]!.source).toEqual(bytes(1, 8));
    endCopy(0);
    expect(request.status).toBe(Status.OK);
  });

  it('whose endpoint fails meanwhile ends with the copy', () => {
    arrived.push(bytes(1, 8));
    const requests = [pending(card()), pending(new Uint8Array(2))];
    stream.fail(Status.CONNECTION_RESET);
    expect(requests.map(({ isCompleted }) => isCompleted)).toEqual([false, false]);
    endCopy(0);
    expect(requests.map(({ status }) => status)).toEqual([Status.OK, Status.CONNECTION_RESET]);
  });

  it('whose endpoint is closed meanwhile ends with the copy', () => {
    arrived.push(bytes(1, 8));
    const requests = [pending(card()), pending(new Uint8Array(2))];
    stream.cancelAll();
    expect(requests.map(({ status }) => status)).toEqual([Status.INPROGRESS, Status.CANCELED]);
    stream.close();
    endCopy(0);
    expect([requests[0]!.status, held]).toEqual([Status.OK, []]);
  });
});

describe('the stream of an endpoint that is gone', () => {
  it('gives the bytes that came before, then its failure', () => {
    arrived.push(bytes(1, 2), bytes(3, 2));
    stream.collect();
    stream.fail(Status.CONNECTION_RESET);
    const into = new Uint8Array(4);
    expect([receive(into), into]).toEqual([Status.OK, bytes(1, 4)]);
    expect([receive(into), fake.core.requests.inUse]).toEqual([Status.CONNECTION_RESET, 0]);
  });

  it('ends pending receives with its failure', () => {
    const requests = [pending(new Uint8Array(2)), pending(new Uint8Array(2))];
    stream.fail(Status.CONNECTION_RESET);
    expect(requests.map(({ status }) => status)).toEqual([Status.CONNECTION_RESET, Status.CONNECTION_RESET]);
  });

  it('keeps what has come when its handle becomes invalid, and releases it before', () => {
    arrived.push(bytes(1, 4), bytes(5, 4));
    const into = new Uint8Array(3);
    expect(receive(into)).toBe(Status.OK);
    stream.detach(false);
    expect([held, arrived]).toEqual([[], []]);
    stream.detach(false);
    const rest = new Uint8Array(5);
    expect([receive(rest), rest]).toEqual([Status.OK, bytes(4, 5)]);
  });

  it('does not use a handle that is invalid already', () => {
    arrived.push(bytes(1, 4), bytes(5, 4));
    expect(receive(new Uint8Array(2))).toBe(Status.OK);
    stream.detach(true);
    expect([arrived.length, held.length]).toEqual([1, 1]);
    const rest = new Uint8Array(4);
    expect(receive(rest)).toBe(Status.OK);
    expect(rest).toEqual(Uint8Array.of(3, 4, 0, 0));
  });

  it('releases all chunks, once, when it is closed, and asks for no more', () => {
    arrived.push(bytes(1, 4), bytes(5, 4));
    stream.collect();
    stream.close();
    arrived.push(bytes(1, 4));
    stream.close();
    expect([held, stream.hasBytes, arrived.length]).toEqual([[], false, 1]);
  });
});
