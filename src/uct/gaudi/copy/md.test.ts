import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { finish, flush, keyOf, type MdUnderTest, ownBytes } from '../../../../test/contract/uct/uct-fixture.ts';
import { openGaudiCopy } from '../../../../test/contract/uct/uct-implementations.ts';
import { countingNode } from '../../../../test/fixtures/driver/counting-node.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { createEmulatedNode } from '../../../emulator/index.ts';
import { GaudiErrorCode, gaudiErrorOfErrno, gaudiErrorStatus, gaudiErrorText } from '../../../hlthunk/index.ts';
import { close as closeFd, Errno, openFileDescriptors } from '../../../sys/index.ts';
import { HL_MEM_OP } from '../../../uapi/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { type Iface, IfaceFlag, type UctEndpoint } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import { MdFlag } from '../../api/memory-domain.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../base/config.ts';
import { GaudiResources } from '../base/resources.ts';
import { CopyMd } from './md.ts';

const BYTES = 2 ** 20;
const OPEN_LOG = createTestLog();

describe('registration of host memory', () => {
  expectNoLeaks();
  let under: MdUnderTest;
  let iface: Iface;
  let endpoint: UctEndpoint;
  let remote: MdMemory;

  const use = (config: Readonly<Record<string, string>> = {}): void => {
    under = openGaudiCopy(OPEN_LOG, { cards: 1 }, config);
    iface = under.md.openIface(under.md.resources[0]!);
    endpoint = iface.connect(iface.address);
    remote = under.md.memAlloc(BYTES, { memoryType: MemoryType.GAUDI });
  };
  const put = async (memory: MdMemory): Promise<void> => {
    const iov = [{ memory, offset: 0, byteLength: memory.byteLength }];
    const rkey = keyOf(under.md, remote);
    expect(await finish(iface, (completion) => endpoint.putZcopy(iov, 0, rkey, completion))).toBe(Status.OK);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
  };
  afterEach(() => {
    iface.close();
    under.md.close();
    expect(under.pinnedBytes()).toBe(0);
    under.close();
    OPEN_LOG.expectQuiet();
  });

  it('pins a buffer once, for all registrations of its parts', async () => {
    use();
    const buffer = ownBytes(BYTES);
    await put(under.md.memReg(ownBytes(8)));
    const before = under.pinnedBytes();
    const all = [buffer, buffer, buffer.subarray(100, 5000)].map((part) => under.md.memReg(part));
    for (const memory of all) await put(memory);
    expect(under.pinnedBytes() - before).toBe(BYTES);
    for (const memory of all) under.md.memDereg(memory);
    await put(under.md.memReg(buffer));
    expect(under.pinnedBytes() - before).toBe(BYTES);
  });

  it('unpins a buffer at once without a cache', async () => {
    use({ GAUDI_COPY_RCACHE: 'n' });
    expect(under.md.attributes.cacheMemoryTypes).toBe(0);
    const first = under.md.memReg(ownBytes(8));
    await put(first);
    under.md.memDereg(first);
    const before = under.pinnedBytes();
    const memory = under.md.memReg(ownBytes(BYTES));
    await put(memory);
    expect(under.pinnedBytes() - before).toBe(BYTES);
    under.md.memDereg(memory);
    expect(under.pinnedBytes()).toBe(before);
  });

  it('keeps idle registrations up to its limit', async () => {
    use({ GAUDI_COPY_RCACHE_MAX_REGIONS: '2' });
    const first = under.md.memReg(ownBytes(8));
    await put(first);
    const before = under.pinnedBytes();
    under.md.memDereg(first);
    for (let i = 0; i < 10; i++) {
      const memory = under.md.memReg(ownBytes(65536));
      await put(memory);
      under.md.memDereg(memory);
    }
    expect(under.pinnedBytes() - before).toBeLessThanOrEqual(2 * 65536);
  });

  it.each([
    [{}, { perByteNs: 0 }],
    [{ GAUDI_COPY_RCACHE_OVERHEAD: '250ns' }, { overheadNs: 250, perByteNs: 0 }],
    [{ GAUDI_COPY_RCACHE: 'n', GAUDI_COPY_REG_COST: '9us' }, { overheadNs: 9000 }],
  ])('is estimated as a hit with a cache, as a registration without: %j', (config, cost) => {
    use(config);
    expect(under.md.attributes.registerCost).toMatchObject(cost);
    const { overheadNs, perByteNs } = under.md.attributes.registerCost;
    expect(overheadNs).toBeGreaterThan(0);
    expect(perByteNs > 0).toBe('GAUDI_COPY_RCACHE' in config);
  });

  it.each(['DMABUF', 'MAPPED_DMABUF'])('does not export dma-bufs if disabled: %s=n', (field) => {
    use({ [`GAUDI_COPY_${field}`]: 'n' });
    expect(under.md.attributes.flags & MdFlag.EXPORT_DMABUF).toBe(0);
    expect(under.md.attributes.dmabufMemoryTypes).toBe(0);
    expect(() => under.md.memExportDmabuf(remote.address, 1)).toThrow(
      expect.objectContaining({ status: Status.UNSUPPORTED, message: expect.stringContaining(`${field}=n`) }),
    );
  });

  it('has at most MAX_EVENTS transfers in flight, and continues when they end', async () => {
    use({ GAUDI_COPY_MAX_EVENTS: '2' });
    expect(iface.attributes.put.iovMax).toBe(2);
    const memory = under.md.memReg(ownBytes(BYTES));
    const rkey = keyOf(under.md, remote);
    const whole = [{ memory, offset: 0, byteLength: BYTES }];
    let ended = 0;
    const completion = { count: 3, failure: Status.OK, onComplete: () => void ended++ };
    expect(endpoint.putZcopy(whole, 0, rkey, completion)).toBe(Status.INPROGRESS);
    expect(endpoint.putZcopy(whole, 0, rkey, completion)).toBe(Status.INPROGRESS);
    expect(endpoint.putZcopy(whole, 0, rkey, completion)).toBe(Status.NO_RESOURCE);
    expect(endpoint.putShort(ownBytes(8), 0, 8, 0, rkey)).toBe(Status.NO_RESOURCE);
    expect(endpoint.getShort(ownBytes(8), 0, 8, 0, rkey, completion)).toBe(Status.NO_RESOURCE);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    expect(endpoint.putZcopy(whole, 0, rkey, completion)).toBe(Status.INPROGRESS);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    expect([completion.failure, ended]).toEqual([Status.OK, 1]);
    const three = [0, 1, 2].map((offset) => ({ memory, offset, byteLength: 1 }));
    expect(() => endpoint.putZcopy(three, 0, rkey, completion)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
    under.md.memDereg(memory);
  });
});

describe('dma-bufs', () => {
  expectNoLeaks();

  it('are exported once for each allocation, and end with it', () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const counts = countingNode(node);
    const log = createTestLog();
    const shared = new GaudiResources({ node: counts.node, mappingTable: undefined });
    const services = { log: log.log, clock: systemClock, config: loadConfig([GAUDI_COPY_CONFIG_TABLE]) };
    const md = new CopyMd(shared, services);
    const [one, two] = [0, 1].map(() => md.memAlloc(4096, { memoryType: MemoryType.GAUDI }));
    const own = md.memAlloc(4096, { memoryType: MemoryType.GAUDI, shared: true });
    const memory = [one!, two!, own];
    const query = (i: number): number => md.memExportDmabuf(memory[i % 3]!.address + BigInt(i), 1).fd;
    for (let i = 0; i < 3; i++) closeFd(query(i));
    const kept = openFileDescriptors();
    const fds = Array.from({ length: 300 }, (_, i) => query(i));
    // One for the arena of the first two, and one for that of the third.
    expect(counts.count(HL_MEM_OP.EXPORT_DMABUF_FD)).toBe(2);
    expect(new Set(fds).size).toBe(300);
    expect(openFileDescriptors()).toBe(kept + 300);
    for (const fd of fds) closeFd(fd);
    expect(openFileDescriptors()).toBe(kept);
    md.memFree(own);
    expect(openFileDescriptors()).toBeLessThan(kept);
    md.close();
    node.close();
    log.expectQuiet();
  });
});

describe('a card whose driver accepts no transfers', () => {
  expectNoLeaks();

  it('has interfaces without operations, with the reason', () => {
    const under = openGaudiCopy(OPEN_LOG, { cards: 1, asic: 'gaudi3', channelMask: 0 });
    const iface = under.md.openIface(under.md.resources[0]!);
    const { flags, put, get, limitation } = iface.attributes;
    expect(limitation).toBe('the driver of gaudi3 reports no DMA channel for users');
    const operations = IfaceFlag.PUT_SHORT | IfaceFlag.PUT_ZCOPY | IfaceFlag.GET_SHORT | IfaceFlag.GET_ZCOPY;
    expect(flags & operations).toBe(0);
    for (const limits of [put, get]) expect(limits).toMatchObject({ shortBytesMax: 0, zcopyBytesMax: 0, iovMax: 0 });
    iface.close();
    under.md.close();
    under.close();
  });
});

describe('a list that includes memory which cannot be pinned', () => {
  expectNoLeaks();

  it('moves nothing and completes nothing', async () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const log = createTestLog();
    const shared = new GaudiResources({ node, mappingTable: undefined });
    const config = loadConfig([GAUDI_COPY_CONFIG_TABLE]);
    const md = new CopyMd(shared, { log: log.log, clock: systemClock, config });
    const iface = md.openIface(md.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const remote = md.memAlloc(64, { memoryType: MemoryType.GAUDI });
    const rkey = keyOf(md, remote);
    const transfer = (memory: MdMemory, isPut: boolean): Promise<Status> =>
      finish(iface, (completion) => {
        const iov = [{ memory, offset: 0, byteLength: 64 }];
        return isPut ? endpoint.putZcopy(iov, 0, rkey, completion) : endpoint.getZcopy(iov, 0, rkey, completion);
      });
    const zeros = md.memReg(ownBytes(64));
    expect(await transfer(zeros, true)).toBe(Status.OK);
    const pieces = [1, 2].map((value) => md.memReg(ownBytes(64).fill(value)));
    node.inject(0, { kind: 'exhausted', resource: 'va', nth: 2 });
    let calls = 0;
    const completion = { count: 1, failure: Status.OK as Status, onComplete: () => (calls += 1) };
    const iov = pieces.map((memory) => ({ memory, offset: 0, byteLength: 32 }));
    let status: Status = Status.OK;
    try {
      status = endpoint.putZcopy(iov, 0, rkey, completion);
    } catch (error) {
      status = (error as { status: Status }).status;
    }
    expect(status).toBe(Status.NO_MEMORY);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    expect(calls).toBe(0);
    const target = md.memReg(ownBytes(64));
    expect(await transfer(target, false)).toBe(Status.OK);
    expect(target.bytes).toEqual(new Uint8Array(64));
    iface.close();
    md.close();
    node.close();
    log.expectQuiet();
  });
});

describe('the error codes of the Gaudi layer', () => {
  const codes = Object.values(GaudiErrorCode);
  let texts: Set<string>;
  beforeEach(() => {
    texts = new Set(codes.map((code) => gaudiErrorText(code)));
  });

  it('are eight, with different texts', () => {
    expect(codes).toHaveLength(8);
    expect(texts.size).toBe(8);
    for (const code of codes) expect(code).toMatch(/^ERR_GAUDI_[A-Z_]+$/);
    for (const text of texts) expect(text).toMatch(/^[a-z]/);
  });

  it.each([
    ['DEVICE_NOT_FOUND', 'NO_DEVICE'],
    ['OUT_OF_MEMORY', 'NO_MEMORY'],
    ['INVALID_PARAMS', 'INVALID_PARAM'],
    ['DEVICE_BUSY', 'BUSY'],
    ['DMA_FAILED', 'IO_ERROR'],
    ['TIMEOUT', 'TIMED_OUT'],
    ['PERMISSION_DENIED', 'IO_ERROR'],
    ['CHANNEL_FAILED', 'UNREACHABLE'],
  ] as const)('%s is status %s', (code, status) => {
    expect(gaudiErrorStatus(GaudiErrorCode[code])).toBe(Status[status]);
  });

  it.each([
    [Errno.ENODEV, 'DEVICE_NOT_FOUND'],
    [Errno.ENOMEM, 'OUT_OF_MEMORY'],
    [Errno.EINVAL, 'INVALID_PARAMS'],
    [Errno.EBUSY, 'DEVICE_BUSY'],
    [Errno.EIO, 'DMA_FAILED'],
    [Errno.ETIMEDOUT, 'TIMEOUT'],
    [Errno.EACCES, 'PERMISSION_DENIED'],
    [Errno.EXDEV, 'DMA_FAILED'],
  ] as const)('errno %s is %s', (errno, code) => {
    expect(gaudiErrorOfErrno(errno)).toBe(GaudiErrorCode[code]);
  });
});

describe('registration of device memory of the application', () => {
  expectNoLeaks();

  it('accepts a range of an allocation, moves its bytes, and does not free the allocation', async () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0, log: OPEN_LOG.log });
    const shared = new GaudiResources({ node, mappingTable: undefined });
    const config = loadConfig([GAUDI_COPY_CONFIG_TABLE], { overrides: {} });
    const md = new CopyMd(shared, { log: OPEN_LOG.log, clock: systemClock, config });
    const block = shared.cards[0]!.device.memory.allocate(8192);
    const range = { memoryType: MemoryType.GAUDI, address: block.address + 256n, byteLength: 4096, sysDevice: 0 };
    const memory = md.memReg(range);
    const iface = md.openIface(md.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const rkey = keyOf(md, memory);
    const [sent, back] = [new Uint8Array(64).fill(7), new Uint8Array(64)];
    await finish(iface, (completion) => endpoint.putShort(sent, 0, 64, 4096 - 64, rkey, completion));
    await finish(iface, (completion) => endpoint.getShort(back, 0, 64, 4096 - 64, rkey, completion));
    expect(back).toEqual(sent);
    expect(endpoint.putShort(sent, 0, 64, 4096 - 63, rkey)).toBe(Status.INVALID_ADDR);
    expect(() => md.memFree(memory)).toThrow(/must be a result of memAlloc/);
    for (const bad of [
      { ...range, byteLength: 8192 },
      { ...range, byteLength: 0 },
      { ...range, address: 1n },
      { ...range, address: 1 as never },
      { ...range, sysDevice: 3 },
    ]) {
      expect(() => md.memReg(bad)).toThrow(expect.objectContaining({ status: expect.any(Number) }));
    }
    md.memDereg(memory);
    expect(() => md.memDereg(memory)).toThrow(/has been freed or deregistered/);
    expect([block.live, endpoint.putShort(sent, 0, 64, 0, rkey)]).toEqual([true, Status.INVALID_ADDR]);
    block.free();
    iface.close();
    md.close();
    node.close();
  });
});
