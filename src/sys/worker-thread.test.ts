import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Errno } from './errno.ts';
import { close } from './file.ts';
import { futexWake } from './futex.ts';
import { ftruncate, memfdCreate } from './memfd.ts';
import { mapSharedWindow } from './shared-window.ts';
import { startWorker } from './worker-thread.ts';

const REPOSITORY = fileURLToPath(new URL('../../', import.meta.url));
const SYS = new URL('./index.ts', import.meta.url).href;

// Inside the repository, so that packages resolve; in a folder that git ignores.
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(REPOSITORY, 'node_modules', '.worker-thread-test-'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

describe('startWorker', () => {
  it('runs TypeScript modules of the source tree', async () => {
    writeFileSync(
      join(folder, 'echo-thread.ts'),
      `import { parentPort, workerData } from 'node:worker_threads';
       import { SyscallError, mapFile, type MappedMemory } from ${JSON.stringify(SYS)};
       let caught: unknown;
       try { const memory: MappedMemory = mapFile(9999, 4096, 0); memory.close(); } catch (error) { caught = error; }
       const { errno } = caught as SyscallError;
       parentPort!.postMessage({ seen: (workerData as { sent: number }).sent + 1, errno });`,
    );
    const worker = startWorker(pathToFileURL(join(folder, 'caller.ts')).href, './echo-thread', {
      workerData: { sent: 1 },
    });
    const [message] = await once(worker, 'message');
    expect(message).toEqual({ seen: 2, errno: Errno.EBADF });
    const [code] = await once(worker, 'exit');
    expect(code).toBe(0);
  });

  it('shares a futex with the thread', async () => {
    writeFileSync(
      join(folder, 'sleeper-thread.ts'),
      `import { parentPort, workerData } from 'node:worker_threads';
       import { futexWait, viewAt } from ${JSON.stringify(SYS)};
       const words = new Int32Array(viewAt(workerData as number, 4096));
       parentPort!.postMessage('up');
       while (Atomics.load(words, 0) === 0) futexWait(workerData as number, 0, 100_000_000);
       Atomics.store(words, 1, Atomics.load(words, 0) + 1);`,
    );
    const fd = memfdCreate('futex');
    ftruncate(fd, 65536);
    const window = mapSharedWindow(fd, 65536, 0);
    close(fd);
    const words = new Int32Array(window.buffer);
    const worker = startWorker(pathToFileURL(join(folder, 'caller.ts')).href, './sleeper-thread', {
      workerData: window.address,
    });
    await once(worker, 'message');
    Atomics.store(words, 0, 99);
    expect(futexWake(window.address, 1)).toBeGreaterThanOrEqual(0);
    await once(worker, 'exit');
    expect(words[1]).toBe(100);
  });

  it.each([
    ['process.exit(3)', 3],
    ['subscription.unref()', 0],
    ["throw new TypeError('the end')", 1],
  ])('lets a thread with a readable subscription end by %s', async (end, expected) => {
    writeFileSync(
      join(folder, 'ending-thread.ts'),
      `import { EventFd } from ${JSON.stringify(SYS)};
       const event = new EventFd();
       const subscription = event.onReadable(() => {});
       event.signal();
       ${end};`,
    );
    const worker = startWorker(pathToFileURL(join(folder, 'caller.ts')).href, './ending-thread');
    worker.on('error', () => {});
    const code = await new Promise((resolve) => worker.once('exit', resolve));
    expect(code).toBe(expected);
  });

  it.each(['file:///nonexistent/caller.ts', 'file:///nonexistent/caller.js'])(
    'reports a module that is not there: %s',
    async (caller) => {
      const [error] = await once(startWorker(caller, './missing-thread'), 'error').catch((reason) => [reason]);
      expect(String(error)).toContain('missing-thread');
    },
  );

  it('runs JavaScript modules of the compiled package', () => {
    const project = join(folder, 'tsconfig.json');
    writeFileSync(
      project,
      JSON.stringify({
        extends: join(REPOSITORY, 'tsconfig.build.json'),
        compilerOptions: {
          rootDir: join(REPOSITORY, 'src'),
          outDir: join(folder, 'dist'),
          noCheck: true,
          isolatedDeclarations: false,
          declaration: false,
          declarationMap: false,
        },
        include: [],
        files: [join(REPOSITORY, 'src/sys/index.ts')],
      }),
    );
    execFileSync(process.execPath, [join(REPOSITORY, 'node_modules/typescript/bin/tsc'), '-p', project]);
    writeFileSync(
      join(folder, 'dist/caller.js'),
      `import { startWorker } from './sys/index.js';
       startWorker(import.meta.url, './echo-thread', { workerData: 20 }).on('message', (message) => console.log(message));`,
    );
    writeFileSync(
      join(folder, 'dist/echo-thread.js'),
      `import { parentPort, workerData } from 'node:worker_threads';
       import { allocateScratch } from './sys/index.js';
       parentPort.postMessage(workerData + allocateScratch(22).byteLength);`,
    );
    const { stdout, stderr } = spawnSync(process.execPath, [join(folder, 'dist/caller.js')], {
      encoding: 'utf8',
      cwd: '/',
    });
    expect({ stdout, stderr }).toEqual({ stdout: '42\n', stderr: '' });
  }, 60_000);
});
