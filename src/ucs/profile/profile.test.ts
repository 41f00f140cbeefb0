import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { commandSubmissionEnd, operationEnd, transferEnd } from '../debug/diagnostics.ts';
import { createLog, LogLevel } from '../debug/log.ts';
import { Profile } from './profile.ts';
import type { ProfileMode } from './profile-config.ts';

interface Trace {
  readonly traceEvents: readonly Readonly<Record<string, unknown>>[];
  readonly otherData: { readonly lost: number; readonly accumulated: readonly Readonly<Record<string, unknown>>[] };
}

/** Thread id of the profiles. */
const TID = 4711;
/** Thread id of the first card: no thread of Linux has it. */
const CARD_TID = 4_194_304;

let folder: string;
const log = createLog('test', LogLevel.WARN, (_level, _component, message) => expect.fail(message));
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-profile-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const fileIn = (name = 'profile'): string => join(folder, name);
const read = (path = fileIn()): Trace => JSON.parse(readFileSync(path, 'utf8')) as Trace;

function start(modes: readonly ProfileMode[], size = 2 ** 20, file = fileIn()): Profile | undefined {
  return Profile.acquire({ PROFILE_MODE: modes, PROFILE_FILE: file, PROFILE_LOG_SIZE: size }, log, TID);
}

function put(startNs: number, endNs: number): void {
  operationEnd.publish({
    protocol: 'put/zcopy',
    transport: 'gaudi_cpy',
    device: 'gaudi0',
    byteLength: 100,
    status: 0,
    startNs,
    endNs,
    worker: 1,
  });
}

describe('a profile', () => {
  it('does not exist without a mode, and the channels have no subscribers', () => {
    expect(start([])).toBeUndefined();
    expect([operationEnd, commandSubmissionEnd, transferEnd].map((each) => each.hasSubscribers)).toEqual([
      false,
      false,
      false,
    ]);
  });

  it('shows requests, submissions and transfers in their process, on timelines of their thread and cards', () => {
    const profile = start(['log'])!;
    put(5000, 9000);
    commandSubmissionEnd.publish({ card: 'card 2', queue: 8, sequence: 77, startNs: 6000, endNs: 8000 });
    transferEnd.publish({ card: 'card 2', queue: 8, byteLength: 100, status: -3, startNs: 5500, endNs: 8500 });
    profile.release();
    const { traceEvents, otherData } = read();
    const { pid } = process;
    expect(traceEvents.filter(({ ph }) => ph === 'M')).toEqual([
      { ph: 'M', name: 'process_name', pid, tid: TID, args: { name: expect.stringContaining(` on ${hostname()}`) } },
      { ph: 'M', name: 'thread_name', pid, tid: TID, args: { name: 'worker 1' } },
      { ph: 'M', name: 'thread_name', pid, tid: CARD_TID, args: { name: 'card 2' } },
    ]);
    expect(traceEvents.filter(({ ph }) => ph === 'b' || ph === 'e')).toEqual([
      {
        cat: 'request',
        name: 'put/zcopy',
        pid,
        tid: TID,
        id: 1,
        ph: 'b',
        ts: 5,
        args: { on: 'worker 1', transport: 'gaudi_cpy', device: 'gaudi0', bytes: 100, status: 'OK' },
      },
      { cat: 'request', name: 'put/zcopy', pid, tid: TID, id: 1, ph: 'e', ts: 9 },
      {
        cat: 'dma',
        name: 'DMA on queue 8',
        pid,
        tid: CARD_TID,
        id: 2,
        ph: 'b',
        ts: 5.5,
        args: { on: 'card 2', queue: 8, bytes: 100, status: 'IO_ERROR' },
      },
      { cat: 'dma', name: 'DMA on queue 8', pid, tid: CARD_TID, id: 2, ph: 'e', ts: 8.5 },
      {
        cat: 'cs',
        name: 'CS on queue 8',
        pid,
        tid: CARD_TID,
        id: 3,
        ph: 'b',
        ts: 6,
        args: { on: 'card 2', queue: 8, sequence: 77 },
      },
      { cat: 'cs', name: 'CS on queue 8', pid, tid: CARD_TID, id: 3, ph: 'e', ts: 8 },
    ]);
    expect(otherData).toMatchObject({ lost: 0, accumulated: [] });
  });

  it('sums events without keeping them', () => {
    const profile = start(['accum'])!;
    put(0, 10);
    put(20, 50);
    profile.release();
    const { traceEvents, otherData } = read();
    expect(traceEvents.map(({ name }) => name)).toEqual(['process_name']);
    expect(otherData).toMatchObject({
      lost: 0,
      accumulated: [
        { timeline: 'worker 1', name: 'put/zcopy', count: 2, totalNs: 40, minNs: 10, maxNs: 30, bytes: 200 },
      ],
    });
  });

  it('keeps the newest events when its memory is full, and reports the number of lost ones', () => {
    const profile = start(['log', 'accum'], 1024)!;
    for (let i = 1; i <= 10; i++) put(i * 1000, i * 1000 + 1);
    profile.release();
    const { traceEvents, otherData } = read();
    expect(traceEvents.filter(({ ph }) => ph === 'b').map(({ ts }) => ts)).toEqual([7, 8, 9, 10]);
    expect(otherData).toMatchObject({ lost: 6, accumulated: [{ count: 10 }] });
  });

  it('is shared by concurrent and consecutive contexts of a process', () => {
    const begun = (): number => read().traceEvents.filter(({ ph }) => ph === 'b').length;
    const first = start(['log'])!;
    expect(start(['log'])).toBe(first);
    put(0, 1);
    first.release();
    expect(readFileSync(fileIn(), 'utf8')).toBe('');
    put(2, 3);
    first.release();
    expect(begun()).toBe(2);
    expect(operationEnd.hasSubscribers).toBe(false);
    put(4, 5);
    start(['log'])!.release();
    expect(begun()).toBe(2);
    const last = start(['log'])!;
    put(6, 7);
    last.release();
    expect(begun()).toBe(3);
  });

  it('combines the settings of all contexts', () => {
    const sums = start(['accum'], 1024)!;
    put(0, 1);
    const events = start(['log'], 2048)!;
    for (let i = 1; i <= 10; i++) put(i * 1000, i * 1000 + 1);
    events.release();
    sums.release();
    const { traceEvents, otherData } = read();
    expect(traceEvents.filter(({ ph }) => ph === 'b').map(({ ts }) => ts)).toEqual([3, 4, 5, 6, 7, 8, 9, 10]);
    expect(otherData).toMatchObject({ lost: 2, accumulated: [{ count: 11 }] });
    const larger = start(['log'], 4096)!;
    put(11_000, 11_001);
    larger.release();
    expect(
      read()
        .traceEvents.filter(({ ph }) => ph === 'b')
        .map(({ ts }) => ts),
    ).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11]);
  });

  it('that gets more memory when it is full continues with the oldest event', () => {
    const begun = (): readonly number[] =>
      read().traceEvents.flatMap(({ ph, ts }) => (ph === 'b' ? [ts as number] : []));
    const small = start(['log'], 1024)!;
    for (let i = 1; i <= 6; i++) put(i * 1000, i * 1000 + 1);
    const large = start(['log'], 2048)!;
    for (let i = 7; i <= 11; i++) put(i * 1000, i * 1000 + 1);
    large.release();
    small.release();
    expect(begun()).toEqual([4, 5, 6, 7, 8, 9, 10, 11]);
    expect(read().otherData).toMatchObject({ lost: 3 });
  });

  it('refuses a file that cannot be written, and leaves no subscriber', () => {
    const path = fileIn('missing/profile');
    expect(() => start(['log'], 1024, path)).toThrow(
      expect.objectContaining({ code: 'ERR_PROFILE_FILE', details: { path } }),
    );
    expect(operationEnd.hasSubscribers).toBe(false);
  });
});
