/** Messages of the node server: fields at their limits, packets that are too long, and errors that arrive as they were. */

import { describe, expect, it } from 'vitest';
import { Errno, MESSAGE_BYTES_MAX, SyscallError } from '../../sys/index.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  decodeMessage,
  encodeMessage,
  errorOf,
  errorReplyOf,
  integerField,
  ProtocolError,
  textField,
  wordsField,
} from './message.ts';

describe('a field', () => {
  it('may have its largest value, and no larger one', () => {
    expect(integerField({ n: 9 }, 'n', 9)).toBe(9);
    for (const n of [10, -1, 1.5, '3', undefined]) expect(() => integerField({ n }, 'n', 9)).toThrow(ProtocolError);
    expect(textField({ t: 'abc' }, 't', 3)).toBe('abc');
    for (const t of ['abcd', 3]) expect(() => textField({ t }, 't', 3)).toThrow(ProtocolError);
    expect(wordsField({ w: [0, 2 ** 32 - 1] }, 'w', 2, 2)).toEqual(Uint32Array.of(0, 2 ** 32 - 1));
    for (const w of [[1], [1, 2, 3], [1, 2 ** 32], [1, -1], 'ab']) {
      expect(() => wordsField({ w }, 'w', 2, 2)).toThrow(ProtocolError);
    }
  });
});

describe('a message', () => {
  it('is an object in one packet', () => {
    expect(decodeMessage(encodeMessage({ op: 'x', n: 1 }))).toEqual({ op: 'x', n: 1 });
    for (const text of ['[]', '3', 'null', '{']) {
      expect(() => decodeMessage(Buffer.from(text)), text).toThrow(ProtocolError);
    }
    const frame = JSON.stringify({ t: '' }).length;
    expect(encodeMessage({ t: 'x'.repeat(MESSAGE_BYTES_MAX - frame) })).toHaveLength(MESSAGE_BYTES_MAX);
    expect(() => encodeMessage({ t: 'x'.repeat(MESSAGE_BYTES_MAX - frame + 1) })).toThrow(ProtocolError);
  });
});

describe('an error', () => {
  it('arrives with its code, status, argument or errno, and a defect does not', () => {
    const sent = (error: unknown): UcxError => errorOf(errorReplyOf(error)!);
    expect(sent(invalidParam('cards', 'must be few', 9))).toMatchObject({
      code: 'ERR_INVALID_PARAM',
      status: Status.INVALID_PARAM,
      details: { argument: 'cards' },
    });
    expect(sent(new UcxError({ code: 'ERR_X', status: Status.BUSY, message: 'busy' }))).toMatchObject({
      code: 'ERR_X',
      status: Status.REJECTED,
    });
    expect(sent(new SyscallError('open', Errno.EBUSY, 'card'))).toMatchObject({ syscall: 'open', errno: Errno.EBUSY });
    expect(errorReplyOf(new TypeError('defect'))).toBeUndefined();
  });

  it('of a system call says each part once, without a limit of the client', () => {
    const reply = errorReplyOf(new SyscallError('open', Errno.EMFILE, 'this client has 64 open files, the maximum'))!;
    expect(errorOf(reply).message).toBe(
      'open: EMFILE (too many open files): node server: this client has 64 open files, the maximum',
    );
  });
});
