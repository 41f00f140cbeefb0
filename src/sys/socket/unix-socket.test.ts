import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Errno } from '../base/errno.ts';
import { mapFile } from '../base/mapped-memory.ts';
import { close, dup, fstat, isCloexec, openFileDescriptors, PollEvent, pollNow } from '../file/file.ts';
import { ftruncate, memfdCreate } from '../memory/memfd.ts';
import {
  connectUnix,
  listenUnix,
  MESSAGE_BYTES_MAX,
  MESSAGE_FDS_MAX,
  SocketType,
  unixSocketPair,
} from './unix-socket.ts';

const { STREAM, SEQPACKET } = SocketType;
const TYPES = [
  ['STREAM', STREAM],
  ['SEQPACKET', SEQPACKET],
] as const;

let folder: string;
let descriptors: number;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sys-unix-'));
  descriptors = openFileDescriptors();
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  expect(openFileDescriptors()).toBe(descriptors);
});

describe.each(TYPES)('sendmsg and recvmsg, %s', (_name, type) => {
  it('transfer bytes and the content of a memfd', () => {
    const [left, right] = unixSocketPair(type);
    const fd = memfdCreate('carried');
    ftruncate(fd, 8192);
    using sent = mapFile(fd, 8192, 0);
    sent.u8.set([1, 2, 3], 5000);
    expect(left.sendmsg(Uint8Array.of(10, 20, 30), [fd, left.fd])).toBe(3);
    close(fd);
    const target = new Uint8Array(16);
    const fds: number[] = [];
    expect(right.recvmsg(target, fds)).toBe(3);
    expect([...target.subarray(0, 4)]).toEqual([10, 20, 30, 0]);
    expect(fds).toHaveLength(2);
    expect(isCloexec(fds[0]!)).toBe(true);
    expect(fstat(fds[1]!)).toEqual(fstat(left.fd));
    using received = mapFile(fds[0]!, 8192, 0);
    expect([...received.u8.subarray(5000, 5003)]).toEqual([1, 2, 3]);
    received.u8[0] = 9;
    expect(sent.u8[0]).toBe(9);
    for (const descriptor of fds) close(descriptor);
    left.close();
    right.close();
  });

  it('return -EAGAIN if empty or full, 0 at the end and -EPIPE beyond', () => {
    const [left, right] = unixSocketPair(type);
    const target = new Uint8Array(MESSAGE_BYTES_MAX);
    expect(right.recvmsg(target, [])).toBe(-Errno.EAGAIN);
    let sent = 0;
    let result = 0;
    while (result >= 0) {
      result = left.sendmsg(new Uint8Array(30_000));
      if (result > 0) sent += result;
    }
    expect(result).toBe(-Errno.EAGAIN);
    left.close();
    let received = 0;
    for (let bytes = right.recvmsg(target, []); bytes > 0; bytes = right.recvmsg(target, [])) received += bytes;
    expect(received).toBe(sent);
    expect(right.recvmsg(target, [])).toBe(0);
    expect(right.sendmsg(Uint8Array.of(1))).toBe(-Errno.EPIPE);
    right.close();
  });

  it('connect, accept and report their peers', () => {
    const path = join(folder, 'node.sock');
    const listener = listenUnix(path, type);
    expect(listener.accept()).toBeUndefined();
    const client = connectUnix(path, type);
    expect(pollNow(listener.fd, PollEvent.IN)).toBe(PollEvent.IN);
    const server = listener.accept()!;
    expect(isCloexec(server.fd)).toBe(true);
    const self = { pid: process.pid, uid: process.getuid?.(), gid: process.getgid?.() };
    expect([server.peerCredentials(), client.peerCredentials()]).toEqual([self, self]);
    client.sendmsg(Buffer.from('ping'));
    const target = Buffer.alloc(8);
    expect(server.recvmsg(target, [])).toBe(4);
    expect(target.toString('latin1', 0, 4)).toBe('ping');
    listener.close();
    listener.close();
    expect(existsSync(path)).toBe(false);
    client.close();
    client.close();
    server.close();
    const closed = expect.objectContaining({ code: 'ERR_CLOSED' });
    expect(() => listener.accept()).toThrow(closed);
    expect(() => client.sendmsg(Uint8Array.of(1))).toThrow(closed);
    expect(() => client.recvmsg(target, [])).toThrow(closed);
    expect(() => client.peerCredentials()).toThrow(closed);
  });
});

describe('messages', () => {
  it('keep their boundaries with SEQPACKET', () => {
    const [left, right] = unixSocketPair(SEQPACKET);
    left.sendmsg(Uint8Array.of(1, 2));
    left.sendmsg(new Uint8Array(MESSAGE_BYTES_MAX).fill(3));
    const target = new Uint8Array(MESSAGE_BYTES_MAX);
    expect(right.recvmsg(target, [])).toBe(2);
    expect(right.recvmsg(target, [])).toBe(MESSAGE_BYTES_MAX);
    expect(target.every((byte) => byte === 3)).toBe(true);
    left.close();
    right.close();
  });

  it('that do not fit are rejected with their descriptors', () => {
    const [left, right] = unixSocketPair(SEQPACKET);
    left.sendmsg(new Uint8Array(10), [left.fd]);
    const fds: number[] = [];
    expect(right.recvmsg(new Uint8Array(9), fds)).toBe(-Errno.EMSGSIZE);
    expect(fds).toEqual([]);
    left.close();
    right.close();
  });

  it('transfer the maximum number of descriptors of Linux', () => {
    const [left, right] = unixSocketPair(SEQPACKET);
    const many = Array<number>(MESSAGE_FDS_MAX).fill(left.fd);
    expect(left.sendmsg(Uint8Array.of(1), many)).toBe(1);
    const fds: number[] = [];
    expect(right.recvmsg(new Uint8Array(1), fds)).toBe(1);
    expect(fds).toHaveLength(MESSAGE_FDS_MAX);
    for (const fd of fds) close(fd);
    expect(() => left.sendmsg(Uint8Array.of(1), [...many, left.fd])).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
    left.close();
    right.close();
  });

  it('are checked', () => {
    const [left, right] = unixSocketPair(SEQPACKET);
    const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
    expect(() => left.sendmsg(new Uint8Array(0))).toThrow(invalid);
    expect(() => left.sendmsg(new Uint8Array(MESSAGE_BYTES_MAX + 1))).toThrow(invalid);
    expect(left.sendmsg(Uint8Array.of(1), [9999])).toBe(-Errno.EBADF);
    left.close();
    right.close();
  });

  it('are sent in part on a stream if they are too long', () => {
    const [left, right] = unixSocketPair(STREAM);
    expect(left.sendmsg(new Uint8Array(MESSAGE_BYTES_MAX + 1))).toBe(MESSAGE_BYTES_MAX);
    left.close();
    right.close();
  });
});

describe('listenUnix and connectUnix', () => {
  it('accept abstract names', () => {
    const name = `\0sys-unix-socket-test-${process.pid}`;
    const listener = listenUnix(name, STREAM);
    const client = connectUnix(name, STREAM);
    const server = listener.accept();
    expect(server).toBeDefined();
    for (const socket of [listener, client, server]) socket?.close();
  });

  it('report errors and then leak nothing', () => {
    const path = join(folder, 'node.sock');
    const errno = (value: number): unknown => expect.objectContaining({ errno: value });
    expect(() => connectUnix(path, STREAM)).toThrow(errno(Errno.ENOENT));
    const listener = listenUnix(path, STREAM);
    expect(() => listenUnix(path, STREAM)).toThrow(errno(Errno.EADDRINUSE));
    expect(() => connectUnix(path, SEQPACKET)).toThrow(errno(Errno.EPROTOTYPE));
    const survivor = dup(listener.fd);
    listener.close();
    close(survivor);
    const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
    expect(() => connectUnix('x'.repeat(108), STREAM)).toThrow(invalid);
    expect(() => listenUnix('', STREAM)).toThrow(invalid);
  });
});
