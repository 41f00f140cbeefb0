import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { protectPage } from '../../../test/fixtures/driver/protect-page.ts';
import { property } from '../../../test/fixtures/property.ts';
import { Errno } from '../base/errno.ts';
import { mapAnonymous, PAGE_SIZE } from '../base/mapped-memory.ts';
import { close } from '../file/file.ts';
import { ftruncate, memfdCreate } from './memfd.ts';
import {
  addressOf,
  copyFromProcess,
  copyToProcess,
  isMapped,
  isReadable,
  MadviseAdvice,
  madvise,
  memcmp,
  memcpy,
  memmove,
  memset,
  populateWritable,
} from './memory.ts';
import { ProcessMaps } from './process-maps.ts';
import { mapLarge, unmapLarge } from './shared-window.ts';

/** Three mapped pages whose middle one is a hole. */
function withHole(run: (address: number) => void): void {
  const fd = memfdCreate('hole');
  ftruncate(fd, 3 * PAGE_SIZE);
  const address = mapLarge(fd, 3 * PAGE_SIZE);
  unmapLarge(address + PAGE_SIZE, PAGE_SIZE);
  try {
    run(address);
  } finally {
    unmapLarge(address, PAGE_SIZE);
    unmapLarge(address + 2 * PAGE_SIZE, PAGE_SIZE);
    close(fd);
  }
}

describe('memcpy, memmove, memset and memcmp', () => {
  property(
    'move exactly the bytes asked for',
    [fc.uint8Array({ minLength: 1, maxLength: 5000 }), fc.nat({ max: 3000 }), fc.nat({ max: 3000 })],
    (bytes, from, to) => {
      using memory = mapAnonymous(16384);
      memory.u8.set(bytes, from);
      const expected = memory.u8.slice();
      expected.copyWithin(to, from, from + bytes.length);
      memmove(memory.address + to, memory.address + from, bytes.length);
      expect(Buffer.compare(memory.u8, expected)).toBe(0);
      memcpy(memory.address + 8192, memory.address + to, bytes.length);
      expect(Buffer.compare(memory.u8.subarray(8192, 8192 + bytes.length), bytes)).toBe(0);
      expect(memcmp(memory.address + 8192, memory.address + to, bytes.length)).toBe(0);
    },
  );

  it('sets bytes and compares', () => {
    using memory = mapAnonymous(64);
    memset(memory.address + 8, 0xab, 4);
    expect([...memory.u8.subarray(7, 13)]).toEqual([0, 0xab, 0xab, 0xab, 0xab, 0]);
    expect(memcmp(memory.address, memory.address + 8, 4)).toBeLessThan(0);
  });
});

describe('addressOf', () => {
  it('counts the offset of the view', () => {
    const buffer = new ArrayBuffer(64);
    const base = addressOf(new Uint8Array(buffer));
    expect(addressOf(new Uint32Array(buffer, 12, 2))).toBe(base + 12);
    expect(addressOf(new DataView(buffer, 5))).toBe(base + 5);
  });

  it('works on shared memory and on empty views', () => {
    const shared = new SharedArrayBuffer(64);
    expect(addressOf(new Int32Array(shared, 8)) - addressOf(new Uint8Array(shared))).toBe(8);
    expect(addressOf(new Uint8Array(0))).toBe(0);
  });
});

describe('madvise', () => {
  it('drops and populates pages', () => {
    using memory = mapAnonymous(8192);
    memory.u8.fill(3);
    expect(madvise(memory.address, 8192, MadviseAdvice.DONTNEED)).toBe(0);
    expect(memory.u8.every((byte) => byte === 0)).toBe(true);
    expect(madvise(memory.address, 8192, MadviseAdvice.POPULATE_WRITE)).toBe(0);
  });

  it('returns the errno', () => {
    using memory = mapAnonymous(4096);
    expect(madvise(memory.address, 4096, 9999)).toBe(-Errno.EINVAL);
    withHole((address) => expect(madvise(address, 3 * PAGE_SIZE, MadviseAdvice.POPULATE_WRITE)).toBe(-Errno.ENOMEM));
  });
});

describe('isMapped and isReadable', () => {
  it.each([
    ['isMapped', isMapped],
    ['isReadable', isReadable],
  ])('%s is true for a mapping and any part of it', (_name, probe) => {
    using memory = mapAnonymous(1 << 21);
    expect(probe(memory.address, 1 << 21)).toBe(true);
    expect(probe(memory.address + 4095, 2)).toBe(true);
    expect(probe(memory.address + 17, 1)).toBe(true);
  });

  it.each([
    ['isMapped', isMapped],
    ['isReadable', isReadable],
  ])('%s sees holes anywhere', (_name, probe) => {
    withHole((address) => {
      expect(probe(address, PAGE_SIZE)).toBe(true);
      expect(probe(address, PAGE_SIZE + 1)).toBe(false);
      expect(probe(address, 3 * PAGE_SIZE)).toBe(false);
      expect(probe(address + PAGE_SIZE + 5, 1)).toBe(false);
      expect(probe(address + 2 * PAGE_SIZE - 1, 2)).toBe(false);
      expect(probe(address + 2 * PAGE_SIZE, PAGE_SIZE)).toBe(true);
    });
  });

  it('are false for the null page, for addresses outside user memory and for empty ranges', () => {
    for (const probe of [isMapped, isReadable]) {
      expect(probe(0, 8)).toBe(false);
      expect(probe(2 ** 47, 8)).toBe(false);
      expect(probe(-4096, 8)).toBe(false);
      expect(probe(65536, 2 ** 46)).toBe(false);
      using memory = mapAnonymous(4096);
      expect(probe(memory.address, 0)).toBe(false);
    }
  });

  it('distinguishes a mapping beyond the end of its file from a readable one', () => {
    const fd = memfdCreate('short');
    ftruncate(fd, PAGE_SIZE);
    const address = mapLarge(fd, 2 * PAGE_SIZE);
    expect(isMapped(address, 2 * PAGE_SIZE)).toBe(true);
    expect(isReadable(address, PAGE_SIZE)).toBe(true);
    expect(isReadable(address, 2 * PAGE_SIZE)).toBe(false);
    unmapLarge(address, 2 * PAGE_SIZE);
    close(fd);
  });
});

describe('populateWritable and ProcessMaps.isWritable', () => {
  using maps = new ProcessMaps(process.pid);
  const checks = (address: number, byteLength: number): readonly boolean[] => [
    populateWritable(address, byteLength),
    maps.isWritable(address, byteLength),
  ];

  it('refuse a range with a page that is read-only', () => {
    using memory = mapAnonymous(3 * PAGE_SIZE);
    expect(checks(memory.address, 3 * PAGE_SIZE)).toEqual([true, true]);
    protectPage(memory.address + PAGE_SIZE, 'read');
    expect(checks(memory.address, 3 * PAGE_SIZE)).toEqual([false, false]);
    expect(checks(memory.address + PAGE_SIZE, PAGE_SIZE)).toEqual([false, false]);
    expect(checks(memory.address, PAGE_SIZE)).toEqual([true, true]);
    expect(checks(memory.address + 2 * PAGE_SIZE, PAGE_SIZE)).toEqual([true, true]);
  });

  it('refuse a range with a hole', () => {
    withHole((address) => {
      expect(checks(address, PAGE_SIZE)).toEqual([true, true]);
      expect(checks(address, 3 * PAGE_SIZE)).toEqual([false, false]);
      expect(checks(address + PAGE_SIZE, PAGE_SIZE)).toEqual([false, false]);
    });
  });
});

describe('copyFromProcess and copyToProcess', () => {
  it('reach the memory of this process', () => {
    using memory = mapAnonymous(8192);
    memory.u8.fill(6, 0, 4096);
    expect(copyFromProcess(process.pid, memory.address, memory.address + 4096, 4096)).toBe(4096);
    expect(memory.u8[8191]).toBe(6);
    memory.u8.fill(7, 0, 100);
    expect(copyToProcess(process.pid, memory.address + 4096, memory.address, 100)).toBe(100);
    expect([memory.u8[4195], memory.u8[4196]]).toEqual([7, 6]);
  });

  it('return -EFAULT for an invalid local or remote address', () => {
    using memory = mapAnonymous(4096);
    expect(copyFromProcess(process.pid, 4096, memory.address, 8)).toBe(-Errno.EFAULT);
    expect(copyFromProcess(process.pid, memory.address, 4096, 8)).toBe(-Errno.EFAULT);
    expect(copyToProcess(process.pid, 4096, memory.address, 8)).toBe(-Errno.EFAULT);
  });

  it('return the number of bytes copied before a hole', () => {
    withHole((address) => {
      using memory = mapAnonymous(3 * PAGE_SIZE);
      expect(copyFromProcess(process.pid, address, memory.address, 3 * PAGE_SIZE)).toBe(PAGE_SIZE);
    });
  });

  it('return -ESRCH for a process that was killed', async () => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000); console.log("up")'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    await once(child.stdout, 'data');
    using memory = mapAnonymous(4096);
    expect(copyFromProcess(child.pid!, 4096, memory.address, 8)).toBe(-Errno.EFAULT);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(copyFromProcess(child.pid!, 4096, memory.address, 8)).toBe(-Errno.ESRCH);
  });
});
