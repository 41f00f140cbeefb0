/** Files over scripted calls: signals, locks, masks of polls, reservations in pieces, devices, and what is left when a call fails. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { failure, useScript } from '../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../test/fixtures/processes/scripted-libc.ts';
import { Errno } from '../base/errno.ts';
import { viewAt } from '../base/mapped-memory.ts';
import {
  close,
  dup,
  errnoOf,
  ioctl,
  isCloexec,
  lockFile,
  OpenFlag,
  open,
  PollEvent,
  pipe2,
  pollFor,
  pollNow,
  pread,
  pwrite,
  read,
  setCloexec,
  tryLockFile,
  write,
} from './file.ts';
import { descriptorFile, fileStatus, reserveFile } from './file-status.ts';
import { closeBacking, isFuse, openBacking, readFuse, writeFuse } from './fuse.ts';
import { mount, unmount } from './mount.ts';
import { Udmabuf } from './udmabuf.ts';

vi.mock('../base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();

/** Runs with a separate open file that has these bytes. */
function withFile(bytes: string, use: (fd: number, path: string) => void): void {
  const folder = mkdtempSync(join(tmpdir(), 'sys-'));
  const path = join(folder, 'file');
  writeFileSync(path, bytes);
  const fd = open(path, OpenFlag.RDWR);
  try {
    use(fd, path);
  } finally {
    close(fd);
    rmSync(folder, { recursive: true });
  }
}

describe('a descriptor', () => {
  it('is close-on-exec by default, as are its duplicates', () =>
    withFile('', (fd) => {
      const copy = dup(fd);
      expect([fd, copy].map(isCloexec)).toEqual([true, true]);
      setCloexec(copy, false);
      expect([fd, copy].map(isCloexec)).toEqual([true, false]);
      const second = dup(copy);
      setCloexec(copy, true);
      expect([copy, second].map(isCloexec)).toEqual([true, true]);
      close(copy);
      close(second);
    }));

  it('is opened after a signal, and closed by a close that a signal interrupts', () => {
    script('openCall', -Errno.EINTR, -Errno.EMFILE);
    expect(() => open('/dev/null', OpenFlag.RDONLY)).toThrow(failure(Errno.EMFILE));
    script('closeCall', -Errno.EINTR, -Errno.EBADF);
    close(9999);
    expect(() => close(9999)).toThrow(failure(Errno.EBADF));
  });

  it('is read and written at its position or at an offset', () =>
    withFile('abcdefgh', (fd) => {
      const target = Buffer.alloc(2);
      const text = (count: number): string => `${count}${target.toString('latin1')}`;
      expect([text(read(fd, target)), text(pread(fd, target, 5)), text(read(fd, target))]).toEqual([
        '2ab',
        '2fg',
        '2cd',
      ]);
      expect([pwrite(fd, Buffer.from('XY'), 6), write(fd, Buffer.from('Z'))]).toEqual([2, 1]);
      const all = Buffer.alloc(9);
      expect([pread(fd, all, 0), all.toString('latin1', 0, 8), pread(fd, all, 8)]).toEqual([8, 'abcdZfXY', 0]);
      expect([read(9999, target), pwrite(9999, target, 0)]).toEqual([-Errno.EBADF, -Errno.EBADF]);
    }));

  it('has the number of its error; an error without one is not hidden', () => {
    expect(errnoOf(Object.assign(new Error('x'), { errno: -9 }))).toBe(9);
    expect(() => errnoOf(new TypeError('of the program'))).toThrow('of the program');
    script('ioctlCall', -Errno.ENOTTY, 7);
    expect([ioctl(3, 1, 0), ioctl(3, 1, 0)]).toEqual([-Errno.ENOTTY, 7]);
  });
});

describe('a lock', () => {
  it('is of one open file, exclusive, and ends with it', () =>
    withFile('', (fd, path) => {
      const other = open(path, OpenFlag.RDWR);
      expect([tryLockFile(fd), tryLockFile(other), tryLockFile(fd)]).toEqual([true, false, true]);
      close(other);
      const later = open(path, OpenFlag.RDWR);
      expect(tryLockFile(later)).toBe(false);
      close(later);
    }));

  it('is waited for, also after signals', () => {
    const operations: unknown[] = [];
    script('flock', -Errno.EINTR, -Errno.EINTR, (_fd, operation) => operations.push(operation) * 0, -Errno.EBADF);
    lockFile(3);
    expect(operations).toEqual([2]);
    expect(() => lockFile(3)).toThrow(failure(Errno.EBADF));
    script('flock', -Errno.EINTR, -Errno.EAGAIN, -Errno.EINTR, 0, -Errno.EBADF);
    expect([tryLockFile(3), tryLockFile(3)]).toEqual([false, true]);
    expect(() => tryLockFile(3)).toThrow(failure(Errno.EBADF));
  });
});

describe('a poll', () => {
  it('has the events that are there, and not those that were asked for now or before', () => {
    const [reader, writer] = pipe2();
    expect(pollNow(reader, PollEvent.IN | PollEvent.OUT | PollEvent.PRI)).toBe(0);
    expect(pollNow(writer, PollEvent.OUT)).toBe(PollEvent.OUT);
    // Asked for nothing: what an earlier poll has asked for is not reported.
    expect(pollNow(writer, 0)).toBe(0);
    write(writer, Uint8Array.of(1));
    expect([pollNow(reader, PollEvent.IN), pollFor(reader, PollEvent.IN, 100)]).toEqual([PollEvent.IN, PollEvent.IN]);
    close(writer);
    close(reader);
  });

  it('waits as long as asked for, within a limit; a signal ends it without events', () => {
    const times: unknown[] = [];
    const note = (_address: number, count: number, timeoutMs: number): number => {
      times.push([count, timeoutMs]);
      return 0;
    };
    script('pollCall', note, note, note, -Errno.EINTR, -Errno.ENOMEM);
    expect([pollFor(0, 1, 7), pollFor(0, 1, 5000), pollNow(0, 1), pollFor(0, 1, 5)]).toEqual([0, 0, 0, 0]);
    expect(times).toEqual([
      [1, 7],
      [1, 100],
      [1, 0],
    ]);
    expect(() => pollFor(0, 1, 5)).toThrow(failure(Errno.ENOMEM));
    script('pollCall', -Errno.EINTR, -Errno.EINTR, note);
    expect(pollNow(0, 1)).toBe(0);
  });

  it('of a pipe that cannot be made does not come to pass', () => {
    script('pipe2Call', -Errno.EMFILE);
    expect(() => pipe2()).toThrow(failure(Errno.EMFILE));
  });
});

describe('a file that is reserved', () => {
  const pieces = (byteLength: number, ...results: number[]): unknown[] => {
    const seen: unknown[] = [];
    const note =
      (result: number) =>
      (_fd: number, mode: number, offset: number, length: number): number => {
        seen.push([mode, offset, length]);
        return result;
      };
    script('fallocate', ...results.map(note));
    reserveFile(3, byteLength);
    return seen;
  };
  const MIB = 2 ** 20;

  it('is all of it, in pieces, and no more', () => {
    expect(pieces(5 * MIB + 7, 0, 0, 0)).toEqual([
      [0, 0, 2 * MIB],
      [0, 2 * MIB, 2 * MIB],
      [0, 4 * MIB, MIB + 7],
    ]);
  });

  it('is in smaller pieces under frequent signals, down to a page', () => {
    const seen = pieces(8192, ...Array<number>(12).fill(-Errno.EINTR), 0, 0);
    expect(seen.slice(-3)).toEqual([
      [0, 0, 4096],
      [0, 0, 4096],
      [0, 4096, 4096],
    ]);
  });

  it('fails without space', () => {
    script('fallocate', 0, -Errno.ENOSPC);
    expect(() => reserveFile(3, 4 * MIB, 'ring')).toThrow(/ENOSPC.*4194304 bytes of ring/);
  });
});

describe('the status of a file', () => {
  it('has all permission bits and the kind', () =>
    withFile('abc', (fd, path) => {
      const [reader, writer] = pipe2();
      expect(fileStatus(reader).kind).toBe('fifo');
      close(reader);
      close(writer);
      script('openCall', -Errno.EACCES);
      expect(() => open(path, OpenFlag.RDONLY)).toThrow(failure(Errno.EACCES));
      expect(fileStatus(fd)).toMatchObject({ kind: 'file', byteLength: 3, mode: 0o644 & ~process.umask() });
    }));

  it('of a descriptor has the device with its major number first, or none', () => {
    script('statxCall', (...args) => {
      const view = new DataView(viewAt(args[4]!, 256));
      view.setUint32(136, 8, true);
      view.setUint32(140, 52, true);
      view.setBigUint64(32, 12_345n, true);
      return 0;
    });
    expect(descriptorFile('self', 0)).toEqual({ device: '8:52', ino: 12_345 });
    script('statxCall', -Errno.ENOENT, -Errno.ENOENT);
    expect([descriptorFile('self', 0), descriptorFile(41, 0)]).toEqual([undefined, undefined]);
  });
});

describe('devices', () => {
  it('of dma-bufs are closed after the creation, which has its errno', () => {
    const device = new Udmabuf('/dev/null');
    script('ioctlCall', -Errno.EINVAL, (_fd, request, address) => {
      const view = new DataView(viewAt(address!, 24));
      const fields = [view.getInt32(0, true), view.getUint32(4, true), view.getBigUint64(8, true)];
      expect([request, ...fields, view.getBigUint64(16, true)]).toEqual([0x4018_7542, 41, 1, 4096n, 8192n]);
      return 77;
    });
    expect(() => device.create(41, 4096, 8192)).toThrow(failure(Errno.EINVAL));
    expect(device.create(41, 4096, 8192)).toBe(77);
    expect(device.unavailableReason).toBeUndefined();
    expect(new Udmabuf('/no/such/device').unavailableReason).toBe(
      '/no/such/device does not exist: load the udmabuf module',
    );
  });

  it('of file systems in user space have no request for a withdrawn one, and pass on the end', () => {
    script('read', -Errno.EINTR, -Errno.ENOENT, 40, -Errno.EAGAIN, -Errno.ENODEV);
    expect([1, 2, 3].map(() => readFuse(3, 4096, 100))).toEqual([40, 0, -Errno.ENODEV]);
    script('write', -Errno.EINTR, 16, -Errno.ENOENT);
    expect([1, 2].map(() => writeFuse(3, 4096, 16))).toEqual([0, -Errno.ENOENT]);
    const seen: unknown[] = [];
    const note =
      (result: number) =>
      (fd: number, request: number, address: number): number => {
        seen.push([fd, request, new DataView(viewAt(address, 4)).getInt32(0, true)]);
        return result;
      };
    script('ioctlCall', note(6), note(0), -Errno.EPERM);
    expect(openBacking(3, 44)).toBe(6);
    closeBacking(3, 6);
    expect(() => openBacking(3, 44)).toThrow(failure(Errno.EPERM));
    expect(seen).toEqual([
      [3, 0x4010_e501, 44],
      [3, 0x4004_e502, 6],
    ]);
    const other = open('/dev/null', OpenFlag.RDONLY);
    expect(isFuse(other)).toBe(false);
    close(other);
  });

  it('are mounted with the given arguments, and removed when no longer in use', () => {
    const seen: unknown[] = [];
    const note = (...args: unknown[]): number => seen.push(args) * 0;
    script('mountCall', note, note, -Errno.EPERM);
    mount('/a', { source: 's', type: 't', flags: 9, data: 'd' });
    mount('/b', {});
    expect(() => mount('/c', { type: 't' })).toThrow(failure(Errno.EPERM));
    script('umount2', note, -Errno.EINVAL);
    unmount('/a');
    expect(() => unmount('/a')).toThrow(failure(Errno.EINVAL));
    expect(seen).toEqual([
      ['s', '/a', 't', 9, 'd'],
      ['none', '/b', null, 0, null],
      ['/a', 2],
    ]);
  });
});
