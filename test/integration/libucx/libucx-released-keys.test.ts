/** Remote keys that are released while operations use them: libucp destroys a key at once, so the engine waits for the operations. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { skipReason } = installedLibucp();
const PROGRAM = built(new URL('../../fixtures/programs/released-keys-program.ts', import.meta.url));

describe.skipIf(skipReason !== undefined)('over libucp (needs libucp)', { timeout: 60_000 }, () => {
  it.each(['posix,self,cma', 'sysv,self', 'tcp,self'])(
    'a key is released before its operations end, over %s',
    (tls) => {
      const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, tls], {
        encoding: 'utf8',
        // The C library fills what libucp frees.
        env: environment({ MALLOC_PERTURB_: '170' }),
        timeout: 30_000,
      });
      expect([status, signal], stderr).toEqual([0, null]);
      const moved = 'OK moved';
      expect(JSON.parse(stdout.slice(stdout.indexOf('{')))).toEqual({
        put: moved,
        put8: moved,
        get: moved,
        get8: moved,
        atomic: moved,
        // A loop of operations of libucp (1.13).
        xor: moved,
        list: moved,
      });
    },
  );
});
