/** Every message of ucp: reading returns the written fields, at any place of a frame, and its words are those of the layout that peers of this version know. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { messageFrame } from '../../../test/fixtures/messages/message-frame.ts';
import { property } from '../../../test/fixtures/property.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { readAm, readAmRts, writeAm, writeAmRts } from './am.ts';
import {
  CreditCode,
  readCredit,
  readWireup,
  readWithdraw,
  WireupCode,
  writeClose,
  writeCredit,
  writeWireup,
  writeWithdraw,
} from './control.ts';
import { endingOf, endpointOf, payloadIn, payloadOf } from './frame.ts';
import { HEADER_BYTES, MessageId } from './message.ts';
import {
  ATP_IN_TARGET,
  readAtp,
  readData,
  readReply,
  readRtr,
  writeAtp,
  writeData,
  writeReply,
  writeRtr,
} from './rendezvous.ts';
import {
  readAtomic,
  readGetReady,
  readRma,
  readRmaBlocks,
  writeAtomic,
  writeGetReady,
  writeRma,
  writeRmaBlocks,
} from './rma.ts';
import { readStream, STREAM_ASKED, writeStream } from './stream.ts';
import { readTag, readTagRts, writeTag, writeTagRts } from './tag.ts';

const word = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const length = fc.oneof(fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }), fc.constantFrom(0, 2 ** 31, 2 ** 32));
const big = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const status = fc.integer({ min: Status.ENDPOINT_TIMEOUT, max: Status.OK }).map((value) => value as Status);
const payload = fc.uint8Array({ maxLength: 100 });
const place = fc.nat({ max: 8 }).map((words) => words * 8);
const orNothing = (bytes: Uint8Array): Uint8Array | undefined => (bytes.byteLength === 0 ? undefined : bytes);

/** One kind of message: its fields, how they are written and read, and what else its reader tells of the payload. */
interface Kind<F extends object> {
  readonly fields: fc.Arbitrary<F>;
  readonly write: (to: number, fields: F) => Int32Array;
  readonly read: (frame: AmFrame) => object;
  readonly tells?: (fields: F, bytes: Uint8Array, start: number) => object;
}

function kind<F extends object>(kindOf: Kind<F>): Kind<object> {
  return kindOf as unknown as Kind<object>;
}

/** An AM, whether it is handled or not. */
const amKind = kind({
  fields: fc.record({ handler: word, headerBytes: fc.nat({ max: 4096 }) }),
  write: (to, { handler, headerBytes }) => writeAm(to, handler, headerBytes),
  read: readAm,
  tells: ({ headerBytes }, { byteLength }, start) => {
    const padded = Math.ceil(headerBytes / 8) * 8;
    return { headerAt: start, dataAt: start + padded, dataBytes: byteLength - padded };
  },
});

const eager = (_fields: object, { byteLength }: Uint8Array, start: number): object => ({ start, byteLength });
const keyed = (_fields: object, { byteLength }: Uint8Array, start: number): object => ({
  keyAt: start,
  keyBytes: byteLength,
});
const carried = (_fields: object, bytes: Uint8Array): object => ({ carrier: orNothing(bytes) });
const tag = { request: word, tagLow: word, tagHigh: word };
const tagKind = kind({
  fields: fc.record(tag),
  write: (to, { request, tagLow, tagHigh }) => writeTag(to, request, tagLow, tagHigh),
  read: readTag,
  tells: eager,
});
const rmaKind = kind({
  fields: fc.record({ request: word, remoteOffset: length, byteLength: length }),
  write: writeRma,
  read: readRma,
  tells: keyed,
});

const KINDS: Record<keyof typeof MessageId, Kind<object>> = {
  WITHDRAW: kind({
    fields: fc.record({ request: word }),
    write: (to, { request }) => writeWithdraw(to, request),
    read: (frame) => ({ request: readWithdraw(frame) }),
  }),
  WIREUP: kind({
    fields: fc.record({ code: word, from: word, number: word, windowBytes: length }),
    write: writeWireup,
    read: readWireup,
  }),
  TAG: tagKind,
  TAG_SYNC: tagKind,
  TAG_RTS: kind({
    fields: fc.record({ ...tag, byteLength: length, keyOffset: length }),
    write: writeTagRts,
    read: readTagRts,
    tells: (_fields, bytes) => ({ packedKey: orNothing(bytes) }),
  }),
  RTR: kind({
    fields: fc.record({
      request: word,
      peerRequest: word,
      targetBytes: word,
      from: length,
      byteLength: length,
      targetOffset: length,
    }),
    write: writeRtr,
    read: readRtr,
    tells: (_fields, bytes) => ({ keys: orNothing(bytes) }),
  }),
  DATA: kind({
    fields: fc.record({ request: word, from: length }),
    write: (to, { request, from }) => writeData(to, request, from),
    read: readData,
    tells: eager,
  }),
  REPLY: kind({
    fields: fc.record({ request: word, status, low: word, high: word }),
    write: writeReply,
    read: readReply,
    tells: carried,
  }),
  AM: amKind,
  AM_VOID: amKind,
  AM_RTS: kind({
    fields: fc.record({
      handler: word,
      headerBytes: fc.nat({ max: 100 }),
      keyBytes: fc.nat({ max: 100 }),
      byteLength: length,
      request: word,
      keyOffset: length,
    }),
    write: writeAmRts,
    read: readAmRts,
    tells: ({ headerBytes, keyBytes }, { byteLength }, start) => {
      const padded = Math.ceil(headerBytes / 8) * 8;
      return { headerAt: start, keyAt: start + padded, isCut: padded + keyBytes > byteLength };
    },
  }),
  STREAM: kind({
    fields: fc.record({ flags: word }),
    write: (to, { flags }) => writeStream(to, flags),
    read: readStream,
    tells: eager,
  }),
  PUT: rmaKind,
  GET: rmaKind,
  GET_READY: kind({
    fields: fc.record({ request: word, peerRequest: word, status }),
    write: writeGetReady,
    read: readGetReady,
  }),
  ATOMIC: kind({
    fields: fc.record({
      request: word,
      remoteOffset: length,
      operation: word,
      wordBytes: word,
      value: big,
      compare: big,
    }),
    write: writeAtomic,
    read: readAtomic,
    tells: keyed,
  }),
  CLOSE: kind({ fields: fc.record({}), write: writeClose, read: () => ({}) }),
  ATP: kind({
    fields: fc.record({ request: word, from: length, byteLength: length, flags: word }),
    write: writeAtp,
    read: readAtp,
    tells: carried,
  }),
  CREDIT: kind({
    fields: fc.record({ code: word, returnedBytes: length, windowBytes: length }),
    write: (to, { code, returnedBytes, windowBytes }) => writeCredit(to, code, returnedBytes, windowBytes),
    read: readCredit,
  }),
};

describe.each(Object.keys(MessageId) as (keyof typeof MessageId)[])('%s', (name) => {
  const { fields, write, read, tells } = KINDS[name];
  const headerBytes = HEADER_BYTES[MessageId[name]]!;

  property('is read as it is written', [word, fields, payload, place], (to, written, bytes, offset) => {
    const header = write(to, written);
    expect(header.byteLength).toBe(headerBytes);
    const frame = messageFrame(header, bytes, 'posix/memory', offset);
    expect(endpointOf(frame)).toBe(to);
    expect({ ...read(frame) }).toEqual({ ...written, ...tells?.(written, bytes, offset + headerBytes) });
    for (const payloadFrom of [payloadOf, payloadIn]) expect(payloadFrom(frame, headerBytes)).toEqual(orNothing(bytes));
  });

  property('has nothing of the one before it', [fields, fields], (first, second) => {
    const words = [...write(8, second)];
    write(7, first);
    expect([...write(8, second)]).toEqual(words);
  });
});

describe('blocks of a PUT or GET', () => {
  const block = fc.record({ remoteOffset: length, byteLength: length });
  const blocks = fc.array(block, { minLength: 1, maxLength: 20 });
  const key = fc.uint8Array({ minLength: 1, maxLength: 40 });

  property('are read as they are written', [word, blocks, key, place], (to, written, packed, offset) => {
    const header = writeRma(to, { request: 1, ...written[0]! });
    const frame = messageFrame(header, writeRmaBlocks(packed, written), 'posix/memory', offset);
    expect(readRmaBlocks(frame, readRma(frame), packed.byteLength)).toEqual(written);
  });

  property(
    'are refused if they are cut, or the key is longer',
    [blocks, key, fc.nat({ max: 15 })],
    (written, packed, cut) => {
      const payload = writeRmaBlocks(packed, written);
      const frame = messageFrame(
        writeRma(1, { request: 1, ...written[0]! }),
        payload.subarray(0, payload.byteLength - cut),
        'posix/memory',
      );
      const isWhole = payload.byteLength - cut >= packed.byteLength && cut % 16 === 0;
      expect(readRmaBlocks(frame, readRma(frame), packed.byteLength) !== undefined).toBe(isWhole);
      expect(readRmaBlocks(frame, readRma(frame), payload.byteLength + 1)).toBeUndefined();
    },
  );
});

describe('layouts', () => {
  const far = 5 * 2 ** 32 + 6;
  it.each([
    [
      'WIREUP',
      () => writeWireup(1, { code: WireupCode.ATTACH, from: 2, number: 3, windowBytes: far }),
      [1, 2, 2, 3, 6, 5],
    ],
    ['TAG', () => writeTag(1, 2, 3, 4), [1, 2, 3, 4]],
    [
      'TAG_RTS',
      () => writeTagRts(1, { request: 2, tagLow: 3, tagHigh: 4, byteLength: far, keyOffset: 9 }),
      [1, 2, 3, 4, 6, 5, 9, 0],
    ],
    [
      'RTR',
      () => writeRtr(1, { request: 2, peerRequest: 3, targetBytes: 4, from: far, byteLength: 7, targetOffset: 8 }),
      [1, 2, 3, 4, 6, 5, 7, 0, 8, 0],
    ],
    ['DATA', () => writeData(1, 2, far), [1, 2, 6, 5]],
    ['REPLY', () => writeReply(1, { request: 2, status: Status.CANCELED, low: 3, high: 4 }), [1, 2, -16, 0, 3, 4]],
    ['AM', () => writeAm(1, 2, 3), [1, 2, 3, 0]],
    [
      'AM_RTS',
      () => writeAmRts(1, { handler: 2, headerBytes: 3, keyBytes: 4, byteLength: far, request: 7, keyOffset: 8 }),
      [1, 2, 3, 4, 6, 5, 7, 0, 8, 0],
    ],
    ['STREAM', () => writeStream(1, STREAM_ASKED), [1, 1]],
    ['PUT', () => writeRma(1, { request: 2, remoteOffset: far, byteLength: 3 }), [1, 2, 6, 5, 3, 0]],
    ['GET_READY', () => writeGetReady(1, { request: 2, peerRequest: 3, status: Status.OK }), [1, 2, 3, 0]],
    [
      'ATOMIC',
      () =>
        writeAtomic(1, {
          request: 2,
          remoteOffset: far,
          operation: 3,
          wordBytes: 8,
          value: 2n ** 64n - 2n,
          compare: 4n,
        }),
      [1, 2, 6, 5, 3, 8, -2, -1, 4, 0],
    ],
    ['CLOSE', () => writeClose(1), [1, 0]],
    [
      'ATP',
      () => writeAtp(1, { request: 2, from: far, byteLength: 3, flags: ATP_IN_TARGET }),
      [1, 2, 6, 5, 3, 0, 1, 0],
    ],
    ['CREDIT', () => writeCredit(1, CreditCode.HELD, far, 3), [1, 1, 6, 5, 3, 0]],
  ] as const)('of %s does not change', (_name, write, words) => {
    expect([...write()]).toEqual(words);
  });

  it('have ids in a row', () => {
    expect(Object.values(MessageId)).toEqual(Array.from(HEADER_BYTES, (_, id) => id));
  });
});

property('a word that is not a final status is read as IO_ERROR', [word], (value) => {
  const isEnding = value <= Status.OK && value >= Status.ENDPOINT_TIMEOUT;
  expect(endingOf(value)).toBe(isEnding ? value : Status.IO_ERROR);
});
