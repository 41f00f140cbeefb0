import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Errno } from '../base/errno.ts';
import { bootId, deviceOfPath, pathIdentity, pidNamespace } from '../process/namespace.ts';
import { close, OpenFlag, open } from './file.ts';
import { FileKind, fileStatus, mkfifo, reserveFile } from './file-status.ts';

const errno = (value: number): unknown => expect.objectContaining({ errno: value });
let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sys-status-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('fileStatus', () => {
  it('distinguishes files, pipes and others', () => {
    const file = open(join(folder, 'file'), OpenFlag.RDWR | OpenFlag.CREAT, 0o640);
    reserveFile(file, 5000);
    expect(fileStatus(file)).toEqual({ kind: FileKind.FILE, uid: process.geteuid?.(), mode: 0o640, byteLength: 5000 });
    mkfifo(join(folder, 'fifo'));
    const fifo = open(join(folder, 'fifo'), OpenFlag.RDONLY | OpenFlag.NONBLOCK);
    expect(fileStatus(fifo)).toMatchObject({ kind: FileKind.FIFO, mode: 0o600 });
    const other = open('/dev/null', OpenFlag.RDONLY);
    expect(fileStatus(other).kind).toBe(FileKind.OTHER);
    for (const fd of [file, fifo, other]) close(fd);
  });

  it('has the bits for another user, another group and a shared folder among the permissions', () => {
    for (const mode of [0o4755, 0o2750, 0o1777]) {
      const path = join(folder, `${mode}`);
      mkdirSync(path);
      chmodSync(path, mode);
      const fd = open(path, OpenFlag.RDONLY);
      expect(fileStatus(fd).mode).toBe(mode);
      close(fd);
    }
  });

  it('and the related functions report errors', () => {
    expect(() => fileStatus(9999)).toThrow(errno(Errno.EBADF));
    expect(() => reserveFile(9999, 1)).toThrow(errno(Errno.EBADF));
    expect(() => mkfifo(join(folder, 'none', 'fifo'))).toThrow(errno(Errno.ENOENT));
    mkfifo(join(folder, 'fifo'));
    expect(() => mkfifo(join(folder, 'fifo'))).toThrow(errno(Errno.EEXIST));
  });
});

describe('the namespace of a process', () => {
  it('is the same at every call', () => {
    expect(bootId()).toEqual(bootId());
    expect(bootId()).toHaveLength(16);
    expect(pidNamespace()).toBe(pidNamespace());
    expect(pidNamespace()).toBeGreaterThan(0);
    expect(deviceOfPath(folder)).toBe(deviceOfPath(join(folder, '.')));
    expect(deviceOfPath(join(folder, 'none'))).toBeUndefined();
  });

  it('distinguishes folders of one file system, whatever their paths are', () => {
    mkdirSync(join(folder, 'inner'));
    symlinkSync(folder, join(folder, 'inner', 'outer'));
    expect(pathIdentity(join(folder, 'inner', 'outer'))).toBe(pathIdentity(folder));
    expect(pathIdentity(join(folder, 'inner'))).not.toBe(pathIdentity(folder));
    expect(pathIdentity(join(folder, 'none'))).toBeUndefined();
  });
});
