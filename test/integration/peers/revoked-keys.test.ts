/** Puts with keys of memory that was unmapped: refused over the native engine, and without effect on anything else over libucp. The owner survives. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`revoked-keys over libucp: skipped: ${skipReason}`);
const PROGRAM = built(new URL('../../fixtures/programs/revoked-keys-program.ts', import.meta.url));
const CONNECTIONS = [
  ['native', 'self,posix,cma'],
  ['native', 'self,tcp'],
  ['libucx', 'self,posix,cma'],
  ['libucx', 'self,tcp'],
] as const;

describe.each(CONNECTIONS)('a put to unmapped memory over the engine %s and %s', { timeout: 60_000 }, (engine, tls) => {
  it.skipIf(engine === 'libucx' && skipReason !== undefined).each(['allocated', 'buffer'])('that was %s', (kind) => {
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, engine, tls, kind], {
      encoding: 'utf8',
      env: environment(),
      timeout: 30_000,
    });
    expect([status, signal], stderr).toEqual([0, null]);
    const [before, after, state] = JSON.parse(stdout.split('\n').find((line) => line.startsWith('[['))!);
    expect({ before, state }).toEqual({ before: ['OK'], state: 'intact' });
    for (const code of after) expect(code).toMatch(engine === 'native' ? /^ERR_/ : /^(OK|ERR_.*)$/);
  });
});
