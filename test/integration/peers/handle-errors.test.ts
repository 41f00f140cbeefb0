/** UCX_HANDLE_ERRORS and UCX_ERROR_SIGNALS: a process waits for a debugger at a fatal signal, where it would end. Over both engines. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as afterEvents } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/faulty-program.ts'));
const ENGINES = installedLibucp().libucp === undefined ? ['native'] : ['native', 'libucx'];
/** Number of the system call pause. */
const PAUSE = '34';

function start(engine: string, signal: string, env: Readonly<Record<string, string>>): ChildProcess {
  const child = spawn(process.execPath, [PROGRAM, engine, signal], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** Waits until the main thread is in pause; false if the process ends before. */
async function isFrozen(child: ChildProcess): Promise<boolean> {
  for (;;) {
    if (child.exitCode !== null || child.signalCode !== null) return false;
    try {
      if (readFileSync(`/proc/${child.pid}/syscall`, 'utf8').startsWith(`${PAUSE} `)) return true;
    } catch {
      // It has ended.
    }
    await afterEvents();
  }
}

describe.each(ENGINES)('UCX_HANDLE_ERRORS over %s', (engine) => {
  it.each([
    ['freeze', 'SIGSEGV', {}],
    ['bt,freeze', 'SIGBUS', {}],
    ['freeze', 'SIGTRAP', { UCX_ERROR_SIGNALS: 'SEGV,TRAP' }],
  ])('%s: %s stops the process', async (UCX_HANDLE_ERRORS, signal, env) => {
    const child = start(engine, signal, { UCX_HANDLE_ERRORS, ...env });
    expect(await isFrozen(child)).toBe(true);
    child.kill('SIGKILL');
    await once(child, 'exit');
  });

  it.each([
    ['none', 'SIGSEGV', {}],
    ['freeze', 'SIGFPE', { UCX_ERROR_SIGNALS: 'SEGV' }],
  ])('%s: %s ends it', async (UCX_HANDLE_ERRORS, signal, env) => {
    const child = start(engine, signal, { UCX_HANDLE_ERRORS, ...env });
    expect(await isFrozen(child)).toBe(false);
    expect(child.signalCode).toBe(signal);
  });
});
