import { spawnSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  fstatSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { SEGMENT_PROBES } from '../../../../test/fixtures/transports/own-segments.ts';
import { gettid, hasEnded, isOwn, ownIdentity, packIdentity } from '../../../sys/index.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { Segment, SegmentCache, scavenge } from './segment.ts';
import { descriptorOf, SEGMENT_FOLDER, SEGMENT_NAME_BYTES, segmentPath, setDescriptor } from './segment-name.ts';

expectNoLeaks(SEGMENT_PROBES);

function nameOf(pid: number, startTime: number, tag = 7, tid: number = gettid()): Uint8Array {
  const name = new Uint8Array(SEGMENT_NAME_BYTES).fill(tag);
  new DataView(name.buffer).setUint32(SEGMENT_NAME_BYTES - 4, tid, true);
  setDescriptor(name, 0);
  packIdentity({ ...ownIdentity(), pid, startTime }, name, 0);
  return name;
}

function refusal(call: () => unknown): { code: string; status: Status; message: string } {
  try {
    call();
  } catch (error) {
    if (isUcxError(error)) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('a segment', () => {
  it('is shared by its creator and all processes that attach it', () => {
    const mine = Segment.create(10_000);
    // A Buffer, as addresses from other processes are: its slices share its memory.
    const name = Buffer.from(mine.packedName);
    const other = Segment.attach(name);
    expect(name.equals(mine.packedName)).toBe(true);
    expect(other.byteLength).toBe(10_000);
    mine.bytes[9_999] = 17;
    expect(other.bytes[9_999]).toBe(17);
    Atomics.store(other.words, 3, -5);
    expect(mine.words[3]).toBe(-5);
    expect(isOwn(other.owner)).toBe(true);
    other.close();
    expect(other.bytes[9_999]).toBe(0);
    expect(mine.bytes[9_999]).toBe(17);
    mine.close();
    mine.close();
  });

  it('has no path: it ends with the descriptor of its creator, by which peers open it', () => {
    const segment = Segment.create(1);
    const fd = descriptorOf(segment.packedName);
    expect(fstatSync(fd)).toMatchObject({ nlink: 0, size: 1 });
    expect(fstatSync(fd).mode & 0o777).toBe(0o600);
    const other = Segment.attach(segment.packedName);
    segment.close();
    other.bytes[0] = 1;
    expect(refusal(() => Segment.attach(segment.packedName))).toMatchObject({
      code: 'ERR_SHM_SEGMENT',
      status: Status.SHMEM_SEGMENT,
      message: expect.stringContaining('ENOENT'),
    });
    other.close();
  });

  it('is not taken for another file with the same descriptor', () => {
    const segments = [Segment.create(1), Segment.create(1)] as const;
    const confused = segments[0].packedName.slice();
    setDescriptor(confused, descriptorOf(segments[1].packedName));
    expect(refusal(() => Segment.attach(confused)).message).toMatch(/ENOENT.*gaudi_ucx.* \(deleted\), not gaudi_ucx/);
    setDescriptor(confused, 1);
    expect(refusal(() => Segment.attach(confused)).code).toBe('ERR_SHM_SEGMENT');
    for (const segment of segments) segment.close();
  });

  it('without a path cannot be attached from another pid namespace', () => {
    const name = nameOf(process.pid, 1);
    setDescriptor(name, 5);
    new DataView(name.buffer).setUint32(0, 4, true);
    expect(refusal(() => Segment.attach(name)).message).toMatch(/another pid namespace.*UCX_POSIX_USE_PROC_LINK=n/);
  });

  it('with a path is a file for this user only, and is removed by its creator', () => {
    const segment = Segment.create(1, { keepsPath: true });
    expect(statSync(segment.path).mode & 0o777).toBe(0o600);
    const other = Segment.attach(segment.packedName);
    segment.close();
    expect(existsSync(segment.path)).toBe(false);
    other.bytes[0] = 1;
    expect(refusal(() => Segment.attach(segment.packedName)).message).toContain('ENOENT');
    other.close();
  });

  it.each([0, -1, 1.5, Number.NaN, 2 ** 32 + 1])('of %s bytes is rejected', (byteLength) => {
    expect(refusal(() => Segment.create(byteLength)).code).toBe('ERR_INVALID_PARAM');
  });

  it('that is too small or does not exist cannot be attached', () => {
    const segment = Segment.create(100);
    expect(refusal(() => Segment.attach(segment.packedName, 101)).message).toMatch(/has 100 bytes/);
    segment.close();
    const link = nameOf(process.pid, 1);
    symlinkSync('/etc/hostname', segmentPath(link));
    expect(refusal(() => Segment.attach(link)).message).toContain('ELOOP');
    unlinkSync(segmentPath(link));
    expect(refusal(() => Segment.attach(new Uint8Array(5))).code).toBe('ERR_SHM_SEGMENT');
  });

  it('that was left to a peer keeps its file until that peer has ended', () => {
    const segment = Segment.create(1, { keepsPath: true });
    let isGone = false;
    segment.leaveTo(() => isGone);
    segment.close();
    scavenge();
    expect(existsSync(segment.path)).toBe(true);
    isGone = true;
    scavenge();
    expect(existsSync(segment.path)).toBe(false);
  });

  it.skipIf(process.getuid!() !== 0)('of another user is rejected (needs root)', () => {
    const segment = Segment.create(1, { keepsPath: true });
    chownSync(segment.path, 1, 1);
    expect(refusal(() => Segment.attach(segment.packedName)).message).toMatch(/belongs to user 1$/);
    segment.close();
  });

  it('does not exist under random names', async () => {
    const random = fc.uint8Array({ minLength: SEGMENT_NAME_BYTES, maxLength: SEGMENT_NAME_BYTES });
    await fc.assert(
      fc.property(random, (name) => {
        expect(refusal(() => Segment.attach(name)).code).toBe('ERR_SHM_SEGMENT');
      }),
    );
  });
});

describe('scavenging', () => {
  it('removes the files of ended processes, and nothing else', () => {
    // A separate folder: other processes scavenge the common one at any time.
    const folder = mkdtempSync(`${SEGMENT_FOLDER}/gaudi-ucx-scavenged-`);
    const dead = spawnSync(process.execPath, ['-e', '']).pid;
    const live = Segment.create(8, { folder, keepsPath: true });
    const { startTime } = ownIdentity();
    const left = [nameOf(dead, 1), nameOf(process.pid, startTime + 1)].map((name) => segmentPath(name, folder));
    const kept = [
      segmentPath(nameOf(process.pid, startTime, 9), folder),
      // Of another pid namespace.
      `${folder}/gaudi_ucx.4.4194304.1.${'0'.repeat(32)}`,
      `${folder}/other.file`,
      segmentPath(live.packedName, folder),
    ];
    // Of a thread of this process that cannot exist: no thread of Linux has this id.
    left.push(`${left[0]}.wake`, segmentPath(nameOf(process.pid, startTime, 9, 2 ** 30), folder));
    for (const path of [...left, ...kept]) writeFileSync(path, 'x', { flag: 'a' });
    // Files that this process has left to its peers count too.
    expect(scavenge(folder)).toBeGreaterThanOrEqual(left.length);
    expect(left.filter((path) => existsSync(path))).toEqual([]);
    expect(kept.every((path) => existsSync(path))).toBe(true);
    live.close();
    rmSync(folder, { recursive: true });
    expect(hasEnded({ ...ownIdentity(), pid: dead })).toBe(true);
    expect(hasEnded({ ...ownIdentity(), pid: dead, pidNamespace: 4 })).toBe(false);
  });
});

describe('a cache of segments', () => {
  it('attaches each once and keeps the most recently used idle ones', () => {
    const created = [0, 1, 2].map(() => Segment.create(64));
    const cache = new SegmentCache(1);
    const [one, two, three] = created.map(({ packedName }) => cache.acquire(packedName));
    expect(cache.acquire(created[0]!.packedName)).toBe(one);
    cache.release(one!);
    cache.release(one!);
    expect(one!.closed).toBe(false);
    cache.release(two!);
    expect([one!.closed, two!.closed]).toEqual([true, false]);
    expect(cache.acquire(created[1]!.packedName)).toBe(two);
    cache.close();
    expect(two!.closed && three!.closed).toBe(true);
    for (const segment of created) segment.close();
  });

  it('does not count a segment that is used again as idle', () => {
    const created = [0, 1].map(() => Segment.create(64));
    const cache = new SegmentCache(1);
    const [one, two] = created.map(({ packedName }) => cache.acquire(packedName));
    cache.release(one!);
    expect(cache.acquire(created[0]!.packedName)).toBe(one);
    cache.release(two!);
    expect([one!.closed, two!.closed]).toEqual([false, false]);
    cache.close();
    for (const segment of created) segment.close();
  });
});
