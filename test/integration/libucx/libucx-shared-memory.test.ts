/** Over libucp, with a /dev/shm that is full or read-only: posix is left out with the reason, and everything else works. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/shared-memory-program.ts'));
const FULL = 'mount -t tmpfs -o size=64k none /dev/shm';
const READ_ONLY = 'mount -t tmpfs -o ro none /dev/shm';
const SMALL = 'mount -t tmpfs -o size=16M none /dev/shm';
const FILL = 'head -c 100M /dev/zero > /dev/shm/x 2> /dev/null; true';

const made = spawnSync('unshare', ['--mount', 'true'], { encoding: 'utf8' });
const skipReason =
  installedLibucp().skipReason ??
  (made.status === 0 ? undefined : `namespaces cannot be made here (${made.error?.message ?? made.stderr.trim()})`);

/** Runs the program with its own /dev/shm. */
function run(mount: string, tls: string, between = ''): { result: unknown; lines: string[] } {
  const program = [process.execPath, PROGRAM, tls, between, 'libucx'];
  const { status, stdout, stderr } = spawnSync(
    'unshare',
    ['--mount', 'sh', '-c', `${mount} && exec "$@"`, 'sh', ...program],
    {
      encoding: 'utf8',
      timeout: 30_000,
    },
  );
  expect({ status, stderr }).toMatchObject({ status: 0 });
  return { result: JSON.parse(stdout), lines: stderr.split('\n').filter((line) => line !== '') };
}

describe.skipIf(skipReason !== undefined)(
  'a /dev/shm for libucp (needs libucp, root and unshare)',
  { timeout: 60_000 },
  () => {
    it.each([
      ['full', FULL, /\/dev\/shm has 64 KiB free, but a libucp worker needs \d+ KiB; .*UCX_TLS=\^posix/],
      ['read-only', READ_ONLY, /cannot create shared memory in \/dev\/shm: open: EROFS .*; .*UCX_TLS=\^posix/],
    ])('that is %s is reported, and other transports are used', (_, mount, reason) => {
      for (const tls of ['all', 'posix,tcp,self', 'shm,tcp,self', '^cma']) {
        const { result, lines } = run(mount, tls);
        expect(result).toMatchObject({ isWhole: true });
        expect(lines).toEqual([expect.stringMatching(`posix is left out of UCX_TLS: ${reason.source}`)]);
      }
    });

    it('that is full is not told to a program that does not use it', () => {
      expect(run(FULL, 'tcp,self')).toMatchObject({ result: { isWhole: true }, lines: [] });
      expect(run(FULL, '^posix')).toMatchObject({ result: { isWhole: true }, lines: [] });
    });

    it('is the cause if a worker cannot be created: it has become full, or is the only transport', () => {
      const message = expect.stringMatching(/^ucp_worker_create: .*\/dev\/shm has \d+ KiB free.*UCX_POSIX_DIR/);
      expect(run(SMALL, 'posix,tcp,self', FILL).result).toMatchObject({ message });
      expect(run(FULL, 'posix').result).toMatchObject({ message });
    });
  },
);
