/** The exit code and the line of a command that failed. */

import { afterEach, expect, it, vi } from 'vitest';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { interruptedBy, reportFailure } from './command-line.ts';

afterEach(() => {
  process.exitCode = undefined;
  vi.restoreAllMocks();
});

it.each([
  ['a signal', interruptedBy('SIGINT'), 130, 'gaudi-ucx: interrupted by SIGINT (ERR_CANCELED)\n'],
  [
    'a peer that cancels',
    statusError(Status.CANCELED, 'receive'),
    1,
    'gaudi-ucx: receive: request canceled (ERR_CANCELED)\n',
  ],
  [
    'the value of an option',
    invalidParam('-n', 'must be positive', 0),
    2,
    'gaudi-ucx: argument -n must be positive, got 0 (ERR_INVALID_PARAM)\n',
  ],
])('a command that fails because of %s has its own exit code', (_what, error, code, line) => {
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  reportFailure(error);
  expect([process.exitCode, ...written.mock.calls.map(([text]) => text)]).toEqual([code, line]);
});
