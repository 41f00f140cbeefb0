/** Peers that are killed right after they have connected, and keys whose memory is gone before they are unpacked. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { skipReason } = installedLibucp();
const PROGRAM = built(new URL('../../fixtures/programs/early-killed-program.ts', import.meta.url));

interface Outcome {
  readonly outcome: string;
  readonly failure?: string;
}

function run(scenario: string, engine: string, tls: string): Outcome {
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, scenario, engine, tls], {
    encoding: 'utf8',
    env: environment(),
    timeout: 50_000,
  });
  expect([status, signal], stderr).toEqual([0, null]);
  return JSON.parse(stdout.slice(stdout.indexOf('{')));
}

describe.each([
  ['native', 'posix,self,cma'],
  ['native', 'tcp,self'],
  ['libucx', 'posix,self,cma'],
  ['libucx', 'sysv,self'],
  ['libucx', 'tcp,self'],
] as const)('over the engine %s and %s', { timeout: 60_000 }, (engine, tls) => {
  const isSkipped = engine === 'libucx' && skipReason !== undefined;

  it.skipIf(isSkipped)('a message to a peer that is killed ends, and its endpoint fails (needs libucp)', () => {
    const { outcome, failure } = run('message', engine, tls);
    expect(outcome).toMatch(/^ERR_(ENDPOINT_TIMEOUT|CONNECTION_RESET)$/);
    expect(outcome).toBe(`ERR_${failure}`);
  });

  it.skipIf(isSkipped)('a key of a process that has ended is refused (needs libucp)', () => {
    // Over tcp the native engine learns of the end by the connection: its operations fail.
    const codes = engine === 'native' && tls.startsWith('tcp') ? /^ERR_/ : /^ERR_RKEY_STALE$/;
    expect(run('ended', engine, tls).outcome).toMatch(codes);
  });

  it.skipIf(isSkipped)('a key of memory that was unmapped is refused, or has no effect (needs libucp)', () => {
    // Over tcp libucp asks the owner, whose memory it keeps until its context closes.
    const { outcome } = run('unmapped', engine, tls);
    if (engine === 'libucx' && tls.startsWith('tcp')) expect(outcome).toMatch(/^(unpacked, OK|ERR_.*)$/);
    else expect(outcome).toMatch(/^ERR_/);
    if (engine === 'libucx' && !tls.startsWith('tcp')) expect(outcome).toBe('ERR_RKEY_STALE');
  });
});
