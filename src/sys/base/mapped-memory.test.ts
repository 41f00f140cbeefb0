import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { collectGarbage } from '../../../test/fixtures/collect-garbage.ts';
import { property } from '../../../test/fixtures/property.ts';
import { close, openFileDescriptors } from '../file/file.ts';
import { ftruncate, memfdCreate } from '../memory/memfd.ts';
import { addressOf, isMapped } from '../memory/memory.ts';
import { Errno } from './errno.ts';
import {
  isOwnMapping,
  MappedMemory,
  mapAnonymous,
  mapFile,
  mappedMemoryStatistics,
  signedOffset,
  viewAt,
} from './mapped-memory.ts';

function memfdOf(byteLength: number | bigint): number {
  const fd = memfdCreate('mapped-memory-test');
  ftruncate(fd, byteLength);
  return fd;
}

/** The permissions of the mapping at an address, and whether its first page is in memory. */
function mappingAt(address: number): { readonly permissions: string; readonly isPresent: boolean } {
  const maps = readFileSync('/proc/self/maps', 'latin1').split('\n');
  const found = maps
    .map((line) => line.split(' '))
    .find(([range = '']) => {
      const [from, to] = range.split('-').map((part) => Number.parseInt(part, 16));
      return from! <= address && address < to!;
    });
  const entry = Buffer.alloc(8);
  const fd = openSync('/proc/self/pagemap', 'r');
  readSync(fd, entry, 0, 8, (address / 4096) * 8);
  closeSync(fd);
  return { permissions: found?.[1] ?? 'none', isPresent: entry[7]! >> 7 === 1 };
}

describe('mapAnonymous', () => {
  it.each([{}, { populate: true }, { shared: true }, { noReserve: true }])(
    'maps zeros that can be written: %j',
    (options) => {
      using memory = mapAnonymous(3 * 4096, options);
      expect(memory.address % 4096).toBe(0);
      expect(memory.u8.every((byte) => byte === 0)).toBe(true);
      memory.words[1] = 0xdeadbeef;
      expect(memory.view.getUint32(4, true)).toBe(0xdeadbeef);
      expect(addressOf(memory.u8)).toBe(memory.address);
    },
  );

  it('is private unless it is shared with children', () => {
    const shown = [{}, { shared: true }].map((options) => {
      using memory = mapAnonymous(8192, options);
      return mappingAt(memory.address).permissions;
    });
    expect(shown).toEqual(['rw-p', 'rw-s']);
  });

  it('has its pages at once if they are populated', () => {
    const present = [{}, { populate: true }].map((options) => {
      using memory = mapAnonymous(8192, options);
      return mappingAt(memory.address).isPresent;
    });
    expect(present).toEqual([false, true]);
  });

  it('is an own mapping until it is closed, with all of its pages and not more', () => {
    const memory = mapAnonymous(3 * 4096 - 5);
    const { address } = memory;
    const isOwn = (offset: number, byteLength: number): boolean => isOwnMapping(address + offset, byteLength);
    expect([isOwn(0, 1), isOwn(0, 3 * 4096), isOwn(4096, 2 * 4096)]).toEqual([true, true, true]);
    expect([isOwn(-1, 8), isOwn(0, 3 * 4096 + 1), isOwn(3 * 4096 - 1, 2)]).toEqual([false, false, false]);
    memory.close();
    expect([isOwn(0, 1), isOwn(4096, 8)]).toEqual([false, false]);
  });

  it('has views of exactly the requested length', () => {
    using memory = mapAnonymous(13);
    expect(memory.byteLength).toBe(13);
    expect([memory.buffer.byteLength, memory.u8.length, memory.words.length, memory.view.byteLength]).toEqual([
      13, 13, 3, 13,
    ]);
  });

  it('maps 4 GiB, the longest view', () => {
    using memory = mapAnonymous(2 ** 32, { noReserve: true });
    memory.u8[2 ** 32 - 1] = 5;
    expect(memory.words[2 ** 30 - 1]).toBe(5 << 24);
  });

  it.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 32 + 1])('rejects the length %d', (byteLength) => {
    expect(() => mapAnonymous(byteLength)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });
});

describe('mapFile', () => {
  it('shows what other mappings of the file write', () => {
    const fd = memfdOf(8192);
    using first = mapFile(fd, 8192, 0);
    using second = mapFile(fd, 4096, 4096, { populate: true });
    close(fd);
    first.words[1024] = 77;
    expect(second.words[0]).toBe(77);
    second.words[1] = 78;
    expect(first.words[1025]).toBe(78);
  });

  it('takes offsets of 2^62 as bigint', () => {
    const fd = memfdOf((1n << 62n) + 4096n);
    using memory = mapFile(fd, 4096, 1n << 62n);
    memory.words[0] = 1;
    using again = mapFile(fd, 4096, 1n << 62n);
    expect(again.words[0]).toBe(1);
    close(fd);
  });

  it('passes an offset with the top bit set on to the kernel, which rejects it for a memfd', () => {
    const fd = memfdOf(4096);
    expect(() => mapFile(fd, 4096, 0xc000_0000_0000_0000n)).toThrow(
      expect.objectContaining({ errno: Errno.EOVERFLOW }),
    );
    close(fd);
  });

  it.each([-1, 0.5, 2 ** 60, -1n, 1n << 64n])('rejects the offset %s', (offset) => {
    expect(() => mapFile(0, 4096, offset)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });

  it('reports a failed mmap with its errno and leaves nothing behind', () => {
    const before = mappedMemoryStatistics();
    expect(() => mapFile(9999, 4096, 0)).toThrow(
      expect.objectContaining({
        code: 'ERR_SYSCALL_EBADF',
        syscall: 'mmap',
        message: 'mmap: EBADF (bad file descriptor): 4096 bytes of fd 9999 at 0',
      }),
    );
    const fd = memfdOf(8192);
    expect(() => mapFile(fd, 4096, 17)).toThrow(expect.objectContaining({ errno: Errno.EINVAL }));
    close(fd);
    expect(mappedMemoryStatistics()).toEqual(before);
  });
});

describe('signedOffset', () => {
  it('is an off_t, negative with the top bit', () => {
    expect([4096, 4096n, (1n << 63n) - 4096n].map((offset) => signedOffset(offset))).toEqual([
      4096,
      4096n,
      (1n << 63n) - 4096n,
    ]);
    expect(signedOffset(0xc000_0000_0000_0000n)).toBe(-(1n << 62n));
    expect(signedOffset((1n << 64n) - 4096n)).toBe(-4096n);
  });

  property('keeps all 64 bits', [fc.bigInt({ min: 0n, max: (1n << 64n) - 1n })], (offset) => {
    expect(BigInt.asUintN(64, BigInt(signedOffset(offset)))).toBe(offset);
  });
});

describe('MappedMemory.close', () => {
  it('makes stale views read zeros and reach no memory', () => {
    const fd = memfdOf(8192);
    const memory = mapFile(fd, 8192, 0);
    using other = mapFile(fd, 8192, 0);
    memory.u8.fill(9);
    const stale = memory.u8.subarray(4096);
    memory.close();
    expect(memory.closed).toBe(true);
    expect(stale.every((byte) => byte === 0)).toBe(true);
    stale[0] = 1;
    expect(stale[0]).toBe(1);
    expect(other.u8.every((byte) => byte === 9)).toBe(true);
    close(fd);
  });

  it('is idempotent and counted', () => {
    const before = mappedMemoryStatistics();
    const memory = mapAnonymous(4096);
    expect(mappedMemoryStatistics()).toMatchObject({
      liveMappings: before.liveMappings + 1,
      liveBytes: before.liveBytes + 4096,
    });
    memory.close();
    memory.close();
    const after = mappedMemoryStatistics();
    expect([after.liveMappings, after.liveBytes]).toEqual([before.liveMappings, before.liveBytes]);
  });

  it('leaves no descriptor open', () => {
    const before = openFileDescriptors();
    const fd = memfdOf(4096);
    const memory = mapFile(fd, 4096, 0);
    close(fd);
    memory.close();
    expect(openFileDescriptors()).toBe(before);
  });

  it('releases the addresses when the views are collected, and not before', async () => {
    const burial = (): { address: number; stale: Uint8Array[] } => {
      const memory = mapAnonymous(1 << 20);
      memory.close();
      return { address: memory.address, stale: [memory.u8] };
    };
    const { address, stale } = burial();
    const { graveyardMappings } = mappedMemoryStatistics();
    collectGarbage();
    await new Promise(setImmediate);
    expect(isMapped(address, 1 << 20)).toBe(true);
    expect(stale[0]?.[0]).toBe(0);
    stale.pop();
    // Not the total: other test files in this process may have views left.
    for (let round = 0; round < 100 && isMapped(address, 1 << 20); round++) {
      collectGarbage();
      await new Promise(setImmediate);
    }
    expect(isMapped(address, 1 << 20)).toBe(false);
    // Other files add no graves meanwhile: their tests do not run at the same time.
    expect(mappedMemoryStatistics().graveyardMappings).toBeLessThan(graveyardMappings);
  });
});

describe('viewAt', () => {
  it('sees the memory of its owner', () => {
    using memory = mapAnonymous(4096);
    const view = new Uint8Array(viewAt(memory.address + 100, 8));
    memory.u8[103] = 42;
    expect(view[3]).toBe(42);
    view[4] = 43;
    expect(memory.u8[104]).toBe(43);
  });

  it.each([
    [0, 8],
    [-4096, 8],
    [2 ** 47, 8],
    [4096.5, 8],
    [65536, 0],
    [65536, 2 ** 32 + 4096],
  ])('refuses address %d with length %d', (address, byteLength) => {
    expect(() => viewAt(address, byteLength)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });

  it('is not an owner', () => {
    using memory = mapAnonymous(4096);
    const before = mappedMemoryStatistics();
    viewAt(memory.address, 4096);
    expect(mappedMemoryStatistics()).toEqual(before);
    expect(memory).toBeInstanceOf(MappedMemory);
  });
});
