import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import {
  AbortError,
  argumentError,
  asError,
  checkStatus,
  closedError,
  describeValue,
  invalidParam,
  isUcxError,
  joinedError,
  outsideText,
  statusError,
  throwIfAborted,
  UcxError,
  withArgumentNames,
} from './error.ts';
import { Status } from './status.ts';

describe('UcxError', () => {
  it('carries code, status, details and cause', () => {
    const cause = new Error('below');
    const error = new UcxError({
      code: 'ERR_TEST',
      status: Status.IO_ERROR,
      message: 'it broke',
      details: { card: 3 },
      cause,
    });
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ name: 'UcxError', code: 'ERR_TEST', status: -3, message: 'it broke', cause });
    expect(error.details).toEqual({ card: 3 });
    expect('cause' in new UcxError({ code: 'ERR_TEST', status: Status.IO_ERROR, message: '' })).toBe(false);
  });

  it('is recognised by its brand, also if another copy of the library made it', () => {
    expect(isUcxError(new UcxError({ code: 'ERR_TEST', status: Status.BUSY, message: '' }))).toBe(true);
    expect(isUcxError({ [Symbol.for('gaudi-ucx.UcxError')]: true })).toBe(true);
    for (const other of [new Error(''), null, undefined, 'ERR_TEST', {}]) expect(isUcxError(other)).toBe(false);
  });
});

describe('invalidParam', () => {
  it.each([
    [17, 'got 17'],
    ['x y', 'got "x y"'],
    [255n, 'got 255 (0xff)'],
    [undefined, 'got nothing'],
    [new Uint8Array(2), 'got Uint8Array of 2 bytes'],
    [Object.create(null), 'got object'],
  ])('names argument, rule and value: %s', (value, text) => {
    const error = invalidParam('length', 'must be even', value);
    expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', status: Status.INVALID_PARAM });
    expect(error.message).toBe(`argument length must be even, ${text}`);
    expect(error.details).toMatchObject({ argument: 'length', rule: 'must be even' });
  });
});

it('shows the beginning of a long text', () => {
  expect(describeValue('x'.repeat(2 ** 20))).toBe(`"${'x'.repeat(199)}…"`);
});

describe('errors from status values', () => {
  it('throws for failures only', () => {
    checkStatus(Status.OK, 'work');
    checkStatus(Status.INPROGRESS, 'work');
    expect(() => checkStatus(Status.NO_MEMORY, 'allocate HBM')).toThrow(
      expect.objectContaining({ code: 'ERR_NO_MEMORY', status: -4, message: 'allocate HBM: out of memory' }),
    );
  });

  it('keeps the cause', () => {
    const cause = new Error('below');
    expect(statusError(Status.IO_ERROR, 'copy', cause).cause).toBe(cause);
    expect(closedError('worker')).toMatchObject({ code: 'ERR_CLOSED', message: 'worker is closed' });
  });
});

describe('asError', () => {
  it('keeps an error of another context, as under jest, with its code', () => {
    const error: unknown = runInNewContext("Object.assign(new Error('no file'), { code: 'ENOENT' })");
    expect(error).not.toBeInstanceOf(Error);
    expect(asError(error)).toBe(error);
  });

  it('makes another value the message of one', () => {
    expect(asError('broken')).toMatchObject({ name: 'Error', message: 'broken' });
  });
});

describe('an argument that the user gave by another name', () => {
  const names = { depth: 'UCX_DEPTH' };
  const thrownBy = (error: unknown): unknown => {
    try {
      withArgumentNames(names, () => {
        throw error;
      });
    } catch (thrown) {
      return thrown;
    }
    return undefined;
  };

  it('has that name in the error', () => {
    expect(withArgumentNames(names, () => 7)).toBe(7);
    const message = 'argument UCX_DEPTH must be even, got 3';
    expect(thrownBy(invalidParam('depth', 'must be even', 3))).toMatchObject({
      code: 'ERR_INVALID_PARAM',
      message,
      details: { argument: 'UCX_DEPTH', rule: 'must be even', value: '3' },
    });
  });

  it('does not change errors of other arguments, and other errors', () => {
    const broken = new UcxError({
      code: 'ERR_X',
      status: Status.IO_ERROR,
      message: 'x',
      details: { argument: 'depth' },
    });
    for (const other of [invalidParam('size', 'must be even', 3), broken, closedError('worker'), new Error('depth')])
      expect(thrownBy(other)).toBe(other);
  });
});

it('a range that does not fit names its offset, or the offset alone if that is behind the memory', () => {
  const size = 4096;
  const cases = [
    [0, 5000, '5000 bytes do not fit into remote memory of 4096 bytes'],
    [4000, 97, '97 bytes at offset 4000 do not fit into remote memory of 4096 bytes'],
    [4096, 1, '1 bytes at offset 4096 do not fit into remote memory of 4096 bytes'],
    [4097, 0, 'offset 4097 is beyond the end of remote memory of 4096 bytes'],
  ] as const;
  for (const [offset, byteLength, text] of cases)
    expect(outsideText('remote memory', { offset, byteLength, size })).toBe(text);
});

describe('several errors', () => {
  const one = argumentError('a', 'must be even', '3', 'a is odd');
  const two = statusError(Status.NO_MEMORY, 'map');

  it('are one with the code of the first, and each message once', () => {
    expect(joinedError([one, two, one])).toMatchObject({
      code: one.code,
      status: one.status,
      details: one.details,
      message: '2 problems: a is odd; map: out of memory',
    });
  });

  it('of one message are the first', () => {
    expect(joinedError([one, argumentError('b', 'must be even', '5', 'a is odd')])).toBe(one);
    expect(joinedError([one])).toBe(one);
    expect(joinedError([])).toBeUndefined();
  });
});

describe('an aborted operation', () => {
  it('has the code of Node.js, the reason as its cause, and a separate name for a time-out', () => {
    const reason = new Error('changed my mind');
    const aborted = new AbortError(AbortSignal.abort(reason));
    const message = 'the operation was aborted';
    expect(aborted).toMatchObject({ name: 'AbortError', code: 'ABORT_ERR', message, cause: reason });
    const timeout = new DOMException('too slow', 'TimeoutError');
    expect(new AbortError(AbortSignal.abort(timeout))).toMatchObject({
      name: 'TimeoutError',
      code: 'ABORT_ERR',
      message: 'the operation timed out',
      cause: timeout,
    });
  });

  it('is one whose signal has fired, and no other', () => {
    throwIfAborted(undefined);
    const controller = new AbortController();
    throwIfAborted(controller.signal);
    controller.abort('stop');
    expect(() => throwIfAborted(controller.signal)).toThrow(
      expect.objectContaining({ code: 'ABORT_ERR', cause: 'stop' }),
    );
  });
});
