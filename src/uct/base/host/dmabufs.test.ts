import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { FakeUdmabuf } from '../../../../test/fixtures/transports/fake-udmabuf.ts';
import {
  addressOf,
  close,
  dup,
  isCloexec,
  memfdCreate,
  OpenFlag,
  openFileDescriptors,
  PAGE_SIZE,
  pipe2,
  Udmabuf,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { ContextDmabufs } from './dmabufs.ts';

const BYTES = 3 * PAGE_SIZE + 5;

/** The address of a byte of memory. */
function addressIn(bytes: Uint8Array, offset = 0): bigint {
  return BigInt(addressOf(bytes) + offset);
}

describe('host memory', () => {
  expectNoLeaks();
  const opened: ContextDmabufs[] = [];
  afterEach(() => {
    for (const each of opened.splice(0)) each.close();
  });
  const setUp = (device: FakeUdmabuf | Udmabuf = new FakeUdmabuf()): ContextDmabufs => {
    const dmabufs = new ContextDmabufs(device);
    opened.push(dmabufs);
    return dmabufs;
  };

  it('that was allocated is exported whole or in part, and mapped again, at any offset', () => {
    const udmabuf = new FakeUdmabuf();
    const [owner, other] = [setUp(udmabuf), setUp(udmabuf)];
    const memory = owner.allocate(BYTES);
    expect([memory.bytes.byteLength, memory.isPinnable, memory.bytes.every((byte) => byte === 0)]).toEqual([
      BYTES,
      true,
      true,
    ]);
    const whole = owner.export(addressIn(memory.bytes), BYTES);
    const part = owner.export(addressIn(memory.bytes, PAGE_SIZE + 7), 100);
    expect([whole.offset, part.offset, isCloexec(whole.fd), whole.fd === part.fd]).toEqual([
      0,
      PAGE_SIZE + 7,
      true,
      false,
    ]);
    const mapped = other.map({ fd: part.fd, offset: part.offset, byteLength: 100 });
    const last = other.map({ fd: whole.fd, offset: BYTES - 1, byteLength: 1 });
    for (const { fd } of [whole, part]) close(fd);
    memory.bytes.fill(9, PAGE_SIZE + 7, PAGE_SIZE + 107);
    expect([...new Set(mapped.bytes)]).toEqual([9]);
    last.bytes[0] = 3;
    expect(memory.bytes[BYTES - 1]).toBe(3);
    // The dma-buf keeps its memory after the owner has closed it.
    memory.close();
    expect([...new Set(mapped.bytes)]).toEqual([9]);
    const again = other.export(addressIn(mapped.bytes, 10), 20);
    expect(again.offset).toBe(PAGE_SIZE + 17);
    close(again.fd);
  });

  it('is closed once, and remaining memory is closed at the end', () => {
    const before = openFileDescriptors();
    const dmabufs = setUp();
    const memory = dmabufs.allocate(PAGE_SIZE);
    memory.close();
    memory.close();
    expect(openFileDescriptors()).toBe(before);
    dmabufs.allocate(PAGE_SIZE);
    const { fd } = dmabufs.export(addressIn(dmabufs.allocate(PAGE_SIZE).bytes), 1);
    dmabufs.map({ fd, offset: 0, byteLength: 1 });
    close(fd);
    dmabufs.close();
    expect(openFileDescriptors()).toBe(before);
  });

  it('is not exported without the device, and the error names it', () => {
    const dmabufs = setUp(new Udmabuf('/dev/no-such-device'));
    const { bytes } = dmabufs.allocate(PAGE_SIZE);
    const before = openFileDescriptors();
    const refusal = expect.objectContaining({
      code: 'ERR_UNSUPPORTED',
      message: expect.stringContaining('/dev/no-such-device does not exist: load the udmabuf module'),
    });
    expect(() => dmabufs.export(addressIn(bytes), 1)).toThrow(refusal);
    expect(openFileDescriptors()).toBe(before);
  });

  it('is not exported beyond its end, after closing, or if it is foreign memory', () => {
    const dmabufs = setUp();
    const memory = dmabufs.allocate(BYTES);
    const address = addressIn(memory.bytes);
    for (const [start, byteLength] of [
      [address, BYTES + 1],
      [address - 1n, 1],
      [address + BigInt(BYTES), 1],
      [4096n, 1],
    ] as const) {
      expect(() => dmabufs.export(start, byteLength)).toThrow(
        expect.objectContaining({ code: 'ERR_UNSUPPORTED', message: expect.stringContaining('shared: true') }),
      );
    }
    memory.close();
    expect(() => dmabufs.export(address, 1)).toThrow(/is not in a memfd of this library/);
  });

  it('is counted and logged when it is exported, mapped and released', () => {
    const udmabuf = new FakeUdmabuf();
    const log = createTestLog();
    const [owner, other] = [setUp(udmabuf), new ContextDmabufs(udmabuf, log.log)];
    opened.push(other);
    const { fd, offset } = owner.export(addressIn(owner.allocate(BYTES).bytes), 100);
    const mapped = other.map({ fd, offset, byteLength: 100 });
    close(fd);
    close(other.export(addressIn(mapped.bytes), 10).fd);
    const during = other.stats().counters;
    const total = { dmabuf_exports: 1, dmabuf_export_bytes: 10, dmabuf_imports: 1, dmabuf_import_bytes: 100 };
    expect(during).toEqual({ ...total, dmabuf_mappings: 1, dmabuf_mapped_bytes: 100, dmabuf_descriptors: 1 });
    mapped.close();
    mapped.close();
    const after = other.stats().counters;
    expect(after).toEqual({ ...total, dmabuf_mappings: 0, dmabuf_mapped_bytes: 0, dmabuf_descriptors: 0 });
    expect(log.records.map(({ message }) => message.replace(/0x[\da-f]+|fd \d+/g, 'X'))).toEqual([
      'dma-buf imported: X from offset 0, as 100 bytes of host memory at X',
      'dma-buf exported: 10 bytes of host memory, X from offset 0',
      'dma-buf released: 100 bytes of host memory at X',
    ]);
  });

  it('that is registered is exported if another context has it in a memfd, else the reason is the memory, not the device', () => {
    const udmabuf = new FakeUdmabuf();
    const [owner, other] = [setUp(udmabuf), setUp(udmabuf)];
    const { bytes } = owner.allocate(BYTES);
    const { fd, offset } = other.export(addressIn(bytes, PAGE_SIZE + 3), 100);
    const mapped = owner.map({ fd, offset, byteLength: 100 });
    close(fd);
    bytes.set([1, 2, 3], PAGE_SIZE + 3);
    expect([...mapped.bytes.subarray(0, 4)]).toEqual([1, 2, 3, 0]);
    const without = setUp(new Udmabuf('/dev/no-such-device'));
    const registered = new Uint8Array(PAGE_SIZE);
    for (const dmabufs of [owner, without]) {
      expect(() => dmabufs.export(addressIn(registered), 1)).toThrow(
        expect.objectContaining({
          code: 'ERR_UNSUPPORTED',
          message: expect.stringMatching(
            /\[0x[\da-f]+, \+1\) is not in a memfd of this library, .*: copy the data to memMap\(\{ allocate, shared: true \}\)/,
          ),
        }),
      );
    }
  });

  it('that exceeds the limit of the module is rejected with the name of the limit', () => {
    const udmabuf = new FakeUdmabuf();
    udmabuf.bytesMax = PAGE_SIZE;
    const dmabufs = setUp(udmabuf);
    const { bytes } = dmabufs.allocate(BYTES);
    expect(() => dmabufs.export(addressIn(bytes), 1)).toThrow(
      expect.objectContaining({ status: Status.UNSUPPORTED, message: expect.stringContaining('size_limit_mb') }),
    );
  });

  it.each([0, -1, 0.5, Number.NaN, 2 ** 32 + 1, '8', undefined])('cannot be allocated with %s bytes', (byteLength) => {
    const before = openFileDescriptors();
    expect(() => setUp().allocate(byteLength as number)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('byteLength') }),
    );
    expect(openFileDescriptors()).toBe(before);
  });

  it('is mapped from dma-bufs only, and not beyond their end', () => {
    const dmabufs = setUp();
    const memory = dmabufs.allocate(BYTES);
    const { fd } = dmabufs.export(addressIn(memory.bytes), 1);
    const file = memfdCreate('no-dmabuf');
    const closed = dup(fd);
    close(closed);
    const before = openFileDescriptors();
    const size = 4 * PAGE_SIZE;
    for (const [range, message] of [
      [{ fd: file, offset: 0, byteLength: 1 }, /dmabuf.fd must be a dma-buf/],
      [{ fd: closed, offset: 0, byteLength: 1 }, /dmabuf.fd must be an open descriptor/],
      [
        { fd, offset: 0, byteLength: size + 1 },
        /dmabuf.byteLength plus offset 0 must be at most the length of the dma-buf, 16384/,
      ],
      [{ fd, offset: size, byteLength: 1 }, /dmabuf.byteLength plus offset 16384/],
      [{ fd, offset: 2 ** 50, byteLength: 1 }, /dmabuf.byteLength plus offset/],
      [{ fd, offset: 1, byteLength: 2 ** 32 }, /dmabuf.byteLength must end at most 4 GiB/],
    ] as const) {
      expect(() => dmabufs.map(range)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(message) }),
      );
    }
    expect(openFileDescriptors()).toBe(before);
    for (const each of [fd, file]) close(each);
  });

  it('of a dma-buf that the CPU cannot map is rejected', () => {
    const [reading, writing] = pipe2(OpenFlag.CLOEXEC);
    const udmabuf = new FakeUdmabuf();
    udmabuf.byteLengthOf = () => PAGE_SIZE;
    const dmabufs = setUp(udmabuf);
    const before = openFileDescriptors();
    expect(() => dmabufs.map({ fd: reading, offset: 0, byteLength: 1 })).toThrow(
      expect.objectContaining({ code: 'ERR_UNSUPPORTED', message: expect.stringContaining('memoryType gaudi') }),
    );
    expect(openFileDescriptors()).toBe(before);
    for (const fd of [reading, writing]) close(fd);
  });
});
