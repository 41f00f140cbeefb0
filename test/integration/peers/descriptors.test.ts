/** A process without descriptors: it sleeps as before, and failures report the shortage and not a failure of a peer. */

import { describe, expect, it } from 'vitest';
import { type Endpoint, MemoryType, type Request, Status } from '../../../src/index.ts';
import {
  Errno,
  hasEnded,
  isProcessAlive,
  isSyscallError,
  ownIdentity,
  processStartTime,
} from '../../../src/sys/index.ts';
import { Segment, scavenge } from '../../../src/uct/base/key/segment.ts';
import { openCma, openPosix } from '../../contract/uct/uct-implementations.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import {
  connectionKind,
  expectContents,
  expectSame,
  type Pair,
  pattern,
  type Side,
  usePairs,
} from '../../fixtures/pair.ts';
import { withoutDescriptors } from '../../fixtures/processes/no-descriptors.ts';
import { createTestLog } from '../../fixtures/test-log.ts';

const fixture = usePairs();
/** Lets a worker begin to sleep, after its polling time. */
const FALL_ASLEEP_TURNS = 50;

/** A pair that has allocated the resources of its messages. */
async function connected(name: string): Promise<Pair> {
  const pair = await fixture.pair(connectionKind(name));
  await Promise.all([pair.ab.tagSend(new Uint8Array(8)), pair.two.worker.tagRecv(new Uint8Array(8))]);
  return pair;
}

/** A message that needs both halves of the connection. */
async function expectLongMessage(endpoint: Endpoint, { worker }: Side): Promise<void> {
  const bytes = pattern(100_000, 9);
  const target = new Uint8Array(bytes.byteLength);
  await Promise.all([endpoint.tagSend(bytes, { tag: 5 }), worker.tagRecv(target, { tag: 5 })]);
  expectSame(target, bytes);
}

/** Far more calls of progress than a retry takes. */
const TURNS_MAX = 1_000_000;

describe('a worker of a process without descriptors', () => {
  it.each(['posix', 'cma and posix', 'tcp', 'staging, tcp', 'all transports'])(
    'sleeps, and wakes for a message, over %s',
    async (name) => {
      const { ab, two } = await connected(name);
      const target = new Uint8Array(64);
      await withoutDescriptors(async () => {
        const receiving = two.worker.tagRecv(target, { tag: 3 });
        for (let turn = 0; turn < FALL_ASLEEP_TURNS; turn++) await new Promise(setImmediate);
        await ab.tagSend(pattern(64, 5), { tag: 3 });
        expect(await receiving).toMatchObject({ byteLength: 64 });
      });
      expectSame(target, pattern(64, 5));
    },
  );

  it('waits and is armed without spinning', async () => {
    const { ab, two } = await connected('posix');
    const { worker } = two;
    worker.arm();
    const receive = worker.tagRecvNbx(new Uint8Array(8), 0, 8, 1) as Request;
    await withoutDescriptors(async () => {
      const waiting = (async () => {
        let sleeps = 0;
        while (!receive.isCompleted) {
          if (worker.progress() > 0) continue;
          sleeps += 1;
          await worker.wait();
        }
        return sleeps;
      })();
      for (let turn = 0; turn < FALL_ASLEEP_TURNS; turn++) await new Promise(setImmediate);
      await ab.tagSend(new Uint8Array(8), { tag: 1 });
      expect(await waiting).toBeLessThan(10);
    });
    expect(receive.status).toBe(Status.OK);
    receive.free();
  });
});

describe('device memory of a worker without descriptors', () => {
  const TAG = { tag: 4 };

  it.each([
    ['the first fragment', false],
    ['the connection to itself', true],
  ])('fails the receive for want of %s, and nothing else: the next one gets its bytes', async (_, hasFragment) => {
    const { ab, two } = await connected('all transports');
    const { staging } = nativeWorker(two.worker).protocols.rendezvous;
    if (hasFragment) staging.acquire((fragment) => staging.release(fragment!));
    const memory = two.context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI });
    await withoutDescriptors(async () => {
      const receiving = two.worker.tagRecv(memory, TAG);
      await ab.tagSend(pattern(64, 6), TAG);
      await expect(receiving).rejects.toMatchObject({ status: Status.EXCEEDS_LIMIT });
      const target = new Uint8Array(64);
      await Promise.all([ab.tagSend(pattern(64, 7), TAG), two.worker.tagRecv(target, TAG)]);
      expectSame(target, pattern(64, 7));
    });
    await Promise.all([ab.tagSend(pattern(64, 8), TAG), two.worker.tagRecv(memory, TAG)]);
    await expectContents(two, memory, pattern(64, 8));
  });

  it('fails atomic operations of peers on it', async () => {
    const { ab, two } = await connected('all transports');
    const memory = two.context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI });
    await two.endpoint.put(new Uint8Array(64), two.endpoint.unpackRkey(two.context.packRkey(memory)));
    const rkey = ab.unpackRkey(two.context.packRkey(memory));
    const attending = new AbortController();
    const served = two.worker.serve(attending.signal);
    await withoutDescriptors(async () => {
      await expect(ab.atomic('add', 5n, rkey)).rejects.toMatchObject({ status: Status.EXCEEDS_LIMIT });
    });
    expect(await ab.atomic('add', 7n, rkey)).toBe(0n);
    attending.abort();
    await served;
    rkey.release();
  });
});

describe('a peer that connects while there are no descriptors', () => {
  it('is connected when descriptors are available again', async () => {
    const kind = connectionKind('cma and posix');
    const node = fixture.node({ cards: 2 });
    const env = { UCX_TLS: kind.tls };
    const [one, two] = [await fixture.side(node, 0, env), await fixture.side(node, 1, env)];
    const endpoint = one.worker.endpoint(two.worker.address());
    // Then its messages are read, but the connection back fails: for want of a descriptor of the peer, or of the ring of this side.
    const steps = [
      [0, /messages from process \d+ are delayed .*: .*EMFILE/],
      [1, /connection request deferred: .*EMFILE/],
      [2, /connection request deferred: .*EMFILE/],
    ] as const;
    for (const [left, warning] of steps) {
      fixture.allow(warning);
      const warnings = (): number => fixture.records.filter(({ message }) => warning.test(message)).length;
      const before = warnings();
      await withoutDescriptors(() => {
        for (let turn = 0; warnings() === before; turn++) {
          if (turn > TURNS_MAX) expect.fail(`no warning ${warning} with ${left} descriptors`);
          two.worker.progress();
        }
      }, left);
      expect(endpoint.status).toBe(Status.OK);
    }
    await expectLongMessage(endpoint, two);
    await endpoint.close();
  });
});

describe('connecting without a descriptor for its ring', () => {
  it('fails, and the next endpoint is connected', async () => {
    const node = fixture.node({ cards: 2 });
    const env = { UCX_TLS: connectionKind('cma and posix').tls };
    const [one, two] = [await fixture.side(node, 0, env), await fixture.side(node, 1, env)];
    const address = two.worker.address();
    await withoutDescriptors(() => {
      expect(() => one.worker.endpoint(address)).toThrow(/^open: EMFILE .*\/dev\/shm/);
    }, 2);
    const endpoint = one.worker.endpoint(address);
    await expectLongMessage(endpoint, two);
    await endpoint.close();
  });
});

describe('a process without descriptors', () => {
  it('regards no process as dead, and removes no files of one', async () => {
    const segment = Segment.create(4096);
    await withoutDescriptors(() => {
      expect(hasEnded(ownIdentity())).toBe(false);
      expect(isProcessAlive(process.ppid)).toBe(true);
      expect(isProcessAlive(2 ** 22)).toBe(false);
      expect(() => processStartTime(process.pid)).toThrow(/EMFILE/);
      scavenge();
    });
    expect(scavenge()).toBeGreaterThanOrEqual(0);
    Segment.attach(segment.packedName).close();
    segment.close();
  });

  it.each([
    ['posix', openPosix],
    ['cma', openCma],
  ] as const)('does not say that the peer has ended, over %s', async (_, open) => {
    const { md } = open(createTestLog());
    const iface = md.openIface(md.resources[0]!);
    await withoutDescriptors(() => {
      if (iface.attributes.resource.transport === 'cma') expect(iface.unreachableReason(iface.address)).toBeUndefined();
      else expect(() => iface.unreachableReason(iface.address)).toThrow(/EMFILE/);
      expect(() => iface.connect(iface.address)).toThrow(/EMFILE/);
    });
    const endpoint = iface.connect(iface.address);
    expect(endpoint.check()).toBe(Status.OK);
    endpoint.close();
    iface.close();
    md.close();
  });

  it('does not report that the process of a remote key has ended', async () => {
    const [one, two] = [openPosix(createTestLog()), openPosix(createTestLog())];
    const memory = one.md.memAlloc(64, { memoryType: MemoryType.HOST });
    const packed = new Uint8Array(one.md.attributes.rkeyPackedBytes);
    one.md.mkeyPack(memory, packed, 0);
    await withoutDescriptors(() => {
      let failure: unknown;
      try {
        two.md.rkeyUnpack(packed).release();
      } catch (error) {
        failure = error;
      }
      expect(isSyscallError(failure, Errno.EMFILE)).toBe(true);
    });
    two.md.rkeyUnpack(packed).release();
    one.md.memFree(memory);
    for (const { md } of [one, two]) md.close();
  });
});
