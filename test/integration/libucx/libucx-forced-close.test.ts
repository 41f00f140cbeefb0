/** Endpoints that are closed by force while operations on remote memory are pending: these end, and the process continues. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { skipReason } = installedLibucp();
const PROGRAM = built(new URL('../../fixtures/programs/libucx-forced-close-program.ts', import.meta.url));

describe.each(['native', 'libucx'] as const)('over the engine %s', { timeout: 60_000 }, (engine) => {
  it.skipIf(engine === 'libucx' && skipReason !== undefined).each(['tcp,self', 'posix,self,cma'])(
    'pending puts, gets and atomic operations end, over %s (needs libucp)',
    (tls) => {
      const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, engine, tls], {
        encoding: 'utf8',
        env: environment(),
        timeout: 50_000,
      });
      expect([status, signal], stderr).toEqual([0, null]);
      const outcomes: Readonly<Record<string, number>> = JSON.parse(stdout.slice(stdout.indexOf('{')));
      // How many were faster than the close depends on time.
      for (const outcome of Object.keys(outcomes)) expect(outcome).toMatch(/^(OK|ERR_CANCELED)$/);
      expect(Object.values(outcomes).reduce((sum, count) => sum + count)).toBe(64);
    },
  );
});
