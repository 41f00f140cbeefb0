/** Active messages over libucp that have no handler: each scenario is a process, which libucp must not end. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { built } from '../fixtures/built.ts';
import { installedLibucp } from '../fixtures/libucp.ts';
import { environment } from '../fixtures/run-command.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`libucx-messages: skipped: ${skipReason}`);
const PROGRAM = built(new URL('../fixtures/libucx-messages-program.ts', import.meta.url));

describe.skipIf(skipReason !== undefined)('active messages over libucp without a handler', { timeout: 60_000 }, () => {
  it('are dropped, short and long, and their senders get OK', () => {
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM], {
      encoding: 'utf8',
      // The C library fills the memory that libucp allocates.
      env: environment({ MALLOC_PERTURB_: '170' }),
      timeout: 30_000,
    });
    expect([status, signal], stderr).toEqual([0, null]);
    expect(stdout).toBe('[]\n');
  });
});
