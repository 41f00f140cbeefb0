/**
 * The end of connections over encrypted tcp: either end closes, in order or by force, or a peer is killed. The other end is notified, and no
 * operation hangs.
 */

import { describe, expect, it } from 'vitest';
import { Status } from '../../../src/index.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';
import { ConnectedProcesses, connect, ENCRYPTED, moveAll } from '../../fixtures/processes/process-ends.ts';
import { type End, type EndAnswer, type EndOperation, OwnEnd } from '../../fixtures/ucp-end.ts';

const BYTES = 2 ** 20;
const GONE = Status.CONNECTION_RESET;
/** Time in which each operation has ended twice; otherwise the test names those that have not. */
const REPEAT_MS = 40_000;

/** The errors that the endpoints of an end have reported. */
async function errorsOf(end: End): Promise<readonly Status[]> {
  return (await end.tell({ do: 'failures' })).errors!;
}

describe('an encrypted connection', { timeout: 60_000 }, () => {
  expectNoLeaks();
  const processes = new ConnectedProcesses(ENCRYPTED);

  it.each([
    ['in order', false],
    ['by force', true],
  ] as const)('that either end closes %s ends what the other has begun, and is made again', async (_, force) => {
    await processes.inBothDirections(async (closing, other, again) => {
      const local = { name: 'memory', offset: 0, byteLength: 300_000 };
      const short = { ...local, byteLength: 8 };
      await closing.tell({ do: 'map', kind: 'bytes', seed: 1, ...local });
      await other.tell({ do: 'map', kind: 'bytes', seed: 2, ...local });
      const before = [await errorsOf(closing), await errorsOf(other)];
      const begun = [
        other.tell({ do: 'streamRecv', local }),
        // Before the operations that are awaited: it has arrived when they have.
        other.tell({ do: 'amSend', local, header: new Uint8Array(1), protocol: 'rendezvous' }),
        other.tell({ do: 'tagSendSync', local: short, tag: 50 }),
        other.tell({ do: 'tagSend', local, tag: 51 }),
      ];
      // Without force, an end waits for its own operations.
      const own = force
        ? [closing.tell({ do: 'streamRecv', local }), closing.tell({ do: 'tagSend', local, tag: 52 })]
        : [];
      for (const tag of [50, 51]) await closing.tell({ do: 'tagProbe', tag, remove: false });
      await closing.tell({ do: 'close', force });
      expect((await Promise.all(begun)).map(({ status }) => status)).toEqual(begun.map(() => GONE));
      expect((await Promise.all(own)).map(({ status }) => status)).toEqual(own.map(() => Status.CANCELED));
      expect([await errorsOf(closing), await errorsOf(other)]).toEqual([before[0], [...before[1]!, GONE]]);
      expect((await other.tell({ do: 'tagSend', local, tag: 1 })).status).toBe(GONE);
      // The short message has arrived; the long ones were cancelled by the close.
      expect((await closing.tell({ do: 'tagRecv', local, tag: 51 })).status).toBe(Status.CANCELED);
      expect((await closing.tell({ do: 'amRecv', local })).status).toBe(Status.CANCELED);
      expect(await closing.tell({ do: 'tagRecv', local, tag: 50 })).toMatchObject({ status: Status.OK, byteLength: 8 });
      await other.tell({ do: 'close', force: false });
      const expected = pattern(local.byteLength, 1);
      expected.set(pattern(8, 2));
      expectSame((await closing.tell({ do: 'read', name: local.name })).bytes!, expected, 'memory of who closed');
      expectSame((await other.tell({ do: 'read', name: local.name })).bytes!, pattern(local.byteLength, 2));
      for (const end of [closing, other]) await end.tell({ do: 'unmap', name: local.name });
      await again();
      await moveAll(closing, other, ['bytes', 'registered'], 9000);
    });
  });

  it('whose peer is killed ends everything in flight', async () => {
    await processes.open(async (context, worker, peer) => {
      const own = new OwnEnd(context, worker);
      await connect({ own, peer }, worker);
      const rounds = new Map<string, number>();
      /** Repeats an operation until it fails, and returns the status. */
      const repeat = async (name: string, run: () => Promise<EndAnswer>): Promise<readonly [string, Status]> => {
        for (let round = 0; ; round++) {
          rounds.set(name, round);
          const { status } = await run();
          if (status !== Status.OK) return [name, status];
        }
      };
      /** The operations of the peer until it is killed. */
      const there = (operation: EndOperation): void => void peer.tell(operation).catch(() => undefined);
      const header = new Uint8Array(1);
      const operations: Promise<readonly [string, Status]>[] = [];
      for (const kind of ['registered', 'gaudi'] as const) {
        const local = { name: kind, offset: 0, byteLength: BYTES };
        const key = (await peer.tell({ do: 'map', kind, seed: 1, ...local })).key!;
        await own.tell({ do: 'map', kind, seed: 2, ...local });
        const tag = kind === 'gaudi' ? 8 : 9;
        const loops: Readonly<Record<string, () => Promise<EndAnswer>>> = {
          put: () => own.tell({ do: 'put', local, key, remoteOffset: 0 }),
          get: () => own.tell({ do: 'get', local, key, remoteOffset: 0 }),
          'tag send': () => {
            there({ do: 'tagRecv', local, tag });
            return own.tell({ do: 'tagSend', local, tag });
          },
          'am send': () => {
            there({ do: 'amRecv', local });
            return own.tell({ do: 'amSend', local, header, protocol: 'rendezvous' });
          },
          'stream receive': () => {
            there({ do: 'streamSend', local });
            return own.tell({ do: 'streamRecv', local });
          },
        };
        for (const [name, run] of Object.entries(loops)) operations.push(repeat(`${name}, ${kind}`, run));
      }
      const endMs = performance.now() + REPEAT_MS;
      while ([...rounds.values()].some((count) => count < 2)) {
        if (performance.now() > endMs) {
          const counters = JSON.stringify(worker.stats(), (_, value) =>
            typeof value === 'bigint' ? `${value}` : value,
          );
          expect.fail(`not twice in ${REPEAT_MS} ms: ${JSON.stringify([...rounds])} ${counters}`);
        }
        await new Promise(setImmediate);
      }
      // The other end does not receive this one.
      operations.push(
        repeat('tag sync', () =>
          own.tell({ do: 'tagSendSync', local: { name: 'registered', offset: 0, byteLength: 8 }, tag: 70 }),
        ),
      );
      await peer.kill();
      const ended = await Promise.all(operations);
      expect(ended).toEqual(ended.map(([name]) => [name, GONE]));
      expect(await errorsOf(own)).toEqual([GONE]);
      expect((await own.tell({ do: 'flush' })).status).toBe(GONE);
      await own.tell({ do: 'close', force: false });
      await own.end();
      expect(worker.requestsInUse).toBe(0);
    });
  });

  it('that is not established yet ends everything when the peer is killed', async () => {
    await processes.open(async (context, worker, peer) => {
      const own = new OwnEnd(context, worker);
      const local = { name: 'memory', offset: 0, byteLength: 300_000 };
      await own.tell({ do: 'map', kind: 'bytes', seed: 1, ...local });
      // A stopped process accepts nothing; the kernel connects, and the key exchange waits.
      peer.signal('SIGSTOP');
      await own.tell({ do: 'open', address: peer.address });
      const begun = [
        own.tell({ do: 'tagSend', local, tag: 1 }),
        own.tell({ do: 'streamRecv', local }),
        own.tell({ do: 'amSend', local: { ...local, byteLength: 8 }, header: new Uint8Array(1), protocol: 'eager' }),
      ];
      await peer.kill();
      for (const { status } of await Promise.all(begun)) expect([GONE, Status.UNREACHABLE]).toContain(status);
      expect(await errorsOf(own)).toHaveLength(1);
      await own.tell({ do: 'close', force: false });
      await own.end();
      expect(worker.requestsInUse).toBe(0);
    });
  });
});
