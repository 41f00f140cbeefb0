/** The working directory of a process that starts threads after its directory was deleted: threads that the test starts and ends by hand. */

import type { EventEmitter } from 'node:events';
import { mkdtempSync, readlinkSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { openFileDescriptors } from '../file/file.ts';
import { startWorker } from './worker-thread.ts';

/** The threads that were started. */
const { threads } = vi.hoisted(() => ({ threads: [] as { readonly url: string; readonly options: unknown }[] }));

vi.mock('node:worker_threads', async (original) => {
  const { EventEmitter: Emitter } = await import('node:events');
  class Worker extends Emitter {
    constructor(url: URL, options: unknown) {
      super();
      threads.push({ url: url.href, options });
    }
  }
  return { ...(await original<typeof import('node:worker_threads')>()), Worker };
});

const home = process.cwd();
let descriptors: number;
beforeEach(() => {
  descriptors = openFileDescriptors();
  const folder = mkdtempSync(join(tmpdir(), 'sys-deleted-'));
  process.chdir(folder);
  rmdirSync(folder);
});
afterEach(() => process.chdir(home));

const start = (): EventEmitter => startWorker('file:///a/caller.js', './thread', { workerData: 7 });
const directory = (): string => readlinkSync('/proc/self/cwd').replace(/^.*(?=sys-deleted-)|[^-]{6}(?= )/g, '');

it('is the root while threads start, and the deleted one again after the last of them', () => {
  const [first, second] = [start(), start()];
  expect(directory()).toBe('/');
  first.emit('online');
  expect(directory()).toBe('/');
  // A thread that does not start.
  second.emit('exit');
  expect(directory()).toBe('sys-deleted- (deleted)');
  expect(openFileDescriptors()).toBe(descriptors);
  first.emit('exit');
  expect(directory()).toBe('sys-deleted- (deleted)');
});

it('is looked at again for a later thread', () => {
  start().emit('online');
  process.chdir(home);
  const later = start();
  expect([later.listenerCount('online'), process.cwd()]).toEqual([0, home]);
});

it('does not matter to a thread, which has the options of its caller and none of the program', () => {
  process.chdir(home);
  threads.length = 0;
  start();
  expect(threads).toEqual([{ url: 'file:///a/thread.js', options: { workerData: 7, execArgv: [] } }]);
});
