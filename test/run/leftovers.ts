/**
 * The surroundings of a run: a temporary folder for all of its files, and a check after the last test that no process, file or mount of the run is left.
 * An interrupted run is cleaned up at once.
 */

import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SCAVENGE } from '../fixtures/transports/own-shared-memory.ts';

/** Variable by which the processes of a run are found, however they were started. */
const MARK = 'TMPDIR';
/** Time for processes that have been killed, or that end with their parent. */
const ENDING_MS = 5000;
/** Set during a run: a run inside a test uses the folder that there is. */
const RUN = 'GAUDI_UCX_TEST_RUN';
const SHARED_MEMORY = '/dev/shm';
/** Files in /dev/shm: the process that created them is the third part. */
const SEGMENT = /^gaudi_ucx\.\d+\.(\d+)\./;

/** Folders of processes and of vitest, which are removed with that of the run. */
const EXPECTED = /^process-\d+$|^[\w-]{21}$/;

/** A folder for files that are needed as long as this process of tests runs. */
export function processFolder(): string {
  const path = join(tmpdir(), `process-${process.pid}`);
  mkdirSync(path, { recursive: true });
  return path;
}

/** Processes other than this one whose environment has the folder of the run, by their command lines. */
export function processesOf(folder: string): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!(pid > 0) || pid === process.pid) continue;
    try {
      const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
      if (!variables.includes(`${MARK}=${folder}`)) continue;
      found.set(pid, readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim());
    } catch {
      // It has ended meanwhile, or belongs to another user.
    }
  }
  return found;
}

/** Mount points below a folder. */
export function mountsBelow(folder: string): readonly string[] {
  const lines = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  return lines.map((line) => line.split(' ')[4] ?? '').filter((point) => point.startsWith(folder));
}

/** Files in shared memory that these processes have created. */
export function segmentsOf(pids: Iterable<number>): readonly string[] {
  const creators = new Set([...pids].map(String));
  return readdirSync(SHARED_MEMORY).filter((name) => creators.has(SEGMENT.exec(name)?.[1] ?? ''));
}

/** Waits without the event loop, which an interrupted process does not return to. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Waits until no process of the run is left, for a time. @returns those that are */
function remaining(folder: string, ms: number): ReadonlyMap<number, string> {
  let found = processesOf(folder);
  for (let waited = 0; found.size > 0 && waited < ms; waited += 20) {
    pause(20);
    found = processesOf(folder);
  }
  return found;
}

/** Ends what a run has left, and removes its files. */
function cleanUp(folder: string): void {
  for (const pid of processesOf(folder).keys()) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended meanwhile.
    }
  }
  remaining(folder, ENDING_MS);
  // As every program of this package does when it starts.
  spawnSync(process.execPath, ['--input-type=module', '--eval', SCAVENGE], { stdio: 'inherit' });
  rmSync(folder, { recursive: true, force: true });
}

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** The folder of this run, until its end. */
let folder = '';

const onSignal = (): void => cleanUp(folder);

/** Begins a run: makes its folder. The configuration of vitest calls it, before vitest makes its own temporary folder. */
export function beginRun(): void {
  if (process.env[RUN] !== undefined) return;
  folder = mkdtempSync(join(tmpdir(), 'gux-'));
  // As /tmp is: tests run as other users too.
  chmodSync(folder, 0o755);
  process.env[MARK] = folder;
  process.env[RUN] = folder;
  for (const signal of SIGNALS) process.prependOnceListener(signal, onSignal);
}

/** Ends the run; vitest calls it for each project. @throws if something is left */
export function teardown(): void {
  if (folder === '') return;
  for (const signal of SIGNALS) process.off(signal, onSignal);
  // The processes of vitest end after this.
  const others = [...processesOf(folder)].filter(([, command]) => !/\bvitest\b/.test(command));
  const left = [
    ...others.map(([pid, command]) => `process ${pid}: ${command}`),
    ...mountsBelow(folder).map((point) => `mount ${point}`),
    ...readdirSync(folder)
      .filter((name) => !EXPECTED.test(name))
      .map((name) => `file ${join(folder, name)}`),
  ];
  cleanUp(folder);
  if (left.length === 0) return;
  process.exitCode = 1;
  throw new Error(`the run has left:\n  ${left.join('\n  ')}`);
}
