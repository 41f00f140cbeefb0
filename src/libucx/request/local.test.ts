/** The local side of operations over a fake libucp: what it passes as address and count, and what it refuses before libucp has it. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeRequests } from '../../../test/fixtures/libucp/fake-libucp.ts';
import type { Piece } from '../../api/memory/local.ts';
import { addressOf, viewAt } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_DATATYPE, UCP_DT_IOV } from '../c/abi.ts';
import { type LocalBuffer, type LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import { cutList, LocalRanges } from './local.ts';
import { RequestKind, TRANSPORT } from './request.ts';

const MEMH = 0x55;
const DEVICE_TYPE = 9;

let fake: FakeRequests;
let ranges: LocalRanges;
const initDatatype = vi.fn((_request: unknown, _pieces: readonly Piece<LocalMemory>[], _byteLength: number) => 0xd7);
const owner = { libucp: { functions: {}, minor: 13 }, handle: 1, access: { memoryType: DEVICE_TYPE } };

beforeEach(() => {
  fake = new FakeRequests();
  initDatatype.mockClear();
  ranges = new LocalRanges(owner as never, fake.requests, initDatatype);
});
afterEach(() => fake[Symbol.dispose]());

/** Mapped memory: of a card if it has no bytes, and unknown to libucp without a handle. */
function mapped(
  bytes: Uint8Array | undefined,
  { memh = MEMH, access = MemAccess.ALL as number, by = owner as object } = {},
) {
  const address = bytes === undefined ? 0x1_0000_0000n : BigInt(addressOf(bytes));
  const memoryType = bytes === undefined ? MemoryType.GAUDI : MemoryType.HOST;
  const node = { memoryType, sysDevice: undefined, address, byteLength: 256, bytes, mapped: true };
  return new UcpMemory(by, node as never, { memh, allocation: undefined, exportId: 0, access });
}

function begin(local: LocalBuffer, localOffset: number, byteLength: number) {
  const range = { local, localOffset, byteLength };
  return ranges.begin(RequestKind.SEND, 'tag/libucp', range as never, MemAccess.LOCAL_READ)!;
}

describe('bytes of a program', () => {
  it('are passed by their address, and kept until the end', () => {
    const bytes = new Uint8Array(64);
    const request = begin(bytes, 8, 16);
    expect([request.address, request.count, request.byteLength]).toEqual([addressOf(bytes) + 8, 16, 16]);
    expect([request.pinned, request.transport]).toEqual([bytes, TRANSPORT]);
  });

  it.each([
    [60, 5],
    [-1, 4],
    [0, -1],
    [0.5, 1],
    [0, Number.NaN],
  ])('are refused from %d with length %d, and their request is free again', (offset, byteLength) => {
    const bytes = new Uint8Array(64);
    expect(() => begin(bytes, offset, byteLength)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    expect([fake.requests.inUse, ranges.plainAddress(bytes, offset, byteLength)]).toEqual([0, -1]);
  });

  it('are refused if their memory can go away', () => {
    const Resizable = ArrayBuffer as new (byteLength: number, options: { maxByteLength: number }) => ArrayBuffer;
    const bytes = new Uint8Array(new Resizable(64, { maxByteLength: 128 }));
    expect(() => begin(bytes, 0, 8)).toThrow(/resizable/);
    expect(() => begin([{ memory: bytes, offset: 0, byteLength: 8 }], 0, 8)).toThrow(/resizable/);
    expect(() => ranges.beginKnown('put/libucp', bytes, 0, 8)).toThrow(/resizable/);
    expect([ranges.plainAddress(bytes, 0, 8), fake.requests.inUse]).toEqual([-1, 0]);
  });

  it('need no request if they are plain', () => {
    const bytes = new Uint8Array(64);
    expect(ranges.plainAddress(bytes, 64, 0)).toBe(addressOf(bytes) + 64);
    expect(ranges.plainAddress(bytes, 1, 63)).toBe(addressOf(bytes) + 1);
    expect(ranges.plainAddress(new Uint8Array(0), 0, 0)).toBe(0);
  });

  it('are not taken beyond the limit of requests', () => {
    using one = new FakeRequests(fake.libucp, 1);
    const few = new LocalRanges(owner as never, one.requests, initDatatype);
    const range = { local: new Uint8Array(8), localOffset: 0, byteLength: 8 };
    expect(few.begin(RequestKind.SEND, 'tag/libucp', range, MemAccess.LOCAL_READ)).toBeDefined();
    expect(few.begin(RequestKind.SEND, 'tag/libucp', range, MemAccess.LOCAL_READ)).toBeUndefined();
    expect(few.beginKnown('put/libucp', range.local, 0, 8)).toBeUndefined();
  });
});

describe('mapped memory', () => {
  it('stays mapped until the operation has ended', () => {
    const bytes = new Uint8Array(256);
    const memory = mapped(bytes);
    const request = ranges.beginKnown('put/libucp', memory, 16, 32)!;
    expect([request.address, request.count, memory.inFlight]).toEqual([addressOf(bytes) + 16, 32, 1]);
    request.end(Status.OK);
    expect(memory.inFlight).toBe(0);
  });

  it('of a card is passed with its type, if libucp knows it', () => {
    const setMemoryType = vi.spyOn(fake.requests.parameters, 'setMemoryType');
    const setMemh = vi.spyOn(fake.requests.parameters, 'setMemh');
    const request = begin(mapped(undefined), 4, 8);
    expect([request.address, request.count]).toEqual([0x1_0000_0004, 8]);
    expect([setMemoryType.mock.calls, setMemh.mock.calls]).toEqual([[[DEVICE_TYPE]], [[MEMH]]]);
    setMemoryType.mockClear();
    begin(mapped(new Uint8Array(256)), 0, 8);
    expect(setMemoryType).not.toHaveBeenCalled();
  });

  it('that libucp does not know becomes a datatype', () => {
    const memory = mapped(undefined, { memh: 0 });
    const request = begin(memory, 4, 8);
    expect([request.address, request.count, request.byteLength]).toEqual([0xd7, 1, 8]);
    expect(initDatatype.mock.calls[0]!.slice(1)).toEqual([[expect.objectContaining({ memory, offset: 4 })], 8]);
    expect([memory.inFlight, ranges.plainAddress(memory, 4, 8)]).toEqual([1, -1]);
    begin(memory, 0, 0);
    expect(initDatatype).toHaveBeenCalledTimes(1);
  });

  it('is plain only if it is host memory of this context that may be read and written', () => {
    const bytes = new Uint8Array(256);
    expect(ranges.plainAddress(mapped(bytes), 8, 248)).toBe(addressOf(bytes) + 8);
    for (const [memory, offset, byteLength] of [
      [mapped(bytes), 8, 249],
      [mapped(undefined), 0, 8],
      [mapped(bytes, { by: {} }), 0, 8],
      [mapped(bytes, { access: MemAccess.LOCAL_READ }), 0, 8],
    ] as const) {
      expect(ranges.plainAddress(memory, offset, byteLength)).toBe(-1);
    }
  });
});

describe('a list', () => {
  const [first, second] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
  const list = [
    { memory: first, offset: 4, byteLength: 8 },
    { memory: second, offset: 0, byteLength: 0 },
    { memory: second, offset: 16, byteLength: 16 },
  ];

  it('of host memory is passed as addresses and lengths, without empty entries', () => {
    const setDatatype = vi.spyOn(fake.requests.parameters, 'setDatatype');
    const request = begin(list as never, 0, 24);
    expect(setDatatype.mock.calls).toEqual([[UCP_DATATYPE.IOV]]);
    expect([request.count, request.byteLength, request.address]).toEqual([2, 24, request.scratch!.address]);
    const view = new DataView(viewAt(request.address, 2 * UCP_DT_IOV.size));
    const entries = [0, UCP_DT_IOV.size].map((at) => [
      Number(view.getBigUint64(at + UCP_DT_IOV.at.buffer, true)),
      Number(view.getBigUint64(at + UCP_DT_IOV.at.length, true)),
    ]);
    expect(entries).toEqual([
      [addressOf(first) + 4, 8],
      [addressOf(second) + 16, 16],
    ]);
    request.end(Status.OK);
    expect(request.scratch).toBeUndefined();
  });

  it('with memory of a card is a datatype as a whole', () => {
    const memory = mapped(undefined, { memh: 0 });
    const mixed = [list[0]!, { memory, offset: 0, byteLength: 4 }];
    const request = begin(mixed as never, 0, 12);
    expect([request.count, request.address, memory.inFlight]).toEqual([1, 0xd7, 1]);
    request.end(Status.OK);
    expect(memory.inFlight).toBe(0);
  });

  it('is cut to the length of a message', () => {
    const lengths = (byteLength: number): number[] => cutList(list, byteLength).map((piece) => piece.byteLength!);
    expect([lengths(24), lengths(10), lengths(8)]).toEqual([[8, 0, 16], [8, 0, 2], [8]]);
    expect(cutList([{ memory: first, offset: 30 }], 2)).toEqual([{ memory: first, offset: 30, byteLength: 2 }]);
  });
});
