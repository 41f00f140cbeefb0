/** Which rejections of a queue fail its batch in the end. */

import { expect, it } from 'vitest';
import { Errno } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { TransientErrors } from './submission.ts';

/** More rejections than any limit of them. */
const MANY = 100_000;

function afterMany(result: number, hasFlights: boolean): TransientErrors {
  const errors = new TransientErrors();
  for (let count = 0; count < MANY; count++) errors.add(result, 3, hasFlights);
  return errors;
}

it('a full queue of the driver never fails a batch, because the driver will have room', () => {
  expect(afterMany(-Errno.EAGAIN, false)).toMatchObject({ isExhausted: false, requests: 3 });
});

it('no rejection fails a batch while others are in flight, because they will free resources', () => {
  expect(afterMany(-Errno.ENOMEM, true).isExhausted).toBe(false);
});

it.each([
  ['ENOMEM', Errno.ENOMEM, Status.NO_MEMORY],
  ['EIO', Errno.EIO, Status.IO_ERROR],
])('%s without a batch in flight fails a batch after a limited number of rejections', (_name, errno, status) => {
  const errors = afterMany(-errno, false);
  expect([errors.isExhausted, errors.status]).toEqual([true, status]);
  errors.clear();
  expect(errors.isExhausted).toBe(false);
});
