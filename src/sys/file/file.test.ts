import fs, { mkdtempSync, rmSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { Errno } from '../base/errno.ts';
import { memfdCreate } from '../memory/memfd.ts';
import {
  close,
  dup,
  fcntl,
  fstat,
  isCloexec,
  OpenFlag,
  open,
  openFileDescriptors,
  PollEvent,
  pipe2,
  pollNow,
  pread,
  pwrite,
  read,
  setCloexec,
  write,
} from './file.ts';

const errno = (value: number): unknown => expect.objectContaining({ errno: value });

describe('open, read, write and close', () => {
  it('move data by position and by offset', () => {
    const folder = mkdtempSync(join(tmpdir(), 'sys-file-'));
    const fd = open(join(folder, 'data'), OpenFlag.RDWR | OpenFlag.CREAT | OpenFlag.EXCL);
    expect(write(fd, Buffer.from('hello world'))).toBe(11);
    expect(pwrite(fd, Buffer.from('W'), 6)).toBe(1);
    const target = new Uint8Array(5);
    expect(pread(fd, target, 6)).toBe(5);
    expect(Buffer.from(target).toString()).toBe('World');
    expect(read(fd, target)).toBe(0);
    expect(isCloexec(fd)).toBe(true);
    close(fd);
    rmSync(folder, { recursive: true });
  });

  it('report errors', () => {
    expect(() => open('/nonexistent/file', OpenFlag.RDONLY)).toThrow(
      expect.objectContaining({
        code: 'ERR_SYSCALL_ENOENT',
        message: 'open: ENOENT (no such file or directory): /nonexistent/file',
      }),
    );
    expect(() => close(9999)).toThrow(errno(Errno.EBADF));
    expect(read(9999, new Uint8Array(1))).toBe(-Errno.EBADF);
    expect(write(9999, new Uint8Array(1))).toBe(-Errno.EBADF);
    const [reader, writer] = pipe2(OpenFlag.CLOEXEC | OpenFlag.NONBLOCK);
    expect(read(reader, new Uint8Array(1))).toBe(-Errno.EAGAIN);
    expect(pread(reader, new Uint8Array(1), 0)).toBe(-Errno.ESPIPE);
    close(reader);
    expect(write(writer, new Uint8Array(1))).toBe(-Errno.EPIPE);
    close(writer);
  });
});

describe('reading', () => {
  it.each(['read', 'pread'] as const)('continues after a signal: %s', (name) => {
    const { readSync } = fs;
    const interrupted = Object.assign(new Error('EINTR: made up'), { code: 'EINTR', errno: -Errno.EINTR });
    const spy = vi.spyOn(fs, 'readSync').mockImplementation(((...args: Parameters<typeof readSync>) => {
      if (spy.mock.calls.length < 3) throw interrupted;
      return readSync(...args);
    }) as typeof readSync);
    syncBuiltinESMExports();
    const fd = memfdCreate('read');
    try {
      pwrite(fd, Buffer.from('bytes'), 0);
      const target = new Uint8Array(5);
      expect(name === 'read' ? read(fd, target) : pread(fd, target, 0)).toBe(5);
      expect(Buffer.from(target).toString()).toBe('bytes');
      expect(spy).toHaveBeenCalledTimes(3);
    } finally {
      close(fd);
      spy.mockRestore();
      syncBuiltinESMExports();
    }
  });
});

describe('a pipe', () => {
  it('has the end for reading first', () => {
    const [reader, writer] = pipe2(OpenFlag.CLOEXEC | OpenFlag.NONBLOCK);
    expect(write(writer, Uint8Array.of(7))).toBe(1);
    const target = new Uint8Array(2);
    expect([read(reader, target), [...target]]).toEqual([1, [7, 0]]);
    expect([write(reader, target), read(writer, target)]).toEqual([-Errno.EBADF, -Errno.EBADF]);
    close(reader);
    close(writer);
  });
});

describe('dup, fcntl and fstat', () => {
  it('return another descriptor of the same file', () => {
    const before = openFileDescriptors();
    const fd = memfdCreate('identity', { cloexec: false });
    const other = memfdCreate('identity');
    const copy = dup(fd);
    expect(openFileDescriptors()).toBe(before + 3);
    expect(fstat(copy)).toEqual(fstat(fd));
    expect(fstat(other).ino).not.toBe(fstat(fd).ino);
    expect([isCloexec(fd), isCloexec(copy)]).toEqual([false, true]);
    setCloexec(copy, false);
    expect(isCloexec(copy)).toBe(false);
    for (const open of [fd, other, copy]) close(open);
    expect(openFileDescriptors()).toBe(before);
  });

  it('identify device nodes', () => {
    const fd = open('/dev/null', OpenFlag.RDWR);
    expect(fstat(fd).rdev).toBe(0x103n);
    close(fd);
  });

  it('report errors', () => {
    expect(() => dup(9999)).toThrow(errno(Errno.EBADF));
    expect(() => fstat(9999)).toThrow(errno(Errno.EBADF));
    expect(() => fcntl(0, 9999, 0)).toThrow(errno(Errno.EINVAL));
  });
});

describe('pollNow', () => {
  it('returns the pending events', () => {
    const [reader, writer] = pipe2();
    expect(pollNow(reader, PollEvent.IN)).toBe(0);
    expect(pollNow(writer, PollEvent.OUT)).toBe(PollEvent.OUT);
    write(writer, new Uint8Array(1));
    expect(pollNow(reader, PollEvent.IN | PollEvent.OUT)).toBe(PollEvent.IN);
    close(writer);
    expect(pollNow(reader, PollEvent.IN)).toBe(PollEvent.IN | PollEvent.HUP);
    close(reader);
    expect(pollNow(9999, PollEvent.IN)).toBe(PollEvent.NVAL);
  });
});

describe('pipe2', () => {
  it('rejects unknown flags', () => {
    expect(() => pipe2(1 << 30)).toThrow(errno(Errno.EINVAL));
  });
});
