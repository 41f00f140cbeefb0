/**
 * The inspect socket and the dump at a signal in processes with limits, threads, and several instances of the package: they neither end the process nor
 * show anything twice.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type InspectAnswer, inspectProcesses } from '../../../src/assembly/inspect/inspect-client.ts';
import { acquireServer, releaseServer } from '../../../src/assembly/inspect/inspect-server.ts';
import { LogLevel } from '../../../src/ucs/debug/log.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { ENGINES } from '../../fixtures/pair.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { withoutDescriptors } from '../../fixtures/processes/no-descriptors.ts';
import type { InspectedAnswer, InspectedRequest } from '../../fixtures/programs/inspected-program.ts';
import { createTestLog } from '../../fixtures/test-log.ts';
import { built, builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const LIBRARY = builtSpecifier(join(ROOT, 'src/index.ts'));
const CANNOT = 'this process cannot be inspected: ';
/** Creates a context without cards, with a receive that waits for a message with a tag. The transport self of libucp carries no messages. */
const OPEN = `
  const open = async ({ Context }, tag, config = {}, logSink) => {
    const TLS = process.env.UCX_ENGINE === 'libucx' ? 'tcp,self' : 'self';
    const context = await Context.create({ configDirectories: [], config: { TLS, ...config }, logSink });
    context.worker().tagRecv(new Uint8Array(8), { tag }).catch(() => {});
    return context;
  };
  const raise = async () => {
    const raised = new Promise((resolve) => process.once('SIGUSR2', resolve));
    process.kill(process.pid, 'SIGUSR2');
    await raised;
  };`;

let runtimeDirectory: string;
beforeEach(() => {
  runtimeDirectory = mkdtempSync(join(tmpdir(), 'gaudi-ucx-inspect-'));
});
afterEach(() => rmSync(runtimeDirectory, { recursive: true }));

interface Output {
  readonly out: string;
  readonly err: string;
}

/** Runs the text of a program to its successful end. @param prefix command of the shell before it @param launcher of that shell */
function run(
  program: string,
  env: Readonly<Record<string, string>> = {},
  prefix = 'true',
  launcher: readonly string[] = [],
): Output {
  const command = `${prefix} && exec "$0" --input-type=module --eval "$1"`;
  const [file, ...args] = [...launcher, 'sh', '-c', command, process.execPath, `${OPEN}${program}`];
  const { status, signal, stdout, stderr } = spawnSync(file!, args, {
    encoding: 'utf8',
    timeout: 60_000,
    env: environment({ XDG_RUNTIME_DIR: runtimeDirectory, UCX_GAUDI_DRIVER: 'emulator', ...env }),
  });
  expect({ status, signal, stderr: status === 0 ? '' : stderr }).toEqual({ status: 0, signal: null, stderr: '' });
  return { out: stdout, err: stderr };
}

function countOf(text: string, pattern: RegExp): number {
  return text.match(pattern)?.length ?? 0;
}

describe.each(ENGINES)('UCX_DEBUG_SIGNO over %s', { timeout: 60_000 }, (engine) => {
  it('in a worker thread warns, and the main thread logs what is its own', () => {
    const thread = `
      ${OPEN}
      import(${LIBRARY}).then(async (library) => {
        const context = await open(library, 78);
        const { parentPort } = await import('node:worker_threads');
        parentPort.once('message', () => context.close());
        parentPort.postMessage('open');
      });`;
    const { out, err } = run(
      `import { once } from 'node:events';
      import { Worker } from 'node:worker_threads';
      const context = await open(await import(${LIBRARY}), 77);
      const thread = new Worker(${JSON.stringify(thread)}, { eval: true });
      await once(thread, 'message');
      await raise();
      await raise();
      thread.postMessage('close');
      await once(thread, 'exit');
      await context.close();
      console.log('closed');`,
      { UCX_DEBUG_SIGNO: 'USR2', UCX_ENGINE: engine },
    );
    expect(out).toBe('closed\n');
    expect(countOf(err, /WARN +UCX_DEBUG_SIGNO=SIGUSR2 has no effect in a worker thread/g)).toBe(1);
    expect(countOf(err, /^.*process \d+ on /gm)).toBe(2);
    expect(countOf(err, /waits for a message with tag 0x4d/g)).toBe(2);
    expect(err).not.toContain('tag 0x4e');
  });

  it('logs each context once where the package is loaded twice, and each copy has a socket', () => {
    // A package that was bundled into a program, beside the package itself.
    const copy = join(runtimeDirectory, 'copy');
    mkdirSync(copy);
    cpSync(dirname(built('src/index.ts')), join(copy, 'lib'), { recursive: true });
    cpSync(join(ROOT, 'package.json'), join(copy, 'package.json'));
    symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
    const other = JSON.stringify(pathToFileURL(join(copy, 'lib/index.js')).href);
    const { out, err } = run(
      `import { execFile } from 'node:child_process';
      import { promisify } from 'node:util';
      const libraries = [await import(${LIBRARY}), await import(${other})];
      if (libraries[0].Context === libraries[1].Context) throw new TypeError('it was loaded once');
      const [one, two] = [await open(libraries[0], 77), await open(libraries[1], 78)];
      const command = [${JSON.stringify(MAIN)}, 'inspect', String(process.pid), '--json'];
      console.log((await promisify(execFile)(process.execPath, command)).stdout);
      await raise();
      await one.close();
      await raise();
      await two.close();`,
      { UCX_DEBUG_SIGNO: 'USR2', UCX_ENGINE: engine },
    );
    const answers = JSON.parse(out) as InspectAnswer[];
    expect(answers).toHaveLength(2);
    for (const { snapshot } of answers) expect(snapshot!.contexts).toHaveLength(1);
    const clients = answers.map(({ snapshot }) => snapshot!.contexts[0]!.workers[0]!.clientId);
    expect(new Set(clients).size).toBe(2);
    expect(countOf(err, /waits for a message with tag 0x4d/g)).toBe(1);
    expect(countOf(err, /waits for a message with tag 0x4e/g)).toBe(2);
    expect(readdirSync(join(runtimeDirectory, 'gaudi-ucx'))).toEqual([]);
  });
});

describe('without descriptors', { timeout: 60_000 }, () => {
  it('UCX_INSPECT=try warns once, and y fails', async () => {
    const { log, records } = createTestLog();
    const acquire = (mode: 'try' | 'yes') => acquireServer({ mode, runtimeDirectory, clock: systemClock, log });
    await withoutDescriptors(() => {
      expect([acquire('try'), acquire('try')]).toEqual([false, false]);
      expect(() => acquire('yes')).toThrow(expect.objectContaining({ code: 'ERR_SYSCALL_EMFILE' }));
    });
    const levels = records.filter(({ message }) => message.startsWith(CANNOT)).map(({ level }) => level);
    expect(levels).toEqual([LogLevel.WARN, LogLevel.DEBUG]);
    expect(acquire('yes')).toBe(true);
    expect(readdirSync(join(runtimeDirectory, 'gaudi-ucx'))).toHaveLength(1);
    releaseServer();
    expect(readdirSync(join(runtimeDirectory, 'gaudi-ucx'))).toEqual([]);
  });

  // Over libucx: libucx-descriptors.test.ts.
  it('of any number, a context under ulimit -n is created or fails with a typed error', () => {
    const { out } = run(
      `import { closeSync, openSync } from 'node:fs';
      const library = await import(${LIBRARY});
      await (await open(library, 77)).close();
      const result = {};
      for (const mode of ['try', 'y']) {
        const taken = [];
        try { for (;;) taken.push(openSync('/dev/null')); } catch {}
        const warnings = [];
        const ends = [];
        const sink = (level, component, message) => { if (message.startsWith(${JSON.stringify(CANNOT)})) warnings.push(level); };
        while (taken.length > 0) {
          try {
            await (await open(library, 77, { INSPECT: mode }, sink)).close();
            ends.push('OK');
          } catch (error) {
            ends.push(error.code);
          }
          closeSync(taken.pop());
        }
        result[mode] = { warnings, ends };
      }
      console.log(JSON.stringify(result));`,
      {},
      'ulimit -n 64',
    );
    const result = JSON.parse(out) as Record<'try' | 'y', { warnings: number[]; ends: string[] }>;
    for (const { ends } of Object.values(result)) {
      for (const end of ends) expect(end).toMatch(/^(OK|ERR_[A-Z_]+)$/);
      expect(ends.at(-1)).toBe('OK');
    }
    expect(result.try.warnings).toEqual([LogLevel.WARN]);
    expect(result.y.warnings).toEqual([]);
    // Some numbers are enough for a context, and not for its socket.
    const created = ({ ends }: { readonly ends: readonly string[] }) => ends.filter((end) => end === 'OK').length;
    expect(created(result.try)).toBeGreaterThan(created(result.y));
  });
});

const isRoot = process.getuid!() === 0;

describe('without room for files', { timeout: 60_000 }, () => {
  it.skipIf(!isRoot).each([
    ['the folder', 1],
    ['the socket', 2],
  ])('of %s, UCX_INSPECT=try warns once, and y fails (needs root)', (_what, inodes) => {
    // In its own mount namespace: other tests compare the mounts of the machine.
    const { out } = run(
      `const library = await import(${LIBRARY});
      const warnings = [];
      const sink = (level, component, message) => warnings.push(message);
      const contexts = [await open(library, 77, { INSPECT: 'try' }, sink), await open(library, 78, { INSPECT: 'try' }, sink)];
      const failure = await open(library, 79, { INSPECT: 'y' }, sink).catch(({ code }) => code);
      for (const context of contexts) await context.close();
      console.log(JSON.stringify({ warnings, failure }));`,
      {},
      `mount -t tmpfs -o nr_inodes=${inodes} tmpfs '${runtimeDirectory}'`,
      ['unshare', '--mount'],
    );
    expect(JSON.parse(out)).toEqual({
      warnings: [expect.stringMatching(/^this process cannot be inspected: .*ENOSPC/)],
      failure: 'ERR_SYSCALL_ENOSPC',
    });
  });

  it('of a snapshot, the client learns of it, and the process warns once and continues', async () => {
    const env = { ...process.env, XDG_RUNTIME_DIR: runtimeDirectory, UCX_GAUDI_EMULATOR_CARDS: '1' };
    const child = new Child<InspectedRequest, InspectedAnswer>('test/fixtures/programs/inspected-program.ts', [], {
      env,
    });
    const limit = (bytes: string): void => {
      execFileSync('prlimit', ['--pid', String(child.pid), `--fsize=${bytes}:`]);
    };
    const ask = () => inspectProcesses({ runtimeDirectory, clock: systemClock, timeoutNs: 20e9, pid: child.pid });
    try {
      await child.next();
      limit('1000');
      const failure = expect.stringMatching(/^no snapshot: .*EFBIG/);
      for (let i = 0; i < 2; i++) expect(await ask()).toMatchObject([{ snapshot: undefined, failure }]);
      limit('unlimited');
      expect((await ask())[0]!.failure).toBeUndefined();
      expect(await child.ask({ do: 'close' })).toEqual({ contexts: 0 });
      expect(await child.end()).toBe(0);
      expect(countOf(child.errors, /WARN +inspect: cannot send a snapshot: .*EFBIG/g)).toBe(1);
    } finally {
      await child.kill();
    }
  });
});
