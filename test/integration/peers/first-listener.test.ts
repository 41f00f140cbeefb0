/** The first listener of a worker that sleeps already: the sleep ends, because it does not watch the socket of the listener. */

import { expect, it } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';

const fixture = useContexts('native');
/** Turns of the event loop: a sleep that is ended needs few. */
const TURNS = 20;

it('ends the sleep of its worker', async () => {
  const { worker } = await fixture.open({ context: { env: { UCX_TLS: 'self,tcp' } } });
  while (worker.progress() > 0);
  let isAwake = false;
  const slept = worker.wait().then(() => {
    isAwake = true;
  });
  for (let turn = 0; turn < TURNS && !isAwake; turn++) await new Promise(setImmediate);
  expect(isAwake).toBe(false);
  const listener = worker.listener({ onConnection: (request) => request.reject() });
  for (let turn = 0; turn < TURNS && !isAwake; turn++) await new Promise(setImmediate);
  expect(isAwake).toBe(true);
  await slept;
  await listener.close();
});
