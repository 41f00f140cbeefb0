/** Endpoints of cma: whose memory is copied, how far, and what a failure of the kernel is called. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { protectPage } from '../../../../test/fixtures/driver/protect-page.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../../../test/fixtures/transports/own-segments.ts';
import { mapAnonymous, ownIdentity, type ProcessIdentity, packIdentity, processStartTime } from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Iface, UctEndpoint } from '../../api/iface.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import { NODE_ADDRESS_BYTES } from '../base/table-domain.ts';
import { CMA_CONFIG_TABLE } from './config.ts';
import type { CmaKey } from './endpoint.ts';
import { CmaMd } from './md.ts';

expectNoLeaks(SEGMENT_PROBES);
const PAGE_BYTES = 4096;
const DONE = { count: 1, failure: Status.OK as Status, onComplete: () => undefined };

let md: CmaMd;
let iface: Iface;

beforeEach(() => {
  md = new CmaMd({ log: createTestLog().log, clock: systemClock, config: loadConfig([CMA_CONFIG_TABLE]) });
  iface = md.openIface(md.resources[0]!);
});
afterEach(() => md.close());

function keyed(bytes: Uint8Array): { readonly memory: HostMemory; readonly key: CmaKey } {
  const memory = md.memReg(bytes);
  const packed = new Uint8Array(md.attributes.rkeyPackedBytes);
  md.mkeyPack(memory, packed, 0);
  return { memory, key: md.rkeyUnpack(packed) };
}

/** A key as if another process, or another address, were its own. */
function changed(key: CmaKey, fields: Partial<CmaKey>): CmaKey {
  return Object.create(key, Object.getOwnPropertyDescriptors(fields)) as CmaKey;
}

function addressOf(identity: Partial<ProcessIdentity>): Uint8Array {
  const address = iface.address.slice();
  packIdentity({ ...ownIdentity(), ...identity }, address, NODE_ADDRESS_BYTES);
  return address;
}

function entries(memory: HostMemory) {
  return [
    { memory, offset: 1, byteLength: 3 },
    { memory, offset: 0, byteLength: 0 },
    { memory, offset: 10, byteLength: 4 },
  ];
}

/** A mapping whose memory may have keys. */
function mapped(byteLength = PAGE_BYTES): Uint8Array & Disposable {
  const mapping = mapAnonymous(byteLength);
  return Object.assign(mapping.u8, { [Symbol.dispose]: () => mapping.close() });
}

describe('a copy', () => {
  it('has its entries one behind the other, in its direction, and is counted', () => {
    using there = mapped();
    const { key } = keyed(there);
    const here = md.memReg(Uint8Array.from({ length: 16 }, (_, i) => i + 1));
    const endpoint = iface.connect(iface.address);
    expect(endpoint.putZcopy(entries(here), PAGE_BYTES - 7, key, DONE)).toBe(Status.OK);
    expect([...there.subarray(PAGE_BYTES - 8)]).toEqual([0, 2, 3, 4, 11, 12, 13, 14]);
    there.fill(9, PAGE_BYTES - 4);
    expect(endpoint.getZcopy(entries(here), PAGE_BYTES - 7, key, DONE)).toBe(Status.OK);
    expect([...here.bytes]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 9, 9, 9, 9, 15, 16]);
    const beyond = [
      endpoint.putZcopy(entries(here), PAGE_BYTES - 6, key, DONE),
      endpoint.getZcopy(entries(here), -1, key, DONE),
    ];
    expect(beyond).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
    expect(iface.stats!().counters).toMatchObject({ put: 1, get: 1, bytes_zcopy: 14 });
  });

  it('needs a key that is neither released nor revoked, of exactly this process', () => {
    using there = mapped();
    const { memory, key } = keyed(there);
    const { key: other } = keyed(there);
    const iov = [{ memory: md.memReg(new Uint8Array(8)), offset: 0, byteLength: 8 }];
    const endpoint = iface.connect(iface.address);
    const put = (used: CmaKey): Status => endpoint.putZcopy(iov, 0, used, DONE);
    const { pid, startTime } = ownIdentity();
    const foreign = [
      changed(other, { owner: { ...ownIdentity(), pid: pid + 1 }, live: true }),
      changed(other, { owner: { ...ownIdentity(), startTime: startTime + 1 }, live: true }),
    ];
    expect([put(key), ...foreign.map(put)]).toEqual([Status.OK, Status.INVALID_PARAM, Status.INVALID_PARAM]);
    md.memDereg(memory);
    expect([put(key), key.live]).toEqual([Status.INVALID_ADDR, false]);
    other.release();
    other.release();
    expect([put(other), other.live]).toEqual([Status.INVALID_ADDR, false]);
    key.release();
  });

  it('that reaches a page that is not accessible fails with its error, though a part of it was copied', () => {
    const mapping = mapAnonymous(2 * PAGE_BYTES);
    const { key } = keyed(mapping.u8);
    const here = md.memReg(new Uint8Array(2 * PAGE_BYTES).fill(7));
    const iov = [{ memory: here, offset: 0, byteLength: 2 * PAGE_BYTES }];
    const endpoint = iface.connect(iface.address);
    protectPage(mapping.address + PAGE_BYTES, 'read');
    expect(endpoint.putZcopy(iov, 0, key, DONE)).toBe(Status.INVALID_ADDR);
    expect(iface.errorOf!(Status.INVALID_ADDR)).toMatchObject({ message: expect.stringContaining('EFAULT') });
    expect([iface.errorOf!(Status.UNREACHABLE), iface.errorOf!(Status.OK)]).toEqual([undefined, undefined]);
    expect([mapping.u8[0], mapping.u8[PAGE_BYTES]]).toEqual([7, 0]);
    expect(iface.stats!().counters).toMatchObject({ put: 0, bytes_zcopy: 0 });
    protectPage(mapping.address + PAGE_BYTES, 'write');
    mapping.close();
  });
});

describe('the process of an endpoint', () => {
  async function child(): Promise<ChildProcess & { readonly pid: number }> {
    const made = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] });
    await once(made, 'spawn');
    return made as ChildProcess & { readonly pid: number };
  }

  it('has ended when the kernel says so, and nothing is copied to a later one with its number', async () => {
    const made = await child();
    const startTime = processStartTime(made.pid)!;
    const endpoint = iface.connect(addressOf({ pid: made.pid, startTime }));
    expect(endpoint.check()).toBe(Status.OK);
    using there = mapped();
    const { key } = keyed(there);
    const iov = [{ memory: md.memReg(new Uint8Array(8)), offset: 0, byteLength: 8 }];
    const foreign = changed(key, { owner: { ...ownIdentity(), pid: made.pid, startTime }, live: true });
    made.stdin!.end();
    await once(made, 'exit');
    expect([endpoint.check(), endpoint.putZcopy(iov, 0, foreign, DONE)]).toEqual([
      Status.ENDPOINT_TIMEOUT,
      Status.ENDPOINT_TIMEOUT,
    ]);
    // It was not asked to copy, so there is no failure of the kernel.
    expect(iface.errorOf!(Status.ENDPOINT_TIMEOUT)).toBeUndefined();
    expect(() => iface.connect(addressOf({ pid: made.pid, startTime }))).toThrow('the process of the peer has ended');
  });

  it('is another one if its start time differs, and is out of reach in another pid namespace', () => {
    const { startTime, pidNamespace } = ownIdentity();
    const later = addressOf({ startTime: startTime + 1 });
    expect(iface.unreachableReason!(later)).toBe('the process of the peer has ended');
    expect(iface.unreachableReason!(addressOf({ pidNamespace: pidNamespace + 1 }))).toMatch(/another pid namespace/);
  });

  it('is not reached by an endpoint that is closed, once or with its interface', () => {
    const [own, last]: UctEndpoint[] = [iface.connect(iface.address), iface.connect(iface.address)];
    own!.close();
    own!.close();
    expect([own!.check(), last!.check()]).toEqual([Status.ENDPOINT_TIMEOUT, Status.OK]);
    iface.close();
    iface.close();
    expect(last!.check()).toBe(Status.ENDPOINT_TIMEOUT);
    expect(() => iface.connect(iface.address)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });
});
