/** The launcher of ranks: which of several failures it names, though another one is reported first. */

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import { launchRanks } from '../../../src/tools/ranks/launch.ts';
import type { Failing } from '../../fixtures/programs/failing-rank-program.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = pathToFileURL(built(join(import.meta.dirname, '../../fixtures/programs/failing-rank-program.ts')));

describe('the launcher of ranks names', () => {
  const cases: [string, readonly Failing[], RegExp][] = [
    ['the rank that failed of itself, not one that blames it', ['blames', 'throws'], /^rank 1: its own reason/],
    [
      'the rank that was killed, not one that blames it',
      ['blames', 'is killed'],
      /^rank 1 \(pid \d+\) ended by SIGKILL/,
    ],
    ['the first failure, if each blames another', ['blames', 'blames'], /^rank \d: rank \d has closed the team/],
  ];
  it.each(cases)('%s', async (_, spec, message) => {
    const run = launchRanks({ program: PROGRAM, spec, size: spec.length, needsCards: false, onResult: () => {} });
    await expect(run).rejects.toMatchObject({ code: 'ERR_IO_ERROR', message: expect.stringMatching(message) });
  });
});

it('a rank that cannot be started fails the run, and ends the ranks before it', async () => {
  const listeners = process.listenerCount('SIGTERM');
  let assignments = 0;
  // Too long for an argument of a process, but of the second rank only.
  const spec = { toJSON: () => (assignments++ === 0 ? ['blames'] : 'x'.repeat(1 << 20)) };
  const run = launchRanks({ program: PROGRAM, spec, size: 2, needsCards: false, onResult: () => {} });
  await expect(run).rejects.toMatchObject({
    code: 'ERR_IO_ERROR',
    message: expect.stringMatching(/^rank 1 could not be started: .*E2BIG/),
  });
  expect(process.listenerCount('SIGTERM')).toBe(listeners);
});
