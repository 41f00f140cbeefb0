/** Closing over libucp in the middle of operations: each scenario is a process, which libucp must not end. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`libucx-teardown: skipped: ${skipReason}`);
const PROGRAM = built(new URL('../../fixtures/programs/libucx-teardown-program.ts', import.meta.url));

/** Runs a scenario to its end. Returns how its operations have ended. */
function run(scenario: string): readonly string[] {
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, scenario], {
    encoding: 'utf8',
    env: environment(),
    timeout: 30_000,
  });
  expect([status, signal], stderr).toEqual([0, null]);
  // libucp 1.13 prints warnings about messages without a receiver.
  return JSON.parse(stdout.split('\n').find((line) => line.startsWith('["'))!);
}

describe.skipIf(skipReason !== undefined)('over libucp (needs libucp)', { timeout: 60_000 }, () => {
  it.each(['tag', 'am'])(
    'a worker closes while a receive (%s) waits for the rest of its message, on a closed endpoint',
    (kind) => {
      const [receive, send] = run(kind);
      expect(receive).toBe('CANCELED');
      expect(send).toMatch(/^ERR_(ENDPOINT_TIMEOUT|CANCELED|CONNECTION_RESET)$/);
    },
  );

  it('awaited puts that are not flushed yet are canceled by a close by force', () => {
    for (const outcome of run('puts')) expect(outcome).toMatch(/^(OK|ERR_CANCELED)$/);
  });

  it('a receive of a stream into memory of a card ends when its endpoint is closed', () => {
    for (const outcome of run('streamReceive')) expect(outcome).toMatch(/^(OK|ERR_CANCELED)$/);
  });

  it('an endpoint whose peer went away can be closed, and its sends end with its worker at the latest', () => {
    const [failure, ...sends] = run('failedSends');
    expect(failure).toBe('CONNECTION_RESET');
    expect(sends).toHaveLength(4);
    for (const outcome of sends) expect(outcome).toMatch(/^ERR_(ENDPOINT_TIMEOUT|CANCELED|CONNECTION_RESET)$/);
  });
});
