/** The stages of the exchange, from the output of the demo. */

import { expect, it } from 'vitest';
import { withOutput } from './web-session.ts';

it('the last line of a stage is the stage, and is not output', () => {
  const first = withOutput({ state: 'running', output: '' }, 'one card\nstage 0 of 11: all cards: put\n');
  expect(first).toEqual({
    state: 'running',
    output: 'one card\n',
    stage: { text: 'all cards: put', done: 0, total: 11 },
  });
  const next = withOutput(first, 'stage 2 of 11: card 0 -> card 0\nstage 3 of 11: card 0 -> card 1\n');
  expect([next.output, next.stage]).toEqual(['one card\n', { text: 'card 0 -> card 1', done: 3, total: 11 }]);
  expect(withOutput(next, 'sha-256\n')).toEqual({ ...next, output: 'one card\nsha-256\n' });
});
