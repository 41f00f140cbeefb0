import { expect, it } from 'vitest';
import { parseMounts, readMounts } from './mount.ts';

it('mounts are parsed with escaped characters and optional fields', () => {
  const text = [
    '29 1 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw',
    '35 29 0:52 / /mnt/a\\040b\\134c rw - fuse gaudi\\011ucx rw,user_id=0',
  ].join('\n');
  expect(parseMounts(`${text}\n`)).toEqual([
    { device: '8:1', target: '/', type: 'ext4', source: '/dev/sda1' },
    { device: '0:52', target: '/mnt/a b\\c', type: 'fuse', source: 'gaudi\tucx' },
  ]);
});

it('the mounts of this thread include the root and /proc', () => {
  const targets = readMounts().map(({ target }) => target);
  expect(targets).toEqual(expect.arrayContaining(['/', '/proc']));
});
