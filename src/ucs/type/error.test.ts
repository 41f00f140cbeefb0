import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import {
  asError,
  checkStatus,
  closedError,
  describeValue,
  invalidParam,
  isUcxError,
  statusError,
  UcxError,
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
