/** Endpoints that libucp makes for peers and frees when they go: a worker outlives its peers, and answers those that come later. */

import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { skipReason } = installedLibucp();
const PROGRAM = built(new URL('../../fixtures/programs/libucx-departed-program.ts', import.meta.url));
const CLIENTS = 5;

it.skipIf(skipReason !== undefined)(
  'peers over tcp that close, or are killed (needs libucp)',
  () => {
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM], {
      encoding: 'utf8',
      // The C library fills the memory that libucp allocates.
      env: environment({ MALLOC_PERTURB_: '170' }),
      timeout: 60_000,
    });
    expect([status, signal], stderr).toEqual([0, null]);
    expect(JSON.parse(stdout)).toEqual({
      // Each client has its own endpoint, although libucp uses the handle again.
      answered: Array.from({ length: CLIENTS }, (_, i) => [i, i]).flat(),
      statuses: Array(CLIENTS).fill('CONNECTION_RESET'),
      transports: Array(CLIENTS).fill([]),
    });
  },
  60_000,
);
