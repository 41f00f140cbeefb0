import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import { completeOne } from './checks.ts';

describe('completeOne', () => {
  it('calls onComplete once, when the last operation has ended, and keeps the first failure', () => {
    let calls = 0;
    const completion = { count: 4, failure: Status.OK as Status, onComplete: () => (calls += 1) };
    completeOne(completion, Status.OK);
    completeOne(completion, Status.IO_ERROR);
    completeOne(completion, Status.TIMED_OUT);
    expect(calls).toBe(0);
    completeOne(completion, Status.OK);
    expect(calls).toBe(1);
    expect(completion).toMatchObject({ count: 0, failure: Status.IO_ERROR });
  });
});
