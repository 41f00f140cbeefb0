/** `gaudi-ucx top` on a terminal: as a job that is stopped and continued, and where there is no cursor. Needs Python. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const TERMINAL = join(ROOT, 'test/fixtures/terminal.py');
const reason = spawnSync('python3', ['--version']).status === 0 ? undefined : 'no python3';
if (reason !== undefined) console.log(`top on a terminal skipped: ${reason}`);

/** Runs top as a job of a terminal; returns what happened. */
function top(doing: string, term: string, args: readonly string[]): string {
  const program = [process.execPath, MAIN, 'top', ...args];
  const env = { ...environment(), TERM: term, UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1' };
  const options = { cwd: ROOT, encoding: 'utf8', env, timeout: 50_000 } as const;
  const { stdout, stderr } = spawnSync('python3', [TERMINAL, doing, ...program], options);
  return stdout + stderr;
}

describe.skipIf(reason !== undefined)('top on a terminal (needs python3)', { timeout: 60_000 }, () => {
  it('gives it back while the job is stopped', () => {
    expect(top('stop', 'xterm', ['--interval', '60m']).split('\n')).toEqual([
      'raw mode True',
      'stopped by SIGTSTP, raw mode False',
      'raw mode True',
      'ended with 0',
      'escape sequences True restored True',
      '',
    ]);
  });

  it.each(['dumb', ''])('of type "%s" prints lines', (term) => {
    expect(top('interrupt', term, ['--interval', '10ms'])).toBe('ended with 0\nescape sequences False restored True\n');
  });
});
