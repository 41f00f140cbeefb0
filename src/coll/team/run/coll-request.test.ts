/** The request of a collective operation. */

import { describe, expect, it, vi } from 'vitest';
import { Status } from '../../../ucs/type/status.ts';
import { CollRequest } from './coll-request.ts';

function open(callback?: () => void) {
  const onThrown = vi.fn();
  return { onThrown, request: new CollRequest({ callback, userData: 7 }, 16, 'barrier/dissemination', { onThrown }) };
}

describe('the request of a collective operation', () => {
  it('ends with its status and error, which its callback sees', () => {
    const seen: unknown[] = [];
    const { request } = open(() => seen.push([request.status, request.error, request.isCompleted]));
    expect([request.isCompleted, request.userData, request.byteLength]).toEqual([false, 7, 16]);
    request.end(Status.IO_ERROR, 'cause');
    expect(seen).toEqual([[Status.IO_ERROR, 'cause', true]]);
  });

  it('passes what its callback throws to the worker', () => {
    const { request, onThrown } = open(() => {
      throw new Error('thrown');
    });
    request.end(Status.OK, undefined);
    expect(onThrown.mock.calls).toEqual([[new Error('thrown')]]);
  });

  it('can be freed neither before its end nor twice', () => {
    const { request } = open();
    expect(() => request.free()).toThrow(expect.objectContaining({ status: Status.BUSY }));
    request.end(Status.OK, undefined);
    request.free();
    expect(() => request.free()).toThrow(/must not be freed twice/);
  });

  it('is not canceled once it has ended', () => {
    const { request } = open();
    expect(request.cancel()).toBe(false);
    request.onCancel = vi.fn(() => true);
    expect(request.cancel()).toBe(true);
    request.end(Status.OK, undefined);
    expect([request.cancel(), request.onCancel]).toEqual([false, expect.anything()]);
    expect(request.onCancel).toHaveBeenCalledTimes(1);
  });
});
