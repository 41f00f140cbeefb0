import { fstatSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Errno } from '../base/errno.ts';
import { mapFile } from '../base/mapped-memory.ts';
import { close, isCloexec, openFileDescriptors } from '../file/file.ts';
import { addSeals, ftruncate, getSeals, memfdCreate, punchHole, SealFlag } from './memfd.ts';

const errno = (value: number): unknown => expect.objectContaining({ errno: value });

describe('memfdCreate', () => {
  it('makes a named file, close-on-exec by default', () => {
    const before = openFileDescriptors();
    const fd = memfdCreate('gaudi-hbm');
    const inherited = memfdCreate('gaudi-hbm', { cloexec: false });
    ftruncate(fd, 4096);
    using memory = mapFile(fd, 4096, 0);
    expect(readFileSync('/proc/self/maps', 'latin1')).toContain('/memfd:gaudi-hbm');
    expect([isCloexec(fd), isCloexec(inherited)]).toEqual([true, false]);
    memory.close();
    close(fd);
    close(inherited);
    expect(openFileDescriptors()).toBe(before);
  });

  it('rejects a name that is too long', () => {
    expect(() => memfdCreate('x'.repeat(250))).toThrow(errno(Errno.EINVAL));
  });
});

describe('ftruncate', () => {
  it('makes sparse files of any length', () => {
    const fd = memfdCreate('sparse');
    for (const length of [4096, 96 * 2 ** 30, 1n << 62n, (1n << 63n) - 4096n]) {
      ftruncate(fd, length);
      expect(fstatSync(fd, { bigint: true }).size).toBe(BigInt(length));
    }
    close(fd);
  });

  it('reports errors', () => {
    expect(() => ftruncate(9999, 4096)).toThrow(errno(Errno.EBADF));
    expect(() => ftruncate(0, -1)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });
});

describe('punchHole', () => {
  it('zeroes the range in the file and in its mappings, and nothing else', () => {
    const fd = memfdCreate('hole');
    ftruncate(fd, 3 * 4096);
    using memory = mapFile(fd, 3 * 4096, 0);
    memory.u8.fill(8);
    punchHole(fd, 4096, 4096);
    expect([memory.u8[4095], memory.u8[4096], memory.u8[8191], memory.u8[8192]]).toEqual([8, 0, 0, 8]);
    close(fd);
  });

  it('reports errors', () => {
    expect(() => punchHole(9999, 0, 4096)).toThrow(errno(Errno.EBADF));
  });
});

describe('addSeals', () => {
  it('prevents shrinking', () => {
    const fd = memfdCreate('sealed', { sealing: true });
    ftruncate(fd, 8192);
    addSeals(fd, SealFlag.SHRINK | SealFlag.SEAL);
    expect(getSeals(fd)).toBe(SealFlag.SHRINK | SealFlag.SEAL);
    expect(() => ftruncate(fd, 4096)).toThrow(errno(Errno.EPERM));
    expect(() => addSeals(fd, SealFlag.GROW)).toThrow(errno(Errno.EPERM));
    close(fd);
  });

  it('requires a file created with sealing', () => {
    const fd = memfdCreate('unsealed');
    expect(() => addSeals(fd, SealFlag.GROW)).toThrow(errno(Errno.EPERM));
    close(fd);
    expect(() => getSeals(9999)).toThrow(errno(Errno.EBADF));
  });
});
