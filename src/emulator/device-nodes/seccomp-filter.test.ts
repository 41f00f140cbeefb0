/** The filter of system calls, run by an interpreter of this test. */

import { expect, it } from 'vitest';
import { DRM_IOCTLS, HABANALABS_IOCTLS } from '../../uapi/index.ts';
import { DEVICE_FILTER, SystemCall } from './seccomp-filter.ts';

const X86_64 = 0xc000_003e;
const [ALLOW, NOTIFY] = [0x7fff_0000, 0x7fc0_0000];
const [SHARED, PRIVATE, ANONYMOUS, DENYWRITE] = [1, 2, 0x20, 0x800];
const UNLINK = 87;

/** The decision about a call: classic BPF, as far as the filter uses it. */
function decide(number: number, args: Readonly<Record<number, number>>, arch = X86_64): number {
  const words: Record<number, number> = { 0: number, 4: arch };
  for (const [index, value] of Object.entries(args)) words[16 + 8 * Number(index)] = value;
  let accumulator = 0;
  for (let at = 0; ; at++) {
    const { code, value, jumpTrue, jumpFalse } = DEVICE_FILTER[at]!;
    if (code === 0x20) accumulator = (words[value] ?? 0) >>> 0;
    else if (code === 0x54) accumulator = (accumulator & value) >>> 0;
    else if (code === 0x15) at += accumulator === value >>> 0 ? jumpTrue : jumpFalse;
    else if (code === 0x45) at += (accumulator & value) !== 0 ? jumpTrue : jumpFalse;
    else return value;
  }
}

it.each([
  ['stat', NOTIFY, SystemCall.STAT, {}],
  ['lstat', NOTIFY, SystemCall.LSTAT, {}],
  ['fstat', NOTIFY, SystemCall.FSTAT, {}],
  ['newfstatat', NOTIFY, SystemCall.NEWFSTATAT, {}],
  ['statx', NOTIFY, SystemCall.STATX, {}],
  ['statfs', NOTIFY, SystemCall.STATFS, {}],
  ['fstatfs', NOTIFY, SystemCall.FSTATFS, {}],
  ['the addition to an epoll', NOTIFY, SystemCall.EPOLL_CTL, { 1: 1 }],
  ['the removal from an epoll', ALLOW, SystemCall.EPOLL_CTL, { 1: 2 }],
  ['MEMORY of DRM', NOTIFY, SystemCall.IOCTL, { 1: DRM_IOCTLS.MEMORY }],
  ['MEMORY of habanalabs', NOTIFY, SystemCall.IOCTL, { 1: HABANALABS_IOCTLS.MEMORY }],
  ['INFO', ALLOW, SystemCall.IOCTL, { 1: DRM_IOCTLS.INFO }],
  ['a shared mapping', NOTIFY, SystemCall.MMAP, { 3: SHARED }],
  ['a validated shared mapping', NOTIFY, SystemCall.MMAP, { 3: 3 }],
  ['a private mapping', NOTIFY, SystemCall.MMAP, { 3: PRIVATE }],
  ['a mapping of a library', ALLOW, SystemCall.MMAP, { 3: PRIVATE | DENYWRITE }],
  // Shared mappings ignore the flag.
  ['a shared mapping with MAP_DENYWRITE', NOTIFY, SystemCall.MMAP, { 3: SHARED | DENYWRITE }],
  ['an anonymous mapping', ALLOW, SystemCall.MMAP, { 3: PRIVATE | ANONYMOUS }],
  ['another call', ALLOW, UNLINK, {}],
])('%s: 0x%s', (_what, decision, number, args) => {
  expect(decide(number, args)).toBe(decision);
  // Programs of 32 bits have other numbers.
  expect(decide(number, args, 0x4000_0003)).toBe(ALLOW);
});
