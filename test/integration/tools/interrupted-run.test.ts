/** A run of the tests that is interrupted leaves no process, file or mount. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';
import { mountsBelow, processesOf, segmentsOf } from '../../run/leftovers.ts';

const VITEST = join(ROOT, 'node_modules/vitest/vitest.mjs');
/** Starts programs, which have segments in shared memory. */
const FILES = ['test/integration/peers/peer-failure.test.ts', 'test/integration/cards/node-server.test.ts'];

let folder = '';
let run: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'interrupted-'));
});
afterEach(() => {
  if (run?.exitCode === null && run.signalCode === null) process.kill(-run.pid!, 'SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** The processes of runs with these folders. */
function processesOfRuns(folders: readonly string[]): ReadonlyMap<number, string> {
  return new Map(folders.flatMap((name) => [...processesOf(join(folder, name))]));
}

it.each(['SIGINT', 'SIGTERM'] as const)('by %s', { timeout: 60_000 }, async (signal) => {
  const { GAUDI_UCX_TEST_RUN: _, ...env } = process.env;
  run = spawn(process.execPath, [VITEST, 'run', '--project', 'ci', ...FILES], {
    cwd: ROOT,
    env: { ...env, TMPDIR: folder },
    stdio: 'ignore',
    detached: true,
  });
  const ended = once(run, 'exit');
  // Until programs of the tests run: their environment has the folder that the run has made.
  let runs: readonly string[] = [];
  let ofRun: ReadonlyMap<number, string> = new Map();
  const hasPrograms = (): boolean => [...ofRun.values()].some((command) => command.includes('dist/programs'));
  while (run.exitCode === null && !(hasPrograms() && segmentsOf(ofRun.keys()).length > 0)) {
    await delay(5);
    runs = readdirSync(folder);
    ofRun = processesOfRuns(runs);
  }
  expect(run.exitCode).toBe(null);
  // As Ctrl-C does, to the whole group.
  process.kill(-run.pid!, signal);
  expect((await ended)[0]).not.toBe(0);
  expect(readdirSync(folder)).toEqual([]);
  expect(processesOfRuns(runs)).toEqual(new Map());
  expect(segmentsOf(ofRun.keys())).toEqual([]);
  expect(mountsBelow(folder)).toEqual([]);
});
