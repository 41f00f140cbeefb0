/**
 * Callbacks and handlers of the application that break their rules, over every kind of connection: those that throw, and those that make progress. No message and
 * no request is lost by it, and no error is hidden.
 */

import { beforeEach, describe, expect, it } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import { type ConnectionKind, expectSame, type Pair, pattern, serving, usePairs } from '../../fixtures/pair.ts';

export const ID = 21;
const COUNT = 200;
/** Several to a read of a socket, a packed one, and one by rendezvous. */
const SIZES = [8, 3000, 200_000];
/** Every so many messages, a callback breaks its rules. */
const EVERY = 7;
export const KEEP = { noImmediateCompletion: true };

/** Drives both workers until `isDone`, and as long as progress throws; returns its errors. */
export async function drive({ one, two }: Pair, isDone: () => boolean): Promise<unknown[]> {
  const thrown: unknown[] = [];
  for (let turn = 1, known = -1; !isDone() || thrown.length > known; turn++) {
    known = thrown.length;
    for (const { worker } of [one, two]) {
      try {
        worker.progress();
      } catch (error) {
        thrown.push(error);
      }
    }
    // Errors that are left at the end of a job are uncaught exceptions.
    if (turn % 256 === 0 && thrown.length === known) await new Promise(setImmediate);
  }
  return thrown;
}

/** Sends the messages, each with its number as tag, or as header. */
function sendAll({ ab }: Pair, byteLength: number, kind: 'tag' | 'am'): readonly Request[] {
  return Array.from({ length: COUNT }, (_, i) => {
    const bytes = pattern(byteLength, i);
    const sent =
      kind === 'tag'
        ? ab.tagSendNbx(bytes, 0, byteLength, i, KEEP)
        : ab.amSendNbx(ID, Uint8Array.of(i), bytes, 0, byteLength, KEEP);
    return sent as Request;
  });
}

/** Fails unless all requests have ended well; frees them. */
export function expectOk(requests: readonly Request[]): void {
  for (const request of requests) {
    expect(request.status).toBe(Status.OK);
    request.free();
  }
}

const areOver = (requests: readonly Request[]): boolean => requests.every(({ isCompleted }) => isCompleted);

/** Declares the tests of callbacks over a kind of connection. */
export function callbackContract(kind: ConnectionKind): void {
  describe(`callbacks over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    let pair: Pair;

    beforeEach(async () => {
      pair = await fixture.pair(kind);
    });

    describe.each(SIZES)('of messages of %i bytes', (byteLength) => {
      it('of receives may throw: progress throws every error once, and all messages arrive', async () => {
        const wrong: number[] = [];
        const targets = Array.from({ length: COUNT }, () => new Uint8Array(byteLength));
        const receives = targets.map((target, i) => {
          const callback = (): void => {
            if (i % EVERY === 0) throw new Error(`receive ${i}`);
          };
          return pair.two.worker.tagRecvNbx(target, 0, byteLength, i, undefined, { ...KEEP, callback }) as Request;
        });
        const sends = sendAll(pair, byteLength, 'tag');
        const thrown = await drive(pair, () => areOver(receives) && areOver(sends));
        expectOk([...receives, ...sends]);
        for (const [i, target] of targets.entries()) {
          expectSame(target, pattern(byteLength, i), `message ${i}`);
          if (i % EVERY === 0) wrong.push(i);
        }
        expect(thrown.map((error) => (error as Error).message).sort()).toEqual(wrong.map((i) => `receive ${i}`).sort());
      });

      it('of active messages may throw, or make progress, which is refused: all messages arrive once, with their data', async () => {
        const { worker } = pair.two;
        const arrived: Uint8Array[] = Array.from({ length: COUNT });
        const receives: Request[] = [];
        const refused: unknown[] = [];
        worker.setAmHandler(ID, (message) => {
          const i = message.header[0]!;
          expect(arrived[i]).toBeUndefined();
          arrived[i] = new Uint8Array(byteLength);
          if (i % 2 === 0) {
            try {
              worker.progress();
            } catch (error) {
              refused.push(error);
            }
          }
          if (message.isRendezvous) receives.push(message.receiveNbx(arrived[i], 0, byteLength, KEEP) as Request);
          else arrived[i].set(message.data);
          if (i % EVERY === 0) throw new Error(`message ${i}`);
        });
        const sends = sendAll(pair, byteLength, 'am');
        const all = (): boolean => areOver(sends) && areOver(receives) && arrived.every((bytes) => bytes !== undefined);
        const thrown = await drive(pair, all);
        worker.setAmHandler(ID, undefined);
        expectOk([...sends, ...receives]);
        for (const [i, bytes] of arrived.entries()) expectSame(bytes, pattern(byteLength, i), `message ${i}`);
        expect(thrown).toHaveLength(Math.ceil(COUNT / EVERY));
        expect(refused).toHaveLength(COUNT / 2);
        for (const error of refused) expect(error).toMatchObject({ code: 'ERR_BUSY' });
      });
    });

    it('may await operations and close their endpoint: both go on when the callback has returned', async () => {
      const sent = pattern(200_000, 1);
      let received: Promise<Uint8Array> | undefined;
      let closed: Promise<void> | undefined;
      pair.two.worker.setAmHandler(ID, (message) => {
        received = message.bytes();
        closed = message.replyEndpoint.close();
      });
      const request = pair.ab.amSendNbx(ID, undefined, sent, 0, sent.length, KEEP) as Request;
      await drive(pair, () => closed !== undefined && request.isCompleted);
      expectOk([request]);
      expectSame(await received!, sent, 'the message');
      await serving(pair, () => closed!);
      pair.two.worker.setAmHandler(ID, undefined);
    });
  });
}
