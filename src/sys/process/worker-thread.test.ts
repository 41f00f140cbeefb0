import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Worker, WorkerOptions } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { IS_FULL } from '../../../test/fixtures/extent.ts';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { Errno } from '../base/errno.ts';
import { futexWake } from '../event/futex.ts';
import { close, openFileDescriptors } from '../file/file.ts';
import { ftruncate, memfdCreate } from '../memory/memfd.ts';
import { mapSharedWindow } from '../memory/shared-window.ts';
import { startWorker } from './worker-thread.ts';

/** Module specifier for use in program text. */
const SYS = builtSpecifier(new URL('../index.ts', import.meta.url));

let folder: string;
/** A TypeScript module in a source tree. */
let caller: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-worker-'));
  caller = pathToFileURL(join(folder, 'src/ucp/caller.ts')).href;
  mkdirSync(join(folder, 'dist/lib'), { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

/** Starts the bundle of a module beside the caller. */
function start(name: string, body: string, options?: WorkerOptions): Worker {
  writeFileSync(join(folder, `dist/lib/${name}.js`), body);
  return startWorker(caller, `./${name}`, options);
}

describe('startWorker', () => {
  it('runs the bundle of a module of the source tree', async () => {
    const worker = start(
      'echo-thread',
      `import { parentPort, workerData } from 'node:worker_threads';
       import { mapFile } from ${SYS};
       let caught;
       try { mapFile(9999, 4096, 0).close(); } catch (error) { caught = error; }
       parentPort.postMessage({ seen: workerData.sent + 1, errno: caught.errno });`,
      { workerData: { sent: 1 } },
    );
    const exit = once(worker, 'exit');
    const [message] = await once(worker, 'message');
    expect(message).toEqual({ seen: 2, errno: Errno.EBADF });
    expect(await exit).toEqual([0]);
  });

  it('shares a futex with the thread', async () => {
    const fd = memfdCreate('futex');
    ftruncate(fd, 65536);
    const window = mapSharedWindow(fd, 65536, 0);
    close(fd);
    const words = new Int32Array(window.buffer);
    const worker = start(
      'sleeper-thread',
      `import { parentPort, workerData } from 'node:worker_threads';
       import { futexWait, viewAt } from ${SYS};
       const words = new Int32Array(viewAt(workerData, 4096));
       parentPort.postMessage('up');
       while (Atomics.load(words, 0) === 0) futexWait(workerData, 0, 100_000_000);
       Atomics.store(words, 1, Atomics.load(words, 0) + 1);`,
      { workerData: window.address },
    );
    const exit = once(worker, 'exit');
    await once(worker, 'message');
    Atomics.store(words, 0, 99);
    expect(futexWake(window.address, 1)).toBeGreaterThanOrEqual(0);
    await exit;
    expect(words[1]).toBe(100);
  });

  it.each([
    ['process.exit(3)', 3],
    ['subscription.unref()', 0],
    ["throw new TypeError('the end')", 1],
  ])('lets a thread with a readable subscription end by %s', async (end, expected) => {
    const worker = start(
      'short-thread',
      `import { EventFd } from ${SYS};
       const event = new EventFd();
       const subscription = event.onReadable(() => {});
       event.signal();
       ${end};`,
    );
    worker.on('error', () => {});
    const code = await new Promise((resolve) => worker.once('exit', resolve));
    expect(code).toBe(expected);
  });

  it('allows threads to be terminated while their subscriptions are readable', { timeout: 120_000 }, async () => {
    const body = `import { parentPort } from 'node:worker_threads';
       import { EventFd } from ${SYS};
       const events = Array.from({ length: 8 }, () => new EventFd());
       let calls = 0;
       for (const event of events) {
         event.onReadable(() => {
           // Never empty: when the thread ends there is always a callback pending.
           if (++calls === 20) parentPort.postMessage('busy');
         });
         event.signal();
       }`;
    const end = async (index: number): Promise<void> => {
      const worker = start(`busy-${index}-thread`, body);
      await once(worker, 'message');
      expect(await worker.terminate()).toBe(1);
    };
    // Two at a time: resources left by a terminated thread must not affect the other.
    const rounds = IS_FULL ? 100 : 25;
    for (let round = 0; round < rounds; round++) await Promise.all([end(0), end(1)]);
  });

  it('starts threads in a working directory that was deleted, and leaves the process there', async () => {
    writeFileSync(
      join(folder, 'alive-thread.js'),
      "import { parentPort } from 'node:worker_threads'; parentPort.postMessage('alive');",
    );
    const before = process.cwd();
    const gone = mkdtempSync(join(folder, 'gone-'));
    process.chdir(gone);
    rmSync(gone, { recursive: true });
    try {
      const workers = [1, 2].map(() => startWorker(pathToFileURL(join(folder, 'caller.js')).href, './alive-thread'));
      const fds = openFileDescriptors();
      const exits = workers.map((worker) => once(worker, 'exit'));
      expect(await Promise.all(workers.map(async (worker) => (await once(worker, 'message'))[0]))).toEqual([
        'alive',
        'alive',
      ]);
      await Promise.all(exits);
      expect(() => process.cwd()).toThrow(/ENOENT/);
      expect(openFileDescriptors()).toBeLessThan(fds);
    } finally {
      process.chdir(before);
    }
  });

  it.each(['file:///nonexistent/src/caller.ts', 'file:///nonexistent/caller.js'])(
    'reports a module that is not there: %s',
    async (missing) => {
      const [error] = await once(startWorker(missing, './missing-thread'), 'error').catch((reason) => [reason]);
      expect(String(error)).toContain('missing-thread');
    },
  );

  it.each([
    ['a file', (file: string): string[] => [file]],
    ['text', (file: string): string[] => ['--input-type=module', '-e', `import ${JSON.stringify(file)}`]],
  ])('runs JavaScript modules of the compiled package in a program that is %s', (_what, program) => {
    writeFileSync(
      join(folder, 'caller.js'),
      `import { startWorker } from ${SYS};
       startWorker(import.meta.url, './echo-thread', { workerData: 20 }).on('message', (message) => console.log(message));`,
    );
    writeFileSync(
      join(folder, 'echo-thread.js'),
      `import { parentPort, workerData } from 'node:worker_threads';
       import { allocateScratch } from ${SYS};
       parentPort.postMessage(workerData + allocateScratch(22).byteLength);`,
    );
    const { stdout, stderr } = spawnSync(process.execPath, program(join(folder, 'caller.js')), {
      encoding: 'utf8',
      cwd: '/',
    });
    expect({ stdout, stderr }).toEqual({ stdout: '42\n', stderr: '' });
  });
});
