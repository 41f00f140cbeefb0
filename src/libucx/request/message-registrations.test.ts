import { describe, expect, it, vi } from 'vitest';
import { viewAt } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_MEM_MAP_PARAMS } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { LocalRanges } from './local.ts';
import { MessageRegistrations } from './message-registrations.ts';
import { RequestKind, UcpRequest } from './request.ts';

const CONTEXT = 7;

/** Registrations over a libucp of a version that records the address and length of what it maps. */
function over(minor: number, status: Status = Status.OK) {
  const mapped: number[][] = [];
  const ucp_mem_map = vi.fn((_context: number, params: number, out: number) => {
    const view = new DataView(viewAt(params, UCP_MEM_MAP_PARAMS.size));
    const { address, length } = UCP_MEM_MAP_PARAMS.at;
    mapped.push([Number(view.getBigUint64(address, true)), Number(view.getBigUint64(length, true))]);
    new DataView(viewAt(out, 8)).setBigUint64(0, 0x1234n, true);
    return status;
  });
  const ucp_mem_unmap = vi.fn(() => Status.OK);
  const functions = { ucp_mem_map, ucp_mem_unmap } as never as LibucpFunctions;
  return {
    mapped,
    functions,
    ucp_mem_unmap,
    registrations: new MessageRegistrations({ libucp: { functions, minor }, handle: CONTEXT }),
  };
}

describe('messages in memory that is not mapped', () => {
  it.each([
    [13, false],
    [14, true],
    [18, true],
    [21, true],
    [22, false],
    [23, false],
  ])('over UCX 1.%i need a handle: %s', (minor, isNeeded) => {
    const { registrations } = over(minor);
    expect(registrations.needs(70_000)).toBe(isNeeded);
    // Too short for a rendezvous.
    expect(registrations.needs(8)).toBe(false);
  });

  it('have one until their end', () => {
    const { mapped, ucp_mem_unmap, registrations } = over(21);
    const registration = registrations.register(0x10_000, 70_000);
    expect([mapped, registration!.memh]).toEqual([[[0x10_000, 70_000]], 0x1234]);
    expect(ucp_mem_unmap).not.toHaveBeenCalled();
    registration!.free();
    expect(ucp_mem_unmap.mock.calls).toEqual([[CONTEXT, 0x1234]]);
  });

  it('go without one if a device does not accept it', () => {
    const { registrations, ucp_mem_unmap } = over(21, Status.NO_MEMORY);
    expect(registrations.register(0x10_000, 70_000)).toBeUndefined();
    expect(ucp_mem_unmap).not.toHaveBeenCalled();
  });
});

describe('the buffers of a worker', () => {
  it.each([
    [13, 0],
    [21, 1],
  ])('over UCX 1.%i pass %i handles for a message, and release it at its end', (minor, handles) => {
    const { functions, ucp_mem_unmap } = over(minor);
    const owner = { operations: { startNs: () => -1, ended: () => {} }, innerDepth: 0 };
    const request = new UcpRequest(owner as never, 0);
    const setMemh = vi.fn();
    const requests = { begin: () => request, parameters: { setMemh }, discard: () => {} };
    const context = { libucp: { functions, minor }, handle: CONTEXT, access: {} };
    const buffers = new LocalRanges(context as never, requests as never, {} as never);
    const bytes = new Uint8Array(4096);
    expect(buffers.plainAddress(bytes, 0, 4096) < 0).toBe(handles === 1);
    expect(buffers.plainAddress(bytes, 0, 8)).toBeGreaterThan(0);
    const range = { local: bytes, localOffset: 0, byteLength: 4096 };
    buffers.begin(RequestKind.TAG_RECV, 'tag/libucp', range, MemAccess.LOCAL_WRITE);
    expect(setMemh.mock.calls).toEqual(handles === 1 ? [[0x1234]] : []);
    expect(ucp_mem_unmap).not.toHaveBeenCalled();
    request.end(Status.OK);
    expect(ucp_mem_unmap).toHaveBeenCalledTimes(handles);
  });
});
