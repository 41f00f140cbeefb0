/** A /dev/shm that is full, read-only or unusable: transports that need it are not used, with the reason, and everything else works. */

import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/shared-memory-program.ts'));
const CONNECTIONS = built(join(import.meta.dirname, '../../fixtures/programs/many-connections-program.ts'));
/** A file of a process that has ended, which cannot be removed. */
const LEFT =
  'touch /dev/shm/gaudi_ucx.$(readlink /proc/self/ns/pid | tr -dc 0-9).4194304.1.00000000000000000000000000000000';

const FULL = 'mount -t tmpfs -o size=64k none /dev/shm';
const READ_ONLY = `mount -t tmpfs none /dev/shm && ${LEFT} && mount -o remount,ro /dev/shm`;
const NO_FILES = 'mount --bind /proc/1/task /dev/shm';
const FILL = 'head -c 100M /dev/zero > /dev/shm/x 2> /dev/null; true';
/** Leaves room for what a worker needs, and not for messages to a peer. */
const NEARLY_FILL = `${FILL}; truncate -s -96K /dev/shm/x`;

const SHORTAGE = /no space for a ring of 548 KiB in \/dev\/shm, which has \d+ KiB free: fallocate: ENOSPC .*/;

const made = spawnSync('unshare', ['--mount', 'true'], { encoding: 'utf8' });
const skip =
  made.status === 0 ? undefined : `namespaces cannot be made here (${made.error?.message ?? made.stderr.trim()})`;
if (skip !== undefined) console.info(`skipped: ${skip}`);

/** Runs a program of Node.js with its own /dev/shm. */
function inMount(mount: string, program: readonly string[]): SpawnSyncReturns<string> {
  const run = ['--mount', 'sh', '-c', `${mount} && exec "$@"`, 'sh', process.execPath, ...program];
  return spawnSync('unshare', run, { encoding: 'utf8', timeout: 20_000 });
}

/** Runs the program of one process with its own /dev/shm. */
function run(mount: string, tls: string, between = ''): { result: Record<string, unknown>; warnings: string[] } {
  const { stdout, stderr, status } = inMount(mount, [PROGRAM, tls, between]);
  expect({ status, stderr }).toMatchObject({ status: 0 });
  return { result: JSON.parse(stdout), warnings: stderr.split('\n').filter((line) => line !== '') };
}

describe.skipIf(skip !== undefined)('a /dev/shm without room (needs root and unshare)', { timeout: 30_000 }, () => {
  it.each([
    ['full', FULL, 'ENOSPC'],
    ['read-only', READ_ONLY, 'EROFS'],
    ['no place for files', NO_FILES, 'ENOENT'],
  ])('that is %s is reported, and the others carry everything', (_, mount, errno) => {
    const { result, warnings } = run(mount, 'posix,cma,tcp,self');
    expect(result).toEqual({ isWhole: true, transports: ['self/memory', 'cma/memory'] });
    expect(warnings).toEqual([
      expect.stringMatching(`posix is not used: no shared memory in /dev/shm: .*${errno}`),
      expect.stringMatching(`remote key packed without a part for cma: .*${errno}`),
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
    expect(warnings).toEqual([
      expect.stringMatching('posix is not used by a worker, because it cannot be opened: .*ENOSPC'),
    ]);
  });

  it('is reported by the connection to a peer, if there was free space before', () => {
    const { result, warnings } = run('mount -t tmpfs -o size=1M none /dev/shm', 'posix', NEARLY_FILL);
    expect(result).toMatchObject({ code: 'ERR_UNREACHABLE', message: expect.stringMatching(SHORTAGE) });
    expect(warnings).toEqual([expect.stringMatching(SHORTAGE)]);
  });

  it('that has space for the ring of the client alone ends its connection, if nothing else reaches it', () => {
    const mount = 'mount -t tmpfs -o size=1M none /dev/shm && export UCX_TLS=posix,self';
    const { status, stderr } = inMount(mount, [CONNECTIONS, '1']);
    expect(status).toBe(0);
    expect(stderr).toMatch(/connection request ignored: .*no space for a ring of 548 KiB/);
    expect(stderr).toMatch(/ERR_CONNECTION_RESET/);
  });

  it.each([
    // Of both processes, each of which has a worker: neither has space for the ring of the other, or only one of them.
    ['1 MiB', '1M', 1],
    ['4 MiB', '4M', 12],
  ])('of %s carries as many connections as fit, and tcp the others', (_, size, count) => {
    const { status, stdout, stderr } = inMount(`mount -t tmpfs -o size=${size} none /dev/shm`, [
      CONNECTIONS,
      `${count}`,
    ]);
    expect({ status, stderr }).toMatchObject({ status: 0 });
    const transports: readonly string[] = JSON.parse(stdout);
    expect(transports).toHaveLength(count);
    if (count > 1) expect(transports[0]).toBe('posix/memory');
    if (count > 1) expect(transports.at(-1)).toBe('tcp/lo');
    const warnings = stderr.split('\n').filter((line) => line.includes('a ring of'));
    // One of each process at most.
    expect([1, 2]).toContain(warnings.length);
    for (const warning of warnings) expect(warning).toMatch(SHORTAGE);
  });
});
