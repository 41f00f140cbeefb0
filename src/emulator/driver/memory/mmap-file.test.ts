/** Which mappings of its file an mmap file finds: those of blocks apart from those of buffers. */

import { fstatSync } from 'node:fs';
import { expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { close, mapFile, memfdCreate } from '../../../sys/index.ts';
import { HandleType } from '../../../uapi/index.ts';
import { MmapFile } from './mmap-file.ts';

expectNoLeaks();

it('an mmap file finds mapped blocks and mapped buffers', () => {
  // The device node that a program maps: /proc shows its inode.
  const fd = memfdCreate('node');
  const file = new MmapFile(process.pid, fstatSync(fd).ino);
  const found = () => [file.hasBlocks, file.hasMappings];
  expect(found()).toEqual([false, false]);
  const block = mapFile(fd, 4096, file.cookie(HandleType.HW_BLOCK, 3));
  expect(found()).toEqual([true, false]);
  const buffer = mapFile(fd, 4096, file.cookie(HandleType.CB, 1));
  expect(found()).toEqual([true, true]);
  block.close();
  expect(found()).toEqual([false, true]);
  buffer.close();
  expect(found()).toEqual([false, false]);
  file.close();
  close(fd);
});
