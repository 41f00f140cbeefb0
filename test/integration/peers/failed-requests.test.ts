/** Every request of a failed endpoint ends with its status, over both engines, also if the queue of the peer was full: each scenario is a process. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`failed-requests over libucp: skipped: ${skipReason}`);
const PROGRAM = built(new URL('../../fixtures/programs/failed-requests-program.ts', import.meta.url));
const CONNECTIONS = [
  ['native', 'self,posix'],
  ['native', 'self,tcp'],
  ['libucx', 'self,posix'],
  ['libucx', 'self,tcp'],
] as const;

describe.each(CONNECTIONS)('requests to a peer over the engine %s and %s', { timeout: 60_000 }, (engine, tls) => {
  const isMissing = engine === 'libucx' && skipReason !== undefined;

  it.skipIf(isMissing).each(['killed', 'closed', 'replied'])('end: %s', (scenario) => {
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, engine, tls, scenario], {
      encoding: 'utf8',
      env: environment(),
      timeout: 30_000,
    });
    expect([status, signal], stderr).toEqual([0, null]);
    const ends: readonly [string, string][] = JSON.parse(stdout.split('\n').find((line) => line.startsWith('[["'))!);
    expect(ends).toHaveLength(16);
    for (const [name, end] of ends) {
      // A stream ends when its bytes are in a queue.
      const statuses = name.startsWith('stream')
        ? /^(OK|CONNECTION_RESET|ENDPOINT_TIMEOUT)$/
        : /^(CONNECTION_RESET|ENDPOINT_TIMEOUT)$/;
      expect(end, name).toMatch(statuses);
    }
  });
});
