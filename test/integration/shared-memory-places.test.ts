/** A /dev/shm that is full, read-only or unusable: transports that need it are not used, with the reason, and everything else works. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { built } from '../fixtures/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../fixtures/shared-memory-program.ts'));
/** A file of a process that has ended, which cannot be removed. */
const LEFT =
  'touch /dev/shm/gaudi_ucx.$(readlink /proc/self/ns/pid | tr -dc 0-9).4194304.1.00000000000000000000000000000000';

const FULL = 'mount -t tmpfs -o size=64k none /dev/shm';
const READ_ONLY = `mount -t tmpfs none /dev/shm && ${LEFT} && mount -o remount,ro /dev/shm`;
const NO_FILES = 'mount --bind /proc/1/task /dev/shm';
const FILL = 'head -c 100M /dev/zero > /dev/shm/x 2> /dev/null; true';
/** Leaves room for what a worker needs, and not for messages to a peer. */
const NEARLY_FILL = `${FILL}; truncate -s -96K /dev/shm/x`;

const made = spawnSync('unshare', ['--mount', 'true'], { encoding: 'utf8' });
const skip =
  made.status === 0 ? undefined : `namespaces cannot be made here (${made.error?.message ?? made.stderr.trim()})`;
if (skip !== undefined) console.info(`skipped: ${skip}`);

/** Runs the program with its own /dev/shm. */
function run(mount: string, tls: string, between = ''): { result: Record<string, unknown>; warnings: string[] } {
  const program = [process.execPath, PROGRAM, tls, between];
  const { stdout, stderr, status } = spawnSync(
    'unshare',
    ['--mount', 'sh', '-c', `${mount} && exec "$@"`, 'sh', ...program],
    {
      encoding: 'utf8',
    },
  );
  expect({ status, stderr }).toMatchObject({ status: 0 });
  return { result: JSON.parse(stdout), warnings: stderr.split('\n').filter((line) => line !== '') };
}

describe.skipIf(skip !== undefined)('a /dev/shm without room (needs root and unshare)', { timeout: 30_000 }, () => {
  it.each([
    ['full', FULL, 'ENOSPC'],
    ['read-only', READ_ONLY, 'EROFS'],
    ['no place for files', NO_FILES, 'ENOENT'],
  ])('that is %s is told, and the others carry everything', (_, mount, errno) => {
    const { result, warnings } = run(mount, 'posix,cma,tcp,self');
    expect(result).toEqual({ isWhole: true, transports: ['self/memory', 'cma/memory'] });
    expect(warnings).toEqual([
      expect.stringMatching(`posix is not used: no shared memory in /dev/shm: .*${errno}`),
      expect.stringMatching(`a remote key has no part for cma: .*${errno}`),
    ]);
  });

  it('fails a program that uses nothing else', () => {
    const { result, warnings } = run(READ_ONLY, 'posix');
    expect(result).toMatchObject({ code: 'ERR_NO_DEVICE', message: expect.stringContaining('EROFS') });
    expect(warnings).toEqual([]);
  });

  it('is detected by a worker as well, if the context was created earlier', () => {
    const { result, warnings } = run('mount -t tmpfs -o size=1M none /dev/shm', 'posix,tcp,self', FILL);
    expect(result).toEqual({ isWhole: true, transports: ['self/memory'] });
    expect(warnings).toEqual([expect.stringMatching('posix is not used by a worker: .*ENOSPC')]);
  });

  it('is told by the first message to a peer, if there was room before', () => {
    const { result, warnings } = run('mount -t tmpfs -o size=1M none /dev/shm', 'posix', NEARLY_FILL);
    expect(result).toEqual({ code: 'ERR_NO_MEMORY', message: 'tag send: out of memory' });
    expect(warnings).toEqual([
      expect.stringMatching(/no messages can be sent to a peer: fallocate: ENOSPC .* bytes of \/dev\/shm\/gaudi_ucx/),
    ]);
  });
});
