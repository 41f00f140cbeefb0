/** The environment of C as a worker thread changes it: the main thread of this process counts as one here. */

import { expect, it, vi } from 'vitest';
import { getEnvironment, setEnvironment } from './process.ts';

vi.mock('node:worker_threads', async (original) => ({
  ...(await original<typeof import('node:worker_threads')>()),
  isMainThread: false,
}));

const NAME = 'GAUDI_UCX_ENVIRONMENT_OF_THREAD_TEST';

it('a variable that a worker thread sets has its newest value until it is removed', () => {
  const seen = ['one', 'two', '', undefined, undefined, 'three', undefined].map((value) => {
    setEnvironment(NAME, value);
    return getEnvironment(NAME);
  });
  expect(seen).toEqual(['one', 'two', '', undefined, undefined, 'three', undefined]);
});
