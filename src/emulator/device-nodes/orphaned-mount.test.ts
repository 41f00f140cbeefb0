/** A mount without its server, against a kernel of this test. */

import { afterEach, beforeEach, expect, it } from 'vitest';
import { FuseKernel } from '../../../test/fixtures/driver/fuse-kernel.ts';
import { Errno } from '../../sys/index.ts';
import { FuseOp } from './fuse-channel.ts';
import { OrphanedMount } from './orphaned-mount.ts';

const ROOT = 1;
/** FUSE_NOTIFY_RESEND of include/uapi/linux/fuse.h, Linux 6.12. */
const RESEND = 7;

let kernel: FuseKernel;
let mount: OrphanedMount;
beforeEach(() => {
  kernel = new FuseKernel();
  mount = new OrphanedMount(kernel.channel.fd);
});
afterEach(() => {
  kernel[Symbol.dispose]();
});

it('asks for the requests that its server has not answered', () => {
  mount.adopt();
  expect(kernel.answer()).toEqual({ error: RESEND, unique: 0n, data: Buffer.alloc(0) });
});

it.each([
  ['LOOKUP', FuseOp.LOOKUP, -Errno.ENODEV],
  ['OPEN', FuseOp.OPEN, -Errno.ENODEV],
  ['IOCTL', FuseOp.IOCTL, -Errno.ENODEV],
  ['STATFS', FuseOp.STATFS, -Errno.ENODEV],
  ['RELEASE', FuseOp.RELEASE, 0],
  ['RELEASEDIR', FuseOp.RELEASEDIR, 0],
] as const)('replies to %s', (_, opcode, result) => {
  kernel.send(opcode, ROOT, new Uint8Array(64));
  expect(mount.serve()).toBe(true);
  expect(kernel.answer()).toMatchObject({ error: result });
});

it('does not reply where the kernel expects nothing', () => {
  for (const opcode of [FuseOp.FORGET, FuseOp.BATCH_FORGET, FuseOp.INTERRUPT])
    kernel.send(opcode, ROOT, new Uint8Array(16));
  expect(mount.serve()).toBe(true);
  expect(kernel.answer()).toBeUndefined();
});
