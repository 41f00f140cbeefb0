/**
 * Buffers that are detached or shortened during an operation, over every kind of connection: the operation ends with INVALID_ADDR, its counterpart at
 * the peer
 * ends too, and the process, the workers and the connection stay usable.
 */

import { MessageChannel } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { type LocalMemory, type MemoryHandle, type Request, Status } from '../../../src/index.ts';
import { collectGarbage } from '../../fixtures/collect-garbage.ts';
import {
  type ConnectionKind,
  driveIdle,
  driveUntil,
  expectSame,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  type Side,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

/** The operation is a request even if it ends at once. */
const KEEP = { noImmediateCompletion: true };
/** Within a frame, in several frames, and by rendezvous. */
const SIZES = [64, 8000, 1_500_001];
const AM_ID = 7;
const TAG = 5n;

/** Node 20 has resizable ArrayBuffers (ES2024), but the library types of ES2023 do not. */
interface ResizableBuffer extends ArrayBuffer {
  resize(byteLength: number): void;
}
const Resizable = ArrayBuffer as unknown as new (
  byteLength: number,
  options: { maxByteLength: number },
) => ResizableBuffer;

/** How memory is lost: a function that creates it, and one that removes it. */
const WAYS: Readonly<
  Record<string, { make?: (byteLength: number) => ArrayBuffer; lose: (buffer: ArrayBuffer) => void }>
> = {
  structuredClone: { lose: (buffer) => structuredClone(buffer, { transfer: [buffer] }) },
  postMessage: {
    lose: (buffer) => {
      const { port1, port2 } = new MessageChannel();
      port1.postMessage(buffer, [buffer]);
      port1.close();
      port2.close();
    },
  },
  resize: {
    make: (byteLength) => new Resizable(byteLength, { maxByteLength: byteLength }),
    lose: (buffer) => (buffer as ResizableBuffer).resize(0),
  },
};

type Start = (local: LocalMemory, byteLength: number) => Request | Status;

/** Declares the tests of memory that is lost under operations over a kind of connection. */
export function lostMemoryContract(kind: ConnectionKind): void {
  describe(`memory that is lost under operations over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const remoteKinds = kind.hasGaudi
      ? (['allocated', 'registered', 'gaudi'] as const)
      : (['allocated', 'registered'] as const);

    /** A buffer with bytes, as such and mapped if possible. */
    function locals(side: Side, way: string, byteLength: number): [LocalMemory, Uint8Array][] {
      const make = WAYS[way]!.make;
      const fresh = (): Uint8Array => {
        const bytes = make === undefined ? new Uint8Array(byteLength) : new Uint8Array(make(byteLength));
        bytes.set(pattern(byteLength, 3));
        return bytes;
      };
      const plain = fresh();
      if (make !== undefined) return [[plain, plain]];
      const mapped = fresh();
      return [
        [plain, plain],
        [side.context.memMap({ buffer: mapped }), mapped],
      ];
    }

    /** Starts an operation, removes the memory, drives both sides to the end; OK is valid if the transport was faster. */
    async function lose(
      pair: Pair,
      way: string,
      [local, bytes]: [LocalMemory, Uint8Array],
      start: Start,
      then: () => void = () => undefined,
    ): Promise<Status> {
      let request: Request | Status;
      try {
        request = start(local, bytes.byteLength);
      } catch (error) {
        // Memory that can change its length cannot be pinned.
        expect([way, error]).toEqual(['resize', expect.objectContaining({ code: 'ERR_INVALID_PARAM' })]);
        return Status.INVALID_PARAM;
      }
      if (typeof request === 'number') expect.fail(`ended at once with ${request}`);
      const wasOpen = !request.isCompleted;
      const isLong = bytes.byteLength === SIZES.at(-1);
      WAYS[way]!.lose(bytes.buffer as ArrayBuffer);
      // Only if a card accesses the lost memory: a collection is slow.
      if (kind.hasGaudi && isLong) collectGarbage();
      then();
      await driveUntil(pair, () => request.isCompleted);
      const { status } = request;
      request.free();
      if (wasOpen) expect([way, bytes.byteLength, status]).toEqual([way, 0, Status.INVALID_ADDR]);
      else expect(status).toBe(Status.OK);
      return status;
    }

    /** Put and get, and a message of each kind in both directions: the connection still works. */
    async function expectAlive(pair: Pair): Promise<void> {
      const { one, two, ab } = pair;
      const sent = pattern(3000, 8);
      const target = new Uint8Array(3000);
      const receive = two.worker.tagRecvNbx(target, 0, 3000, 99n, undefined, KEEP) as Request;
      const send = ab.tagSendNbx(sent, 0, 3000, 99n, KEEP) as Request;
      await driveUntil(pair, () => send.isCompleted && receive.isCompleted);
      expect([send.status, receive.status, ab.status]).toEqual([Status.OK, Status.OK, Status.OK]);
      for (const request of [send, receive]) request.free();
      expectSame(target, sent);
      await driveUntil(pair, () => one.worker.requestsInUse + two.worker.requestsInUse === 0);
    }

    async function put(
      pair: Pair,
      way: string,
      size: number,
      remoteKind: 'allocated' | 'registered' | 'gaudi',
      isPut: boolean,
    ): Promise<void> {
      const { one, two, ab } = pair;
      const remote: MemoryHandle = mappedOf(two, remoteKind, size);
      const key = keyFor(ab, two, remote);
      for (const local of locals(one, way, size)) {
        await lose(pair, way, local, (memory, byteLength) =>
          isPut ? ab.putNbx(memory, 0, byteLength, key, 0, KEEP) : ab.getNbx(memory, 0, byteLength, key, 0, KEEP),
        );
        unmap(one, local[0]);
      }
      key.release();
      unmap(two, remote);
    }

    /** For a transport, the others do not differ. */
    const ways = ['loopback', 'tcp'].includes(kind.name) ? Object.keys(WAYS) : ['structuredClone'];

    describe.each(ways)('by %s', (way) => {
      it('ends put and get', async () => {
        const pair = await fixture.pair(kind);
        for (const size of SIZES) {
          for (const remoteKind of remoteKinds) {
            await put(pair, way, size, remoteKind, true);
            await put(pair, way, size, remoteKind, false);
          }
        }
        await expectAlive(pair);
      });

      it('ends sends and their receives', async () => {
        const pair = await fixture.pair(kind);
        for (const size of SIZES) {
          const { one, two, ab, ba } = pair;
          two.worker.setAmHandler(AM_ID, (message) => {
            const taken = message.receiveNbx(new Uint8Array(size), 0, size, KEEP) as Request;
            ends.push(taken);
          });
          const ends: Request[] = [];
          const sends: Start[] = [
            (memory, byteLength) => ab.tagSendNbx(memory, 0, byteLength, TAG, KEEP),
            (memory, byteLength) => ab.tagSendSyncNbx(memory, 0, byteLength, TAG, KEEP),
            (memory, byteLength) => ab.amSendNbx(AM_ID, undefined, memory, 0, byteLength, KEEP),
            (memory, byteLength) => ab.streamSendNbx(memory, 0, byteLength, KEEP),
          ];
          for (const [index, start] of sends.entries()) {
            for (const local of locals(one, way, size)) {
              let receive: Request | undefined;
              await lose(pair, way, local, start, () => {
                if (index < 2)
                  receive = two.worker.tagRecvNbx(new Uint8Array(size), 0, size, TAG, undefined, KEEP) as Request;
              });
              // A message that was not sent does not arrive: its receive waits for the next one.
              await driveIdle(pair, 300);
              if (receive?.isCompleted === false) receive.cancel();
              receive?.free();
              unmap(one, local[0]);
            }
          }
          await driveUntil(pair, () => ends.every(({ isCompleted }) => isCompleted));
          for (const request of ends) request.free();
          while (ba.streamRecvData() !== undefined);
          two.worker.setAmHandler(AM_ID, undefined);
        }
        await expectAlive(pair);
      });

      it('ends receives', async () => {
        const pair = await fixture.pair(kind);
        for (const size of SIZES) {
          const { two, ab, ba } = pair;
          const sent = pattern(size, 4);
          /** A pending receive, then a message for it; for an active message the receive of its handler. */
          const receives: ((memory: LocalMemory) => [Request | Status, Request])[] = [
            (memory) => {
              const receive = two.worker.tagRecvNbx(memory, 0, size, TAG, undefined, KEEP);
              return [receive, ab.tagSendNbx(sent, 0, size, TAG, KEEP) as Request];
            },
            (memory) => {
              const receive = ba.streamRecvNbx(memory, 0, size, { ...KEEP, waitAll: true });
              return [receive, ab.streamSendNbx(sent, 0, size, KEEP) as Request];
            },
          ];
          for (const receive of receives) {
            for (const local of locals(two, way, size)) {
              let send: Request | undefined;
              await lose(pair, way, local, (memory) => {
                const [waiting, sending] = receive(memory);
                send = sending;
                return waiting;
              });
              await driveUntil(pair, () => send!.isCompleted);
              send!.free();
              await driveIdle(pair, 300);
              while (ba.streamRecvData() !== undefined);
              unmap(two, local[0]);
            }
          }
        }
        await expectAlive(pair);
      });

      it('ends receives of a handler', async () => {
        const size = SIZES.at(-1)!;
        const pair = await fixture.pair(kind);
        const { two, ab } = pair;
        for (const [local, bytes] of locals(two, way, size)) {
          let receive: Request | undefined;
          let expected: Status = Status.INVALID_ADDR;
          two.worker.setAmHandler(AM_ID, (message) => {
            receive = message.receiveNbx(local, 0, size, KEEP) as Request;
            // Memory that can change its length cannot be pinned: if it would have to be, the receive has failed already.
            if (receive.isCompleted) expected = way === 'resize' ? receive.status : Status.OK;
            WAYS[way]!.lose(bytes.buffer as ArrayBuffer);
          });
          const send = ab.amSendNbx(AM_ID, undefined, pattern(size, 4), 0, size, KEEP) as Request;
          await driveUntil(pair, () => send.isCompleted && receive?.isCompleted === true);
          expect(receive!.status).toBe(expected);
          for (const request of [send, receive!]) request.free();
          unmap(two, local);
        }
        two.worker.setAmHandler(AM_ID, undefined);
        await expectAlive(pair);
      });
    });
  });
}

/** Declares the tests of resizable buffers over a kind of connection. */
export function resizableBufferContract(kind: ConnectionKind): void {
  describe(`a resizable ArrayBuffer over '${kind.name}'`, () => {
    const fixture = usePairs(kind);
    const resizable = (bytes: Uint8Array): Uint8Array => {
      const { byteLength } = bytes;
      const copy = new Uint8Array(new Resizable(byteLength, { maxByteLength: 2 * byteLength }));
      copy.set(bytes);
      return copy;
    };

    it.each(['auto', 'get_zcopy', 'put_zcopy'])(
      'is sent and received, in messages of any length: %s',
      async (scheme) => {
        const pair = await fixture.pair(kind, { UCX_RNDV_SCHEME: scheme });
        await serving(pair, async () => {
          for (const size of SIZES) {
            const source = pattern(size, 3);
            for (const [from, to] of [
              [resizable(source), new Uint8Array(size)],
              [source, resizable(new Uint8Array(size))],
            ] as const) {
              await Promise.all([pair.ab.tagSend(from, { tag: TAG }), pair.two.worker.tagRecv(to, { tag: TAG })]);
              expectSame(to, source);
            }
          }
        });
      },
    );
  });
}
