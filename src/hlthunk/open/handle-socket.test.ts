/** Descriptors that one process sends to another by a path: delivered once, and nothing is left whatever the other side does. */

import { getEventListeners } from 'node:events';
import { closeSync, existsSync, fstatSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { connectUnix, isCloexec, memfdCreate, openFileDescriptors, SocketType } from '../../sys/index.ts';
import { HANDLE_MESSAGE_BYTES_MAX, receiveHandle, sendHandle } from './handle-socket.ts';

describe('a handle', () => {
  expectNoLeaks();
  let folder = '';
  let path = '';
  let fd = -1;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-handle-'));
    path = join(folder, 'socket');
    fd = memfdCreate('handle');
    writeFileSync(fd, 'the same file');
  });
  afterEach(() => {
    closeSync(fd);
    expect(existsSync(path)).toBe(false);
    rmSync(folder, { recursive: true });
  });

  const aborted = (): AbortSignal => AbortSignal.abort(new Error('enough'));

  it.each([0, 40, HANDLE_MESSAGE_BYTES_MAX])('of %s bytes arrives with its descriptor', async (byteLength) => {
    const handle = Uint8Array.from({ length: byteLength }, (_, i) => i * 7);
    const receiving = receiveHandle(path);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const [received] = await Promise.all([receiving, sendHandle(path, { fd, handle })]);
    expect(Buffer.compare(received.handle, handle)).toBe(0);
    expect(received.pid).toBe(process.pid);
    expect([fstatSync(received.fd).ino, isCloexec(received.fd)]).toEqual([fstatSync(fd).ino, true]);
    expect(readFileSync(`/proc/self/fd/${received.fd}`, 'utf8')).toBe('the same file');
    closeSync(received.fd);
  });

  it('goes to the receiver that waits at the path, once', async () => {
    const one = receiveHandle(path);
    await expect(receiveHandle(path)).rejects.toThrow(
      /channel failed: cannot wait at .*address already in use; remove the file/,
    );
    const [received] = await Promise.all([one, sendHandle(path, { fd, handle: Uint8Array.of(1) })]);
    closeSync(received.fd);
    const late = sendHandle(path, { fd, handle: Uint8Array.of(1) });
    await expect(late).rejects.toMatchObject({
      code: 'ERR_GAUDI_CHANNEL_FAILED',
      message: expect.stringMatching(
        /no process waits at .*: no such file or directory; call receiveHandle there first/,
      ),
    });
  });

  it('is not delivered to a receiver that has given up, and its sender does not wait for ever', async () => {
    const controller = new AbortController();
    const receiving = receiveHandle(path, { signal: controller.signal });
    const sending = sendHandle(path, { fd, handle: Uint8Array.of(1) });
    controller.abort();
    await expect(receiving).rejects.toMatchObject({ name: 'AbortError', code: 'ABORT_ERR' });
    await expect(sending).rejects.toMatchObject({
      code: 'ERR_GAUDI_CHANNEL_FAILED',
      message: expect.stringContaining('did not accept the descriptor'),
    });
    await expect(receiveHandle(path, { signal: aborted() })).rejects.toMatchObject({ name: 'AbortError' });
    await expect(receiveHandle(path, { signal: AbortSignal.timeout(1) })).rejects.toMatchObject({
      name: 'TimeoutError',
    });
  });

  it('is awaited in spite of senders that send something else, whose descriptors are closed', async () => {
    const before = openFileDescriptors();
    const receiving = receiveHandle(path);
    const strangers = Array.from({ length: 5 }, () => connectUnix(path, SocketType.SEQPACKET));
    strangers[0]!.sendmsg(Uint8Array.of(9), [fd]);
    strangers[1]!.sendmsg(Uint8Array.of(1));
    strangers[2]!.sendmsg(Uint8Array.of(1), [fd, fd]);
    strangers[3]!.sendmsg(new Uint8Array(HANDLE_MESSAGE_BYTES_MAX + 2).fill(1), [fd]);
    const [received] = await Promise.all([receiving, sendHandle(path, { fd, handle: Uint8Array.of(5) })]);
    expect([...received.handle]).toEqual([5]);
    closeSync(received.fd);
    for (const stranger of strangers) stranger.close();
    expect(openFileDescriptors()).toBe(before);
  });

  it('is rejected while 16 other senders are connected', async () => {
    const controller = new AbortController();
    const receiving = receiveHandle(path, { signal: controller.signal });
    const strangers = Array.from({ length: 16 }, () => connectUnix(path, SocketType.SEQPACKET));
    await expect(sendHandle(path, { fd, handle: Uint8Array.of(1) })).rejects.toMatchObject({
      code: 'ERR_GAUDI_CHANNEL_FAILED',
    });
    // Those that are connected may still send.
    strangers[15]!.sendmsg(Uint8Array.of(1, 8), [fd]);
    const received = await receiving;
    expect([...received.handle]).toEqual([8]);
    closeSync(received.fd);
    for (const stranger of strangers) stranger.close();
  });

  it('leaves no listener at the signals of its sender and receiver', async () => {
    const { signal } = new AbortController();
    const receiving = receiveHandle(path, { signal });
    const sending = sendHandle(path, { fd, handle: Uint8Array.of(1) }, { signal });
    expect(getEventListeners(signal, 'abort')).toHaveLength(2);
    const [received] = await Promise.all([receiving, sending]);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    closeSync(received.fd);
  });

  it('is checked', async () => {
    const handle = Uint8Array.of(1);
    const bad: readonly [() => Promise<unknown>, RegExp][] = [
      [() => sendHandle(path, { fd: -1, handle }), /argument fd must be a file descriptor/],
      [() => sendHandle(path, { fd, handle: new Uint8Array(HANDLE_MESSAGE_BYTES_MAX + 1) }), /argument handle must/],
      [() => sendHandle(path, { fd, handel: handle } as never), /did you mean handle/],
      [() => sendHandle('', { fd, handle }), /argument path must/],
      [() => receiveHandle(`/${'x'.repeat(107)}`), /argument path must be an absolute path of at most 107 bytes/],
      [() => receiveHandle(path, { signal: 1 as never }), /argument signal must be an AbortSignal/],
      [() => receiveHandle('socket'), /argument path must be an absolute path/],
      [() => receiveHandle(join(path, 'x')), /channel failed: cannot wait at .*no such file/],
    ];
    for (const [call, message] of bad) await expect(call()).rejects.toThrow(message);
    const receiving = receiveHandle(path);
    await expect(sendHandle(path, { fd: 1_000_000, handle })).rejects.toThrow(/argument fd must be an open descriptor/);
    const [received] = await Promise.all([receiving, sendHandle(path, { fd, handle })]);
    closeSync(received.fd);
  });
});
