/** Frames of tcp: reading returns the written fields, at any word of a memory, and bytes behind a header do not change. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { property } from '../../../test/fixtures/property.ts';
import {
  AFTER_PUTS_HEADER_BYTES,
  copyPutToRun,
  END_BYTES,
  FrameType,
  GET_HEADER_BYTES,
  getLengthOf,
  HEADER_BYTES,
  headerBytesOf,
  idAfterPuts,
  KEY_WORDS,
  keyWordOf,
  messageIdOf,
  offsetOf,
  PUT_HEADER_BYTES,
  PUT_RUN_MAX,
  PUT_RUN_WORDS,
  putWordInRun,
  setAfterPuts,
  statusOf,
  typeOf,
  valueIn,
  writeAm,
  writeAmWords,
  writeEnd,
  writeGet,
  writePut,
  writeSignal,
} from './layout.ts';

const CANARY = 0x5a5a_5a5a;
const word = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const length = fc.integer({ min: 0, max: 2 ** 31 - 1 });
const offset = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const key = fc.array(word, { minLength: KEY_WORDS, maxLength: KEY_WORDS }).map((words) => Int32Array.from(words));
const place = fc.nat({ max: 9 });

/** Writes a header of this length at a word of a memory; the words around it must not change. */
function written(at: number, headerBytes: number, write: (words: Int32Array) => void): Int32Array {
  const words = new Int32Array(32).fill(CANARY);
  write(words);
  const end = at + headerBytes / 4;
  expect([...words.subarray(0, at), ...words.subarray(end)]).toEqual(
    Array.from({ length: 32 - end + at }, () => CANARY),
  );
  expect(headerBytesOf(typeOf(words, at))).toBe(headerBytes);
  return words;
}

const messages = fc.constantFrom(FrameType.AM, FrameType.AM_ZCOPY);
property(
  'an AM is read as it is written',
  [place, messages, fc.nat({ max: 255 }), length],
  (at, type, id, byteLength) => {
    const words = written(at, HEADER_BYTES, (memory) => writeAm(memory, at, type, id, byteLength));
    expect([typeOf(words, at), messageIdOf(words, at), valueIn(words, at)]).toEqual([type, id, byteLength]);
  },
);

property(
  'the header of a message is written behind that of its frame',
  [place, fc.array(word, { maxLength: 10 })],
  (at, header) => {
    const words = new Int32Array(32).fill(CANARY);
    writeAm(words, at, FrameType.AM, 7, header.length * 4);
    writeAmWords(words, at, Int32Array.of(...header, 1, 2), header.length);
    const body = at + HEADER_BYTES / 4;
    expect([...words.subarray(body, body + header.length + 1)]).toEqual([...header, CANARY]);
    expect([typeOf(words, at), messageIdOf(words, at)]).toEqual([FrameType.AM, 7]);
  },
);

property(
  'an AM behind puts is read as it is written, and has the other id behind fewer puts than it follows',
  [place, fc.nat({ max: 31 }), length, fc.integer({ min: 1, max: 2 ** 31 - 1 }), fc.nat({ max: 31 })],
  (at, id, byteLength, puts, failedId) => {
    const write = (memory: Int32Array): void => {
      writeAm(memory, at, FrameType.AM_AFTER_PUTS, id, byteLength);
      setAfterPuts(memory, at, puts, failedId);
    };
    const words = written(at, AFTER_PUTS_HEADER_BYTES, write);
    expect([typeOf(words, at), valueIn(words, at)]).toEqual([FrameType.AM_AFTER_PUTS, byteLength]);
    expect([idAfterPuts(words, at, puts), idAfterPuts(words, at, puts - 1)]).toEqual([id, failedId]);
  },
);

const { ACK, NACK, HEARTBEAT, BYE, GET_DATA } = FrameType;
property(
  'a signal is read as it is written',
  [place, fc.constantFrom(ACK, NACK, HEARTBEAT, BYE, GET_DATA), word],
  (at, type, value) => {
    const words = written(at, HEADER_BYTES, (memory) => writeSignal(memory, at, type, value));
    expect([typeOf(words, at), valueIn(words, at)]).toEqual([type, value]);
  },
);

property('a PUT is read as it is written', [place, key, offset, length], (at, packed, from, byteLength) => {
  const words = written(at, PUT_HEADER_BYTES, (memory) => writePut(memory, at, packed, from, byteLength));
  expect([typeOf(words, at), valueIn(words, at), offsetOf(words, at)]).toEqual([FrameType.PUT, byteLength, from]);
  expect(words.slice(keyWordOf(at), keyWordOf(at) + KEY_WORDS)).toEqual(packed);
});

property(
  'a PUT of a run is read as it is written',
  [place, fc.nat({ max: PUT_RUN_MAX - 1 }), key, offset, length],
  (at, index, packed, from, byteLength) => {
    const words = new Int32Array(32);
    writePut(words, at, packed, from, byteLength);
    const run = new Int32Array(PUT_RUN_WORDS + 2).fill(CANARY);
    const headers = run.subarray(1, -1);
    copyPutToRun(headers, index, words, at);
    const put = putWordInRun(index);
    expect([typeOf(headers, put), valueIn(headers, put), offsetOf(headers, put)]).toEqual([
      FrameType.PUT,
      byteLength,
      from,
    ]);
    expect(headers.slice(keyWordOf(put), keyWordOf(put) + KEY_WORDS)).toEqual(packed);
    expect([run[put], run[put + 1 + PUT_HEADER_BYTES / 4]]).toEqual([CANARY, CANARY]);
  },
);

property('a GET is read as it is written', [place, key, offset, offset], (at, packed, from, byteLength) => {
  const words = written(at, GET_HEADER_BYTES, (memory) => writeGet(memory, at, packed, from, byteLength));
  const [type, value] = [typeOf(words, at), valueIn(words, at)];
  expect([type, value, offsetOf(words, at), getLengthOf(words, at)]).toEqual([FrameType.GET, 0, from, byteLength]);
  expect(words.slice(keyWordOf(at), keyWordOf(at) + KEY_WORDS)).toEqual(packed);
});

property('an end is read as it is written', [place, word], (at, status) => {
  const words = new Int32Array(12).fill(CANARY);
  writeEnd(words, at, status);
  expect(statusOf(words, at)).toBe(status);
  expect([...words].toSpliced(at, END_BYTES / 4)).toEqual(Array.from({ length: 10 }, () => CANARY));
});

it('have layouts that do not change', () => {
  const words = new Int32Array(12);
  const far = 5 * 2 ** 32 + 6;
  const packed = Int32Array.of(11, 12, 13, 14, 15, 16);
  writeGet(words, 0, packed, far, far + 1);
  expect([...words]).toEqual([5, 0, 11, 12, 13, 14, 15, 16, 6, 5, 7, 5]);
  writePut(words, 0, packed, far, 9);
  expect([...words.subarray(0, 10)]).toEqual([2, 9, 11, 12, 13, 14, 15, 16, 6, 5]);
  writeEnd(words, 0, -3);
  expect([...words.subarray(0, 2)]).toEqual([-3, 0]);
  writeAm(words, 0, FrameType.AM, 7, 9);
  expect([...words.subarray(0, 2)]).toEqual([0x701, 9]);
  writeAm(words, 0, FrameType.AM_ZCOPY, 7, 9);
  expect([...words.subarray(0, 2)]).toEqual([0x709, 9]);
});
