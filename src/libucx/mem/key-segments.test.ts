/** Segments of shared memory in packed keys of libucp 1.13, whose bytes are those of real keys. */

import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { identityOf, segmentsOf, whileThere } from './key-segments.ts';

const NONE = { ids: [], files: [] };
const bytes = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, 'hex'));

describe('a packed key', () => {
  it.each([
    ['of sysv', '17000000000000000000000c31804c0400406e44e57f000000', { ids: [0x044c8031], files: [] }],
    [
      'of posix',
      '070000000000000000001823050000090000c000e0fc28037f0000009001000000000000',
      { ids: [], files: ['/proc/1315/fd/36'] },
    ],
    [
      'of posix without links of /proc',
      '0300000000000000000018fa8ad2400000004000f0e220bb7f00000090010000000000',
      { ids: [], files: ['/dev/shm/ucx_shm_posix_40d28afa'] },
    ],
    ['of a buffer', '130000000000000000000000', NONE],
    ['without memory domains', '000000000000000000', NONE],
    ['that is cut off', '17000000000000000000000c3180', NONE],
    ['that is too short', '1700', NONE],
  ])('%s', (_name, hex, segments) => {
    expect(segmentsOf(bytes(hex))).toEqual(segments);
  });
});

describe('a function', () => {
  const run = (): string => 'run';

  it('is called while the file is there, and not if its path is that of another file', () => {
    const folder = mkdtempSync(join(tmpdir(), 'key-segments-'));
    const file = join(folder, 'one');
    closeSync(openSync(file, 'w'));
    const segments = { ids: [], files: [file] };
    const identity = identityOf(segments)!;
    expect(whileThere(segments, identity, run)).toBe('run');
    expect(whileThere(segments, identity + 1n, run)).toBeUndefined();
    rmSync(folder, { recursive: true });
    expect(identityOf(segments)).toBeUndefined();
    expect(whileThere(segments, identity, run)).toBeUndefined();
  });

  it('is not called without its System V segment', () => {
    expect(whileThere({ ids: [0x7fff_ffff], files: [] }, 0n, run)).toBeUndefined();
    expect(whileThere(NONE, 0n, run)).toBe('run');
  });
});
