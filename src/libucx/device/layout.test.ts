/** Messages about memory of cards: packed messages are parsed, and no received bytes cause an exception. Their fields are tested with api/layout. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MessageId } from '../../api/layout/message.ts';
import { readReply, writeData, writeReply } from '../../api/layout/rendezvous.ts';
import { readAtomic, readRma, writeAtomic, writeRma } from '../../api/layout/rma.ts';
import { Status } from '../../ucs/type/status.ts';
import { firstWord, packMessage, parseMessage } from './layout.ts';

const word = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const length = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const big = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const rma = fc.record({ request: word, remoteOffset: length, byteLength: length });
const atomic = fc.record({
  request: word,
  remoteOffset: length,
  operation: fc.nat({ max: 9 }),
  wordBytes: fc.constantFrom(4, 8),
  value: big,
  compare: big,
});

describe('messages about memory of cards', () => {
  it('are parsed as they were packed', async () => {
    await fc.assert(
      fc.asyncProperty(rma, atomic, length, async (transfer, call, exportId) => {
        for (const id of [MessageId.PUT, MessageId.GET]) {
          const message = parseMessage(packMessage(writeRma(firstWord(id), transfer), exportId))!;
          expect(message).toMatchObject({ id, exportId });
          expect(readRma(message.frame)).toMatchObject(transfer);
        }
        const question = parseMessage(packMessage(writeAtomic(firstWord(MessageId.ATOMIC), call), exportId))!;
        expect(readAtomic(question.frame)).toMatchObject(call);
        expect(question.exportId).toBe(exportId);
        const ended = { request: call.request, status: Status.OK as Status, low: 1, high: 2 };
        const reply = parseMessage(packMessage(writeReply(firstWord(MessageId.REPLY), ended)))!;
        expect([reply.exportId, readReply(reply.frame)]).toEqual([undefined, { ...ended, carrier: undefined }]);
        expect(parseMessage(packMessage(writeData(firstWord(MessageId.DATA), call.request, 0)))!.id).toBe(
          MessageId.DATA,
        );
      }),
    );
  });

  it('of other programs, versions, ids and lengths are rejected', async () => {
    const question = packMessage(writeRma(firstWord(MessageId.GET), { request: 1, remoteOffset: 2, byteLength: 3 }), 4);
    const other = (id: number): Uint8Array => packMessage(new Int32Array([firstWord(id), 0, 0, 0]));
    expect([other(MessageId.WIREUP), other(MessageId.RTR), other(255)].map(parseMessage)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    for (let at = 0; at < 4; at++) {
      const changed = question.slice();
      changed[at]! ^= 0x40;
      expect(parseMessage(changed)).toBeUndefined();
    }
    for (let bytes = 0; bytes < question.byteLength; bytes++)
      expect(parseMessage(question.subarray(0, bytes))).toBeUndefined();
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 100 }), async (bytes) => {
        expect(parseMessage(bytes)).toBeUndefined();
      }),
    );
  });
});
