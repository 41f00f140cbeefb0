/** The memory domain of ib: its registrations, cached and of keys; limits of devices; devices and ports that cannot be used. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CountingCompletion, errorOf } from '../../../test/contract/uct/uct-fixture.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { progressUntil } from '../../../test/fixtures/progress-until.ts';
import { createTestLog, type TestLog } from '../../../test/fixtures/test-log.ts';
import { createEmulatedNode, type EmulatedNode } from '../../emulator/index.ts';
import { RdmaContext } from '../../emulator/rdma/rdma-context.ts';
import type { RdmaDevice } from '../../emulator/rdma/rdma-device.ts';
import { Errno, mapAnonymous, SyscallError } from '../../sys/index.ts';
import { loadConfig } from '../../ucs/config/config.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { AccessFlag } from '../../verbs/abi.ts';
import type { Iface, UctEndpoint } from '../api/iface.ts';
import type { MdMemory, RemoteKey } from '../api/memory.ts';
import { MemAccess, type MemoryDomain, type RegistrationCache } from '../api/memory-domain.ts';
import { hostRange } from '../base/host/memory.ts';
import { IB_CONFIG_TABLE, RC_CONFIG_TABLE } from './base/config.ts';
import type { IbIface } from './iface.ts';
import { ibComponent } from './md.ts';

const PAGE = 4096;

describe('IbMd', () => {
  expectNoLeaks();
  let log: TestLog;
  let node: EmulatedNode;
  let device: RdmaDevice;
  let md: MemoryDomain;
  let opened: MemoryDomain[];

  beforeEach(() => {
    log = createTestLog();
    node = createEmulatedNode({ cards: 1, dmaThreads: 0, nics: 1, log: log.log });
    device = node.verbs!.device('hca0');
    opened = [];
    md = open();
  });
  afterEach(() => {
    for (const each of opened) each.close();
    expect(device.objectCount).toBe(0);
    node.close();
    log.expectQuiet();
  });

  function open(overrides: Readonly<Record<string, string>> = {}): MemoryDomain {
    const config = loadConfig([IB_CONFIG_TABLE, RC_CONFIG_TABLE], { overrides });
    const made = ibComponent(node.verbs!).openMd({ log: log.log, clock: systemClock, config });
    opened.push(made);
    return made;
  }

  function reopen(overrides: Readonly<Record<string, string>>): void {
    md.close();
    md = open(overrides);
  }

  const cache = (): RegistrationCache => md.caches![0]!;
  const packed = (of: MemoryDomain, memory: MdMemory): Uint8Array => {
    const key = new Uint8Array(of.attributes.rkeyPackedBytes);
    of.mkeyPack(memory, key, 0);
    return key;
  };

  it('registers memory with the devices once, however often it is used', () => {
    const bytes = new Uint8Array(64 * PAGE);
    const before = device.regions.size;
    for (let i = 0; i < 5; i++) md.memDereg(md.memReg(bytes.subarray(i, PAGE)));
    expect([device.regions.size - before, cache().numRegions]).toEqual([1, 1]);
    expect(cache().counters).toMatchObject({ gets: 5, misses: 1, mem_regs: 1, mem_deregs: 0 });
  });

  it('keeps no registration of memory that was unmapped, detached or invalidated', () => {
    const mapping = mapAnonymous(4 * PAGE);
    md.memDereg(md.memReg(hostRange(mapping.address, 2 * PAGE)));
    md.hostUnmapped!(mapping.address, 4 * PAGE);
    mapping.close();
    const bytes = new Uint8Array(PAGE);
    md.memDereg(md.memReg(bytes), { invalidate: true });
    expect(cache().numRegions).toBe(0);
    const moved = md.memReg(bytes);
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    md.memDereg(moved);
    expect([cache().numRegions, cache().counters.regions_inv_unmap]).toEqual([0, 3]);
  });

  it('caches nothing with UCX_IB_RCACHE=n, and says what a registration costs', () => {
    expect(md.attributes).toMatchObject({ cacheMemoryTypes: 1, registerCost: { perByteNs: 0 } });
    reopen({ IB_RCACHE: 'n' });
    md.memDereg(md.memReg(new Uint8Array(PAGE)));
    expect([cache().numRegions, device.regions.size]).toEqual([0, 0]);
    expect(md.attributes.cacheMemoryTypes).toBe(0);
    expect(md.attributes.registerCost.overheadNs).toBeGreaterThan(1000);
  });

  it('holds no more registrations than UCX_IB_RCACHE_MAX_REGIONS', () => {
    reopen({ IB_RCACHE_MAX_REGIONS: '2' });
    for (let i = 0; i < 5; i++) md.memDereg(md.memReg(new Uint8Array(PAGE)));
    expect([cache().numRegions, device.regions.size]).toEqual([2, 2]);
  });

  it('respects the number of regions of the device: idle ones go first, then it is an error', () => {
    device.limits = { ...device.limits, maxMr: 4 };
    for (let i = 0; i < 4; i++) md.memDereg(md.memReg(new Uint8Array(PAGE)));
    const used = [0, 1].map(() => md.memReg(new Uint8Array(PAGE)));
    const allocated = md.memAlloc(PAGE, { memoryType: MemoryType.HOST });
    packed(md, used[0]!);
    expect([device.regions.size, cache().numRegions]).toEqual([4, 2]);
    for (const fails of [
      () => md.memReg(new Uint8Array(PAGE)),
      () => md.memAlloc(PAGE, { memoryType: MemoryType.HOST }),
      () => packed(md, used[1]!),
    ]) {
      const error = errorOf(fails);
      expect(error).toMatchObject({ code: 'ERR_SYSCALL_ENOMEM', status: Status.NO_MEMORY });
      expect(error.message).toContain('4 memory regions');
    }
    for (const memory of used) md.memDereg(memory);
    md.memFree(allocated);
    md.memDereg(md.memReg(new Uint8Array(PAGE)));
  });

  it('registers memory with the flags of what it may be used for, and shares writable regions only', () => {
    const registered = vi.spyOn(device.regions, 'add');
    const flagsOf = (run: () => void): number[] => {
      registered.mockClear();
      run();
      return registered.mock.calls.map(([{ access }]) => access & ~AccessFlag.RELAXED_ORDERING);
    };
    const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC } = AccessFlag;
    const { LOCAL_READ: reads, LOCAL_WRITE: writes, REMOTE_GET: gets, REMOTE_PUT: puts } = MemAccess;
    const bytes = new Uint8Array(PAGE);
    // The region for transfers of this process, then that of the key.
    for (const [access, local, remote] of [
      [MemAccess.ALL, LOCAL_WRITE, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC],
      [reads | writes, undefined, LOCAL_WRITE],
      [reads | writes | gets, undefined, LOCAL_WRITE | REMOTE_READ],
      [reads | gets, 0, REMOTE_READ],
      [reads, 0, 0],
      // Devices write for peers only where they may write at all.
      [reads | puts, 0, LOCAL_WRITE | REMOTE_WRITE],
    ] as const) {
      let memory: MdMemory | undefined;
      const own = flagsOf(() => {
        memory = md.memReg(bytes, { access });
      });
      expect(own).toEqual(local === undefined ? [] : [local]);
      expect(flagsOf(() => packed(md, memory!))).toEqual([remote]);
      md.memDereg(memory!);
    }
    expect([cache().numRegions, device.regions.size]).toEqual([1, 1]);
    const both = flagsOf(() =>
      md.memFree(md.memAlloc(PAGE, { memoryType: MemoryType.HOST, access: reads | gets | puts })),
    );
    expect(both).toEqual([LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE]);
    for (const access of [0, -1, 1.5, 1, MemAccess.ALL + 1]) {
      expect(errorOf(() => md.memReg(bytes, { access }))).toMatchObject({ code: 'ERR_INVALID_PARAM' });
      expect(errorOf(() => md.memAlloc(PAGE, { memoryType: MemoryType.HOST, access })).code).toBe('ERR_INVALID_PARAM');
    }
  });

  it('ends what peers reach of memory for reading that was unmapped', () => {
    const mapping = mapAnonymous(PAGE);
    const memory = md.memReg(hostRange(mapping.address, PAGE), { access: MemAccess.LOCAL_READ | MemAccess.REMOTE_GET });
    packed(md, memory);
    expect(device.regions.size).toBe(2);
    md.hostUnmapped!(mapping.address, PAGE);
    expect(device.regions.size).toBe(1);
    md.memDereg(memory);
    expect(device.regions.size).toBe(0);
    mapping.close();
  });

  it('leaves nothing behind of memory that a device does not register', () => {
    const before = device.objectCount;
    device.limits = { ...device.limits, maxMr: 0 };
    expect(errorOf(() => md.memReg(new Uint8Array(PAGE))).status).toBe(Status.NO_MEMORY);
    expect([device.objectCount, cache().numRegions]).toEqual([before, 0]);
  });

  describe('at a peer', () => {
    let near: Iface;
    let far: Iface;
    let endpoint: UctEndpoint;
    let peer: MemoryDomain;

    beforeEach(async () => {
      peer = open();
      [near, far] = [peer.openIface(peer.resources[0]!), md.openIface(md.resources[0]!)];
      endpoint = near.connect(far.address);
      await until(() => endpoint.flush(undefined) === Status.OK && send() === Status.OK);
    });
    afterEach(() => {
      endpoint.close();
      near.close();
      far.close();
    });

    const send = (): Status => endpoint.amShort(1, new Int32Array(2), 2, undefined, 0, 0);

    const until = (isDone: () => boolean): Promise<void> => progressUntil([near, far], isDone);

    async function put(byteLength: number, rkey: RemoteKey): Promise<Status> {
      const completion = new CountingCompletion();
      const bytes = new Uint8Array(byteLength).fill(7);
      expect(endpoint.putShort(bytes, 0, byteLength, 0, rkey, completion)).toBe(Status.INPROGRESS);
      await until(() => completion.calls > 0);
      return completion.failure;
    }

    it('a key permits the bytes of its memory alone, not what is cached around them', async () => {
      const owner = new Uint8Array(PAGE);
      const memory = md.memReg(owner.subarray(0, 64));
      const key = peer.rkeyUnpack(packed(md, memory));
      expect(await put(64, key)).toBe(Status.OK);
      // A program that lies about the length of the key.
      Object.defineProperty(key, 'byteLength', { value: PAGE });
      expect(await put(128, key)).toBe(Status.INVALID_ADDR);
      expect([owner[63], owner[64]]).toEqual([7, 0]);
      md.memDereg(memory);
    });

    it('a key permits what its memory was registered for, not what is cached around it', async () => {
      const owner = new Uint8Array(PAGE);
      const local = MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE;
      for (const access of [local, local | MemAccess.REMOTE_GET]) {
        const memory = md.memReg(owner, { access });
        const key = peer.rkeyUnpack(packed(md, memory));
        expect(await put(64, key)).toBe(Status.INVALID_ADDR);
        expect(owner[0]).toBe(0);
        md.memDereg(memory);
        endpoint.close();
        endpoint = near.connect(far.address);
        await until(() => endpoint.flush(undefined) === Status.OK && send() === Status.OK);
      }
      const memory = md.memReg(owner, { access: local | MemAccess.REMOTE_PUT });
      expect(await put(64, peer.rkeyUnpack(packed(md, memory)))).toBe(Status.OK);
      expect(owner[0]).toBe(7);
      md.memDereg(memory);
    });

    it('a key ends with its memory, though the registration stays cached', async () => {
      const owner = new Uint8Array(PAGE);
      const memory = md.memReg(owner);
      const key = peer.rkeyUnpack(packed(md, memory));
      md.memDereg(memory);
      expect(cache().numRegions).toBe(1);
      expect(await put(64, key)).toBe(Status.INVALID_ADDR);
      expect(owner[0]).toBe(0);
    });

    it('a key ends when its memory is unmapped, though it is registered', async () => {
      const owner = new Uint8Array(PAGE);
      const memory = md.memReg(owner);
      const key = peer.rkeyUnpack(packed(md, memory));
      const before = device.regions.size;
      md.hostUnmapped!(Number(memory.address), PAGE);
      expect(device.regions.size).toBe(before - 1);
      expect(await put(64, key)).toBe(Status.INVALID_ADDR);
      expect(owner[0]).toBe(0);
      md.memDereg(memory);
    });
  });

  it('takes back memory of a transfer that is in flight when the transfer has ended', async () => {
    const iface = md.openIface(md.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const target = md.memAlloc(PAGE, { memoryType: MemoryType.HOST });
    const key = md.rkeyUnpack(packed(md, target));
    const source = new Uint8Array(PAGE).fill(5);
    const memory = md.memReg(source);
    const completion = new CountingCompletion();
    let posted: Status = Status.NO_RESOURCE;
    while (posted === Status.NO_RESOURCE) {
      iface.progress();
      await new Promise(setImmediate);
      posted = endpoint.putZcopy([{ memory, offset: 0, byteLength: PAGE }], 0, key, completion);
    }
    expect(errorOf(() => md.memDereg(memory)).status).toBe(Status.BUSY);
    md.memDereg(memory, { force: true, invalidate: true });
    while (completion.calls === 0) iface.progress();
    expect([completion.failure, target.bytes![PAGE - 1], cache().numRegions]).toEqual([Status.OK, 5, 0]);
    endpoint.close();
    iface.close();
    md.memFree(target);
  });

  it.each([
    [64, 64],
    [48, 32],
    [7, 0],
  ])('sends inline what the device permits: %i bytes', async (granted, inlineBytes) => {
    device.inlineBytesMax = granted;
    reopen({});
    const [near, far] = [md.openIface(md.resources[0]!), md.openIface(md.resources[0]!)];
    expect((near as IbIface).inlineBytes).toBe(inlineBytes);
    expect(device.qpCount).toBe(2);
    const messages: number[] = [];
    far.setAmHandler((_id, { bytes, offset, byteLength }) => {
      messages.push(bytes.subarray(offset, offset + byteLength).reduce((sum, byte) => sum + byte, 0));
    });
    const memory = md.memAlloc(PAGE, { memoryType: MemoryType.HOST });
    const key = md.rkeyUnpack(packed(md, memory));
    const endpoint = near.connect(far.address);
    const sent = new Uint8Array(96).fill(3);
    const drive = async (start: () => Status, isDone: () => boolean): Promise<void> => {
      let status = start();
      for (let round = 1; status === Status.NO_RESOURCE || !isDone(); round++) {
        near.progress();
        far.progress();
        if (round % 64 === 0) await new Promise(setImmediate);
        if (status === Status.NO_RESOURCE) status = start();
      }
      expect(status).toBe(Status.OK);
    };
    for (const byteLength of [0, 8, 24, 40, 64, 72, 96]) {
      const count = messages.length;
      const header = new Int32Array(2);
      await drive(
        () => endpoint.amShort(1, header, 2, sent, 0, byteLength),
        () => messages.length > count,
      );
      expect(messages.at(-1)).toBe(3 * byteLength);
      if (byteLength === 0) continue;
      memory.bytes!.fill(0);
      await drive(
        () => endpoint.putShort(sent, 0, byteLength, 8, key),
        () => endpoint.flush(undefined) === Status.OK,
      );
      expect([...memory.bytes!.subarray(7, 9 + byteLength)]).toEqual([0, ...sent.subarray(0, byteLength), 0]);
    }
    near.close();
    far.close();
    md.memFree(memory);
  });

  it.each([
    ['maxQpWr', 31, 'max_qp_wr of the device is 31, but rc needs 32'],
    ['maxCqe', 63, 'max_cqe of the device is 63, but rc needs 64'],
    ['maxSge', 1, 'max_sge of the device is 1, but rc needs 2'],
    ['maxSrqWr', 15, 'max_srq_wr of the device is 15, but rc needs 16'],
  ] as const)('says that a device has too little: %s %i', (limit, value, reason) => {
    device.limits = { ...device.limits, [limit]: value };
    const error = errorOf(() => open());
    expect(error.code).toBe('ERR_NO_DEVICE');
    expect(error.message).toContain(reason);
  });

  it('moves messages and puts of many connections within the limits of a device that has little', async () => {
    device.limits = { ...device.limits, maxQpWr: 64, maxCqe: 100, maxSrqWr: 20, maxSge: 2, maxQpRdAtom: 1 };
    reopen({});
    const [near, far] = [md.openIface(md.resources[0]!), md.openIface(md.resources[0]!)];
    expect(near.attributes.put.iovMax).toBe(1);
    let received = 0;
    far.setAmHandler(() => {
      received += 1;
    });
    const word = md.memAlloc(PAGE, { memoryType: MemoryType.HOST });
    const key = md.rkeyUnpack(packed(md, word));
    const endpoints = Array.from({ length: 8 }, () => near.connect(far.address));
    let [sent, refused] = [0, 0];
    for (let round = 0; sent < 2000; round++) {
      const endpoint = endpoints[round % endpoints.length]!;
      const status =
        round % 3 === 0
          ? endpoint.amShort(1, new Int32Array(2), 2, undefined, 0, 0)
          : endpoint.putShort(Uint8Array.of(round), 0, 1, round % PAGE, key);
      expect([Status.OK, Status.NO_RESOURCE]).toContain(status);
      if (status === Status.OK) sent += round % 3 === 0 ? 1 : 0;
      else {
        refused += 1;
        // Probes have their place in the completion queue, too.
        for (const each of endpoints) expect(each.check()).toBe(Status.OK);
        near.progress();
        far.progress();
        if (refused % 64 === 0) await new Promise(setImmediate);
      }
    }
    expect(refused).toBeGreaterThan(0);
    while (received < sent) {
      near.progress();
      far.progress();
    }
    expect(received).toBe(sent);
    near.close();
    far.close();
    md.memFree(word);
  });

  it('leaves nothing behind of an interface or a connection that a device does not make, whatever fails', () => {
    const before = device.objectCount;
    let [good, calls] = [-1, 0];
    do {
      good += 1;
      calls = 0;
      vi.spyOn(RdmaContext.prototype, 'checkPresent').mockImplementation((call) => {
        if (calls++ === good) throw new SyscallError(call, Errno.ENOMEM, 'made to fail');
      });
      try {
        const iface = md.openIface(md.resources[0]!);
        try {
          // Without a path to the peer the connect request is repeated, without an error.
          iface.connect(iface.address).close();
        } finally {
          iface.close();
        }
      } catch (error) {
        expect(error).toMatchObject({ code: 'ERR_SYSCALL_ENOMEM', status: Status.NO_MEMORY });
      }
      vi.restoreAllMocks();
      expect(device.objectCount).toBe(before);
    } while (calls > good);
    // Channels, queues, regions, queue pairs and the address handle.
    expect(good).toBeGreaterThan(10);
  });

  it('is not opened without a port that can be used, and says why', () => {
    device.inject({ kind: 'link-down' });
    const error = errorOf(() => open());
    expect(error).toMatchObject({ code: 'ERR_NO_DEVICE', status: Status.NO_DEVICE });
    expect(error.message).toMatch(/hca0:1: port 1 is not active/);
    device.inject({ kind: 'link-up' });
    expect(errorOf(() => open({ IB_GID_INDEX: '3' })).message).toMatch(/no GID with index 3 .* valid are: 0/);
    log.allow(/./);
  });
});
