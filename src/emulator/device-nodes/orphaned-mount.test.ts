/** A mount whose server has ended, against a kernel of this test. */

import { afterEach, beforeEach, expect, it } from 'vitest';
import { FuseKernel } from '../../../test/fixtures/driver/fuse-kernel.ts';
import { dup, Errno, EventFd, SocketType, type UnixSocket, unixSocketPair } from '../../sys/index.ts';
import { FuseOp } from './fuse-channel.ts';
import { guardMount, OrphanedMount } from './orphaned-mount.ts';

const ROOT = 1;
/** FUSE_NOTIFY_RESEND of include/uapi/linux/fuse.h, Linux 6.12. */
const RESEND = 7;

let kernel: FuseKernel;
let server: UnixSocket;
let connection: UnixSocket;
let stop: EventFd;
beforeEach(() => {
  kernel = new FuseKernel();
  [server, connection] = unixSocketPair(SocketType.SEQPACKET);
  stop = new EventFd();
});
afterEach(() => {
  for (const each of [server, connection, stop]) each.close();
  kernel[Symbol.dispose]();
});

/** Guards the mount as it is now. */
function guard(): void {
  stop.signal();
  guardMount({ server: connection.fd, fuse: dup(kernel.channel.fd), stop: stop.fd });
}

it('is left to its server while that runs', () => {
  kernel.send(FuseOp.LOOKUP, ROOT, new Uint8Array(8));
  guard();
  expect(kernel.answer()).toBeUndefined();
});

it('whose server has ended gets the requests without a reply again', () => {
  server.close();
  guard();
  expect(kernel.answer()).toEqual({ error: RESEND, unique: 0n, data: Buffer.alloc(0) });
  expect(kernel.answer()).toBeUndefined();
});

it.each([
  ['LOOKUP', FuseOp.LOOKUP, -Errno.ENODEV],
  ['OPEN', FuseOp.OPEN, -Errno.ENODEV],
  ['IOCTL', FuseOp.IOCTL, -Errno.ENODEV],
  ['STATFS', FuseOp.STATFS, -Errno.ENODEV],
  ['RELEASE', FuseOp.RELEASE, 0],
  ['RELEASEDIR', FuseOp.RELEASEDIR, 0],
] as const)('replies to %s', (_, opcode, error) => {
  const mount = new OrphanedMount(dup(kernel.channel.fd));
  kernel.send(opcode, ROOT, new Uint8Array(64));
  expect(mount.serve()).toBe(true);
  expect(kernel.answer()).toMatchObject({ error });
  mount.close();
});

it('does not reply where the kernel expects nothing', () => {
  const mount = new OrphanedMount(dup(kernel.channel.fd));
  for (const opcode of [FuseOp.FORGET, FuseOp.BATCH_FORGET, FuseOp.INTERRUPT])
    kernel.send(opcode, ROOT, new Uint8Array(16));
  expect(mount.serve()).toBe(true);
  expect(kernel.answer()).toBeUndefined();
  mount.close();
});
