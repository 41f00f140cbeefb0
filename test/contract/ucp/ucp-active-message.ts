/**
 * Active messages over every kind of connection: headers, eager and rendezvous data from and into all kinds of memory, replies, retained, delayed
 * and dropped messages, handlers that send, loops over messages.
 */

import { describe, expect, it } from 'vitest';
import {
  AM_HEADER_BYTES_MAX,
  AM_IDS,
  type AmMessage,
  type AmSendParams,
  type IovPiece,
  type Request,
  Status,
} from '../../../src/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { eagerData } from '../../fixtures/messages/eager-data.ts';
import {
  type ConnectionKind,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  memoryKinds,
  memoryOf,
  type Pair,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const HEADERS = [0, 1, 7, 8, 9, 100, 4095, AM_HEADER_BYTES_MAX];
/** Sizes around a frame of posix (112 bytes, of which 16 are the header), a segment (8256) and a fragment (512 KiB). */
const SIZES = [0, 1, 8, 95, 96, 97, 4144, 8239, 8240, 8241, 65_536, 524_287, 524_289, 2_000_003];
const GAUDI_SIZES = [1, 8, 97, 8241, 524_288, 1_100_003];
const OFFSET = 5;
const MARGIN = 32;
const ID = 77;

type Message = AmMessage;

/** What a handler has received. */
interface Seen {
  readonly header: Uint8Array;
  readonly data: Uint8Array | undefined;
  readonly byteLength: number;
}

function asRequest(result: Status | Request): Request {
  if (typeof result === 'number') expect.fail(`the operation ended at once with ${result}`);
  return result;
}

/** Drives until a send has ended, and frees its request. */
async function settled(pair: Pair, result: Status | Request): Promise<Status> {
  if (typeof result === 'number') return result;
  await driveUntil(pair, () => result.isCompleted);
  const { status } = result;
  result.free();
  return status;
}

/** Declares the tests of active messages over a kind of connection. */
export function activeMessageContract(kind: ConnectionKind): void {
  describe(`active messages over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const kinds = memoryKinds(kind);

    it.each(['eager', 'rendezvous'] as const)('carry headers of every length with %s data', async (protocol) => {
      const pair = await fixture.pair(kind);
      const seen: Seen[] = [];
      const kept: Message[] = [];
      pair.two.worker.setAmHandler(ID, (message) => {
        expect(message.isRendezvous).toBe(protocol === 'rendezvous');
        const { byteLength } = message;
        seen.push({
          header: message.header.slice(),
          data: message.isRendezvous ? undefined : message.data.slice(),
          byteLength,
        });
        if (message.isRendezvous) kept.push(message.retain());
      });
      for (const [i, headerLength] of HEADERS.entries()) {
        const header = pattern(headerLength, i);
        const sent = header.slice();
        const data = pattern(40 + i, i + 100);
        const send = pair.ab.amSendNbx(ID, sent, data, 1, 39 + i, { protocol });
        // Headers are copied.
        sent.fill(0);
        await driveUntil(pair, () => seen.length > i);
        expectSame(seen[i]!.header, header, `header of ${headerLength} bytes`);
        expect(seen[i]!.byteLength).toBe(39 + i);
        if (protocol === 'eager') expectSame(seen[i]!.data!, data.subarray(1));
        else {
          expect(seen[i]!.data).toBeUndefined();
          expectSame(kept[i]!.header, header, 'header of a message that was kept');
          const target = new Uint8Array(39 + i);
          expect(await serving(pair, () => kept[i]!.into(target))).toBe(39 + i);
          expectSame(target, data.subarray(1));
        }
        expect(await settled(pair, send)).toBe(Status.OK);
      }
      expect(() => pair.ab.amSendNbx(ID, new Uint8Array(4097), new Uint8Array(0), 0, 0)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
      );
    });

    /** Sends one message and receives its data into memory of the receiver. */
    const exchange = async (
      pair: Pair,
      [from, to]: readonly [(typeof kinds)[number], (typeof kinds)[number]],
      byteLength: number,
      params: AmSendParams,
    ): Promise<void> => {
      const { one, two, ab } = pair;
      const [source, target] = [memoryOf(one, from, byteLength + MARGIN), memoryOf(two, to, byteLength + MARGIN)];
      const sent = pattern(byteLength + MARGIN, byteLength);
      const after = pattern(byteLength + MARGIN, byteLength + 1);
      await fill(one, source, sent);
      await fill(two, target, after);
      const what = `${from} to ${to}, ${byteLength} bytes, ${params.protocol ?? 'any'}`;
      let receive: Status | Request | undefined;
      const header = pattern(13, byteLength);
      two.worker.setAmHandler(ID, (message) => {
        expectSame(message.header, header, `header of ${what}`);
        expect(message.byteLength).toBe(byteLength);
        // The sender of an empty message does not wait.
        if (params.protocol !== undefined && byteLength > 0)
          expect(message.isRendezvous).toBe(params.protocol === 'rendezvous');
        receive = message.receiveNbx(target, OFFSET, byteLength + 1, { noImmediateCompletion: true });
      });
      const send = ab.amSendNbx(ID, header, source, OFFSET + 1, byteLength, { ...params, noImmediateCompletion: true });
      await driveUntil(pair, () => receive !== undefined);
      const request = asRequest(receive!);
      await driveUntil(pair, () => request.isCompleted);
      expect([what, request.status, request.receivedBytes]).toEqual([what, Status.OK, byteLength]);
      request.free();
      expect([what, await settled(pair, send)]).toEqual([what, Status.OK]);
      after.set(sent.subarray(OFFSET + 1, OFFSET + 1 + byteLength), OFFSET);
      await expectContents(two, target, after, what);
      await expectContents(one, source, sent, `source of ${what}`);
      unmap(one, source);
      unmap(two, target);
    };

    describe.each(kinds)('from %s', (from) => {
      it.each(kinds)('to %s: every size, by every protocol', async (to) => {
        const pair = await fixture.pair(kind);
        const sizes = from === 'bytes' && to === 'bytes' ? SIZES : GAUDI_SIZES;
        for (const byteLength of sizes) {
          await exchange(pair, [from, to], byteLength, {});
          await exchange(pair, [from, to], byteLength, { protocol: 'rendezvous' });
          if (byteLength <= 4000 && from !== 'gaudi')
            await exchange(pair, [from, to], byteLength, { protocol: 'eager' });
        }
        expect(pair.one.worker.requestsInUse + pair.two.worker.requestsInUse).toBe(0);
      });
    });

    it('are answered through the endpoint of the message, by handlers that send', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const ROUNDS = 500;
      const answers: number[] = [];
      const wrong: string[] = [];
      two.worker.setAmHandler(1, (message) => {
        const answer = message.header.map((byte) => byte ^ 0xff);
        const data = eagerData(message).slice();
        const sent = message.replyEndpoint.amSendNbx(2, answer, data, 0, data.byteLength, {
          callback: (request) => request.free(),
        });
        if (typeof sent === 'number' && sent !== Status.OK) wrong.push(`answer ${sent}`);
      });
      one.worker.setAmHandler(2, (message) => {
        const number = new DataView(message.header.map((byte) => byte ^ 0xff).buffer).getUint32(0, true);
        answers.push(number);
        if (Buffer.compare(eagerData(message), pattern(number % 150, number)) !== 0) wrong.push(`data of ${number}`);
      });
      for (let i = 0; i < ROUNDS; i++) {
        const header = new Uint8Array(Uint32Array.of(i).buffer);
        const result = ab.amSendNbx(1, header, pattern(i % 150, i), 0, i % 150, {
          callback: (request) => request.free(),
        });
        expect(typeof result === 'number' ? result : Status.OK).toBe(Status.OK);
      }
      await driveUntil(pair, () => answers.length + wrong.length >= ROUNDS);
      expect(wrong).toEqual([]);
      // In order.
      expect(answers).toEqual(answers.map((_, i) => i));
    });

    it('belong to the next message after the handler', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      for (const size of [8, 500_000]) {
        let late: Message | undefined;
        two.worker.setAmHandler(ID, (message) => {
          late = message;
        });
        await serving(pair, () => ab.amSend(ID, pattern(size, 1), { header: pattern(4, 2) }));
        await driveUntil(pair, () => late !== undefined);
        const target = new Uint8Array(size);
        const calls = [
          () => late!.header,
          () => Reflect.get(late!, 'data'),
          () => late!.replyEndpoint,
          () => late!.retain(),
          () => late!.receiveNbx(target, 0, size),
          () => late!.bytes(),
          () => late!.into(target),
        ];
        const refused = { code: 'ERR_INVALID_PARAM', details: { argument: 'message' } };
        for (const call of calls) expect(await failureOf(call)).toMatchObject(refused);
      }
      two.worker.setAmHandler(ID, undefined);
    });

    it('can be retained beyond the handler, eager ones with their data', async () => {
      const pair = await fixture.pair(kind);
      const kept: Message[] = [];
      const given: Message[] = [];
      pair.two.worker.setAmHandler(ID, (message) => {
        given.push(message);
        kept.push(message.retain());
      });
      const headers = [1, 2, 3].map((seed) => pattern(seed * 10, seed));
      const datas = [1, 2, 3].map((seed) => pattern(seed * 1000, seed));
      for (const i of [0, 1, 2]) await pair.ab.amSend(ID, datas[i]!, { header: headers[i]! });
      await driveUntil(pair, () => kept.length === 3);
      for (const [i, message] of kept.entries()) {
        expectSame(message.header, headers[i]!);
        expectSame(eagerData(message), datas[i]!);
        const copy = new Uint8Array(2999 + 1);
        expect(await message.into(copy)).toBe(datas[i]!.byteLength);
        expectSame(copy.subarray(0, datas[i]!.byteLength), datas[i]!);
        expect(() => message.receiveNbx(copy, 0, 3000)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
        message.release();
        message.release();
      }
    });

    it('release the sender if their data is not received', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const memories = kinds.map((memory) => memoryOf(pair.one, memory, 300_000));
      const kept: Message[] = [];
      for (const memory of memories) {
        // No handler at all, a handler that ignores it, and one that retains it and releases it later.
        two.worker.setAmHandler(ID, undefined);
        await serving(pair, () => ab.amSend(ID, memory));
        two.worker.setAmHandler(ID, () => undefined);
        await serving(pair, () => ab.amSend(ID, memory));
        two.worker.setAmHandler(ID, (message) => kept.push(message.retain()));
        // By default the engine decides which messages wait for their receiver.
        const send = asRequest(ab.amSendNbx(ID, undefined, memory, 0, 300_000, { protocol: 'rendezvous' }));
        await driveUntil(pair, () => kept.length > 0);
        await driveIdle(pair, 300);
        expect(send.isCompleted).toBe(false);
        kept.pop()!.release();
        expect(await settled(pair, send)).toBe(Status.OK);
      }
      unmap(pair.one, ...memories);
    });

    it('refuse memory that is too short, without a byte written', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      for (const byteLength of [50, 200_000]) {
        const kept: Message[] = [];
        two.worker.setAmHandler(ID, (message) => kept.push(message.retain()));
        const send = ab.amSendNbx(ID, undefined, pattern(byteLength, 1), 0, byteLength);
        await driveUntil(pair, () => kept.length > 0);
        const target = new Uint8Array(byteLength + MARGIN).fill(7);
        expect(() => kept[0]!.receiveNbx(target, 0, byteLength - 1)).toThrow(
          expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
        );
        expectSame(target, new Uint8Array(byteLength + MARGIN).fill(7));
        kept[0]!.release();
        expect(await settled(pair, send)).toBe(Status.OK);
      }
    });

    it('carry lists of pieces, and are received into lists', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      for (const lengths of [
        [3, 0, 20],
        [600_000, 1, 90_001],
      ]) {
        const total = lengths.reduce((sum, length) => sum + length, 0);
        const message = pattern(total, total);
        const sources: IovPiece[] = [];
        for (const [i, byteLength] of lengths.entries()) {
          const memory = memoryOf(one, kinds.at(-1 - i)!, byteLength + 3);
          const start = lengths.slice(0, i).reduce((sum, length) => sum + length, 0);
          const bytes = new Uint8Array(byteLength + 3);
          bytes.set(message.subarray(start, start + byteLength), 2);
          await fill(one, memory, bytes);
          sources.push({ memory, offset: 2, byteLength });
        }
        const halves = [memoryOf(two, kinds.at(-1)!, 11), memoryOf(two, 'bytes', total)];
        // The end of a send does not imply the arrival of the message.
        const arrived = new Promise<number>((resolve) => {
          two.worker.setAmHandler(ID, (active) => {
            resolve(active.retain().into([{ memory: halves[0]! }, { memory: halves[1]!, byteLength: total - 11 }]));
          });
        });
        const received = await serving(pair, async () => {
          await ab.amSend(ID, sources, { header: Uint8Array.of(1) });
          return arrived;
        });
        expect(received).toBe(total);
        await expectContents(two, halves[0]!, message.subarray(0, 11));
        expectSame((halves[1] as Uint8Array).subarray(0, total - 11), message.subarray(11));
        unmap(one, ...sources.map(({ memory }) => memory));
        unmap(two, ...halves);
      }
    });

    it('are read completely by a loop, whatever their length', async () => {
      const pair = await fixture.pair(kind);
      await using messages = pair.two.worker.messages(ID);
      const lines = ['', 'a short line', 'é'.repeat(150_000)];
      for (const line of lines) {
        const sent = pair.ab.amSend(ID, Buffer.from(line));
        const { value } = await serving(pair, () => messages.next());
        expect(await serving(pair, () => value!.text())).toBe(line);
        await expect(value!.bytes()).rejects.toMatchObject({ code: 'ERR_INVALID_PARAM' });
        await serving(pair, () => sent);
      }
      for (const byteLength of [3, 300_000]) {
        const bytes = pattern(byteLength, byteLength);
        const [first, second] = [pair.ab.amSend(ID, bytes), pair.ab.amSend(ID, bytes)];
        const taken = await serving(pair, () => messages.next());
        expectSame(await serving(pair, () => taken.value!.bytes()), bytes);
        const target = memoryOf(pair.two, kinds.at(-1)!, byteLength);
        const kept = await serving(pair, () => messages.next());
        await expect(kept.value!.into(new Uint8Array(byteLength - 1))).rejects.toMatchObject({
          code: 'ERR_INVALID_PARAM',
        });
        expect(await serving(pair, () => kept.value!.into(target))).toBe(byteLength);
        await expectContents(pair.two, target, bytes);
        unmap(pair.two, target);
        await serving(pair, () => Promise.all([first, second]));
      }
    });

    it('are read completely by a handler of either kind', async () => {
      const pair = await fixture.pair(kind);
      const texts: Promise<string>[] = [];
      pair.two.worker.setAmHandler(ID, (message) => texts.push(message.text()));
      const lines = ['one', 'two '.repeat(100_000), 'three'];
      await serving(pair, () => Promise.all(lines.map((line) => pair.ab.amSend(ID, Buffer.from(line)))));
      await driveUntil(pair, () => texts.length === lines.length);
      expect(await serving(pair, () => Promise.all(texts))).toEqual(lines);
      pair.two.worker.setAmHandler(ID, undefined);
    });

    it('have no data property for a rendezvous, which throws in programs without types', async () => {
      const pair = await fixture.pair(kind);
      await using messages = pair.two.worker.messages(ID);
      const sent = pair.ab.amSend(ID, pattern(100, 1), { protocol: 'rendezvous' });
      const { value } = await serving(pair, () => messages.next());
      expect(value!.isRendezvous).toBe(true);
      // @ts-expect-error the type of a message that may be long has no data
      expect(() => value!.data).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('bytes()') }),
      );
      value!.release();
      await serving(pair, () => sent);
    });

    it('are queued while a loop is busy, and the loop ends by break or signal', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const loop = two.worker.messages(ID);
      const first = loop.next();
      const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
      expect(() => two.worker.messages(ID)).toThrow(invalid);
      for (const number of [1, 2, 3]) await ab.amSend(ID, Uint8Array.of(number));
      const numbers = [eagerData((await first).value!)[0]];
      for await (const message of loop) {
        numbers.push(eagerData(message)[0]);
        if (numbers.length === 3) break;
      }
      expect(numbers).toEqual([1, 2, 3]);
      // Messages are dropped without a loop; then another loop starts.
      const abort = new AbortController();
      const again = two.worker.messages(ID, { signal: abort.signal });
      const waiting = again.next();
      await ab.amSend(ID, Uint8Array.of(9));
      expect(eagerData((await waiting).value!)).toEqual(Uint8Array.of(9));
      const last = again.next();
      abort.abort();
      await expect(last).rejects.toMatchObject({ name: 'AbortError' });
      await expect(two.worker.messages(ID, { signal: abort.signal }).next()).rejects.toMatchObject({
        name: 'AbortError',
      });
    });

    it('have ids of 16 bits', async () => {
      const pair = await fixture.pair(kind);
      const { two, ab } = pair;
      const seen: number[] = [];
      for (const id of [0, 1, 31, 32, 255, 256, AM_IDS - 1]) {
        two.worker.setAmHandler(id, (message) => seen.push(message.id));
        await ab.amSend(id, new Uint8Array(0));
        await driveUntil(pair, () => seen.length > 0);
        expect(seen.splice(0)).toEqual([id]);
        two.worker.setAmHandler(id, undefined);
      }
      const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
      for (const id of [-1, AM_IDS, 1.5, Number.NaN, '1' as unknown as number]) {
        expect(() => ab.amSendNbx(id, undefined, new Uint8Array(1), 0, 1)).toThrow(invalid);
        expect(() => two.worker.setAmHandler(id, () => undefined)).toThrow(invalid);
      }
      expect(() => two.worker.setAmHandler(1, 'handler' as unknown as () => void)).toThrow(invalid);
      expect(() => ab.amSendNbx(1, undefined, 'data' as unknown as Uint8Array, 0, 1)).toThrow(invalid);
      expect(pair.one.worker.requestsInUse).toBe(0);
    });

    it('cannot be sent at once where they fit into no message, or if the processor cannot access their data', async () => {
      const pair = await fixture.pair(kind);
      const long = [memoryOf(pair.one, 'bytes', 2 ** 20), ...(kind.hasGaudi ? [memoryOf(pair.one, 'gaudi', 8)] : [])];
      for (const memory of long) {
        expect(() => pair.ab.amSendNbx(1, undefined, memory, 0, memory.byteLength, { protocol: 'eager' })).toThrow(
          expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
        );
      }
      unmap(pair.one, ...long);
      expect(pair.one.worker.requestsInUse).toBe(0);
    });

    it('are refused with an invalid header', async () => {
      const pair = await fixture.pair(kind);
      for (const header of ['header', 7, [1, 2], new Float64Array(1)]) {
        expect(
          () => pair.ab.amSendNbx(1, header as unknown as Uint8Array, new Uint8Array(1), 0, 1),
          `header ${String(header)}`,
        ).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
      }
    });
  });
}
