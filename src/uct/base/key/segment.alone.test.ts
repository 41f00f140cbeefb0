/** A segment without space for it leaves nothing. Alone, because it replaces a call of the kernel. */

import { readdirSync } from 'node:fs';
import { expect, it, vi } from 'vitest';
import { openFileDescriptors } from '../../../sys/index.ts';
import { Segment } from './segment.ts';
import { SEGMENT_FOLDER } from './segment-name.ts';

vi.mock('../../../sys/index.ts', async (importOriginal) => {
  const sys = await importOriginal<typeof import('../../../sys/index.ts')>();
  const reserveFile = (_fd: number, byteLength: number): void => {
    throw new sys.SyscallError('fallocate', sys.Errno.ENOSPC, `${byteLength} bytes`);
  };
  return { ...sys, reserveFile };
});

it.each([true, false])(
  'a segment that finds no space leaves no file and no descriptor, with a path: %s',
  (keepsPath) => {
    const files = (): string[] =>
      readdirSync(SEGMENT_FOLDER).filter((name) => name.split('.')[2] === String(process.pid));
    const before = [openFileDescriptors(), files()];
    expect(() => Segment.create(4096, { keepsPath })).toThrow(/ENOSPC/);
    expect([openFileDescriptors(), files()]).toEqual(before);
  },
);
