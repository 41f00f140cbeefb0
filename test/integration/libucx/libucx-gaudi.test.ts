/**
 * Device memory over libucp: every path of its bytes, with sizes around the fragments, and leaks when connections end at a bad moment. Two
 * contexts of one process represent two programs; without gaudi_ipc they are as separate as on two machines.
 */

import { describe, expect, it } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import { atomicEndpoints, installedLibucp } from '../../fixtures/libucp/libucp.ts';
import {
  type ConnectionKind,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  keyFor,
  kindsOfExtent,
  type MemoryKind,
  mappedOf,
  memoryOf,
  type Pair,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`skipped: ${skipReason}`);

const FRAGMENT = 65_536;
const ENV = { UCX_RNDV_FRAG_SIZE: '64k', UCX_RNDV_FRAG_ALLOC_COUNT: '6' };
const LOCAL_OFFSET = 5;
const REMOTE_OFFSET = 9;
const MARGIN = 24;
const KEEP = { noImmediateCompletion: true };
/** Sizes around short operations, and the fragments. */
const SIZES = [1, 8, 1000, 9001, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 7 * FRAGMENT + 13];

const KINDS: readonly ConnectionKind[] = [
  { name: 'staging, tcp', isLoopback: false, tls: 'tcp,self,gaudi_cpy', hasGaudi: true, engine: 'libucx' },
  {
    name: 'staging, shared memory',
    isLoopback: false,
    tls: 'posix,cma,self,gaudi_cpy',
    hasGaudi: true,
    engine: 'libucx',
    isFullOnly: true,
  },
  {
    name: 'staging, tcp, with a thread',
    isLoopback: false,
    tls: 'tcp,self,gaudi_cpy',
    hasGaudi: true,
    engine: 'libucx',
    node: { dmaThreads: 1 },
    isFullOnly: true,
  },
  { name: 'all transports', isLoopback: false, tls: 'all', hasGaudi: true, engine: 'libucx', node: { dmaThreads: 1 } },
  { name: 'loopback', isLoopback: true, tls: 'all', hasGaudi: true, engine: 'libucx' },
];

/** Pairs of memory of which at least one is on a card. */
const MEMORY_PAIRS: readonly (readonly [MemoryKind, Exclude<MemoryKind, 'bytes'>])[] = [
  ['gaudi', 'allocated'],
  ['gaudi', 'registered'],
  ['gaudi', 'gaudi'],
  ['bytes', 'gaudi'],
  ['allocated', 'gaudi'],
];

const TITLE = 'memory of cards over libucp, $name (needs libucp)';

describe.skipIf(skipReason !== undefined).each(kindsOfExtent(KINDS))(TITLE, (kind) => {
  const fixture = usePairs(kind);
  const open = (env: Readonly<Record<string, string>> = {}): Promise<Pair> => fixture.pair(kind, { ...ENV, ...env });

  const endOf = async (pair: Pair, request: Status | Request): Promise<Status> => {
    if (typeof request === 'number') return request;
    await driveUntil(pair, () => request.isCompleted);
    const { status } = request;
    request.free();
    return status;
  };

  it.each(MEMORY_PAIRS)('puts and gets between local %s and remote %s', async (localKind, remoteKind) => {
    const pair = await open();
    const { one, two, ab } = pair;
    for (const byteLength of SIZES) {
      const local = memoryOf(one, localKind, byteLength + MARGIN);
      const remote = mappedOf(two, remoteKind, byteLength + MARGIN);
      const rkey = keyFor(ab, two, remote);
      const [here, there] = [pattern(byteLength + MARGIN, byteLength), pattern(byteLength + MARGIN, byteLength + 1)];
      await fill(one, local, here);
      await fill(two, remote, there);
      const put = ab.putNbx(local, LOCAL_OFFSET, byteLength, rkey, REMOTE_OFFSET, KEEP);
      expect(await endOf(pair, put)).toBe(Status.OK);
      expect(await endOf(pair, ab.flushNbx())).toBe(Status.OK);
      there.set(here.subarray(LOCAL_OFFSET, LOCAL_OFFSET + byteLength), REMOTE_OFFSET);
      await expectContents(two, remote, there, `remote after put of ${byteLength}`);
      await expectContents(one, local, here, `local after put of ${byteLength}`);
      there.reverse();
      await fill(two, remote, there);
      expect(await endOf(pair, ab.getNbx(local, LOCAL_OFFSET, byteLength, rkey, REMOTE_OFFSET))).toBe(Status.OK);
      here.set(there.subarray(REMOTE_OFFSET, REMOTE_OFFSET + byteLength), LOCAL_OFFSET);
      await expectContents(one, local, here, `local after get of ${byteLength}`);
      await expectContents(two, remote, there, `remote after get of ${byteLength}`);
      rkey.release();
      unmap(one, local);
      unmap(two, remote);
    }
  });

  it('sends tagged messages as one, between lists with device memory', async () => {
    const pair = await open();
    const { one, two, ab } = pair;
    for (const byteLength of SIZES) {
      const [near, far] = [mappedOf(one, 'gaudi', byteLength + MARGIN), mappedOf(two, 'gaudi', byteLength + MARGIN)];
      const [head, tail] = [pattern(100, 1), pattern(9000, 2)];
      const card = pattern(byteLength + MARGIN, byteLength);
      await fill(one, near, card);
      await fill(two, far, new Uint8Array(byteLength + MARGIN));
      const expected = Buffer.concat([head, card.subarray(LOCAL_OFFSET, LOCAL_OFFSET + byteLength), tail]);
      const [start, end] = [new Uint8Array(40), new Uint8Array(expected.byteLength - 40 - byteLength)];
      const { byteLength: received } = await serving(pair, async () => {
        const list = [{ memory: head }, { memory: near, offset: LOCAL_OFFSET, byteLength }, { memory: tail }];
        const sent = ab.tagSend(list, { tag: 5 });
        const there = [{ memory: start }, { memory: far, offset: REMOTE_OFFSET, byteLength }, { memory: end }];
        const result = await two.worker.tagRecv(there, { tag: 5 });
        await sent;
        return result;
      });
      expect(received).toBe(expected.byteLength);
      expectSame(start, expected.subarray(0, 40), 'before the card');
      expectSame(end, expected.subarray(40 + byteLength), 'behind the card');
      const onCard = new Uint8Array(byteLength + MARGIN);
      onCard.set(expected.subarray(40, 40 + byteLength), REMOTE_OFFSET);
      await expectContents(two, far, onCard, `card after ${byteLength}`);
      unmap(one, near);
      unmap(two, far);
    }
  });

  it('receives unexpected messages, and messages shorter than the memory', async () => {
    const pair = await open();
    const { one, two, ab } = pair;
    const near = mappedOf(one, 'gaudi', 3 * FRAGMENT);
    const far = mappedOf(two, 'gaudi', 3 * FRAGMENT);
    for (const byteLength of [10, 5000, FRAGMENT, 2 * FRAGMENT + 1]) {
      const bytes = pattern(3 * FRAGMENT, byteLength);
      await fill(one, near, bytes);
      await fill(two, far, new Uint8Array(3 * FRAGMENT));
      const sent = ab.tagSendNbx(near, 0, byteLength, 9, KEEP);
      await driveUntil(pair, () => two.worker.tagProbe(9) !== undefined);
      const received = two.worker.tagRecvNbx(far, 0, 3 * FRAGMENT, 9, undefined, KEEP);
      if (typeof received === 'number') expect.fail(`the receive ended with ${received}`);
      await driveUntil(pair, () => received.isCompleted);
      expect([received.status, received.receivedBytes]).toEqual([Status.OK, byteLength]);
      received.free();
      expect(await endOf(pair, sent)).toBe(Status.OK);
      const expected = new Uint8Array(3 * FRAGMENT);
      expected.set(bytes.subarray(0, byteLength));
      await expectContents(two, far, expected, `card after ${byteLength}`);
    }
    const sent = ab.tagSendNbx(near, 0, 3 * FRAGMENT, 10, KEEP);
    const short = two.worker.tagRecvNbx(far, 0, FRAGMENT, 10, undefined, KEEP);
    expect(await endOf(pair, short)).toBe(Status.MESSAGE_TRUNCATED);
    expect(await endOf(pair, sent)).toBe(Status.OK);
  });

  it.each(['eager', 'rendezvous'] as const)('sends active messages %s', async (protocol) => {
    const pair = await open();
    const { one, two, ab } = pair;
    for (const byteLength of SIZES) {
      const near = mappedOf(one, 'gaudi', byteLength + LOCAL_OFFSET);
      const far = mappedOf(two, 'gaudi', byteLength + REMOTE_OFFSET);
      const bytes = pattern(byteLength + LOCAL_OFFSET, byteLength);
      await fill(one, near, bytes);
      await fill(two, far, new Uint8Array(byteLength + REMOTE_OFFSET));
      let ended: Status | undefined;
      two.worker.setAmHandler(7, (message) => {
        expect(message.header).toEqual(Uint8Array.of(1, 2, 3));
        expect(message.isRendezvous).toBe(protocol === 'rendezvous');
        const received = message.receiveNbx(far, REMOTE_OFFSET, message.byteLength, {
          ...KEEP,
          callback: (request, status) => {
            ended = status;
            request.free();
          },
        });
        if (typeof received === 'number') ended = received;
      });
      const sent = ab.amSendNbx(7, Uint8Array.of(1, 2, 3), near, LOCAL_OFFSET, byteLength, { protocol });
      await driveUntil(pair, () => ended !== undefined);
      expect([ended, await endOf(pair, sent)]).toEqual([Status.OK, Status.OK]);
      const expected = new Uint8Array(byteLength + REMOTE_OFFSET);
      expected.set(bytes.subarray(LOCAL_OFFSET), REMOTE_OFFSET);
      await expectContents(two, far, expected, `card after ${byteLength}`);
      unmap(one, near);
      unmap(two, far);
    }
    two.worker.setAmHandler(7, undefined);
  });

  it('sends streams', async () => {
    const pair = await open();
    const { one, two, ab, ba } = pair;
    for (const byteLength of SIZES) {
      const [near, far] = [mappedOf(one, 'gaudi', byteLength), mappedOf(two, 'gaudi', byteLength)];
      const bytes = pattern(byteLength, byteLength);
      await fill(one, near, bytes);
      const sent = ab.streamSendNbx(near, 0, byteLength);
      const received = ba.streamRecvNbx(far, 0, byteLength, { waitAll: true });
      expect([await endOf(pair, received), await endOf(pair, sent)]).toEqual([Status.OK, Status.OK]);
      await expectContents(two, far, bytes, `card after ${byteLength}`);
      unmap(one, near);
      unmap(two, far);
    }
  });

  it('changes words atomically, also many at a time', async () => {
    const pair = await open();
    const { two, ab } = pair;
    const words = mappedOf(two, 'gaudi', 64);
    const rkey = keyFor(ab, two, words);
    await fill(two, words, new Uint8Array(64));
    const before = await serving(pair, () =>
      Promise.all(Array.from({ length: 40 }, () => ab.atomic('add', 3, rkey, { remoteOffset: 8 }))),
    );
    expect([...before].sort((a, b) => Number(a - b))).toEqual(Array.from({ length: 40 }, (_, i) => BigInt(3 * i)));
    await serving(pair, async () => {
      expect(await ab.atomic('cswap', 7, rkey, { remoteOffset: 8, compare: 1 })).toBe(120n);
      expect(await ab.atomic('cswap', 0xffff_ffff, rkey, { remoteOffset: 8, compare: 120, bits: 32 })).toBe(120n);
      expect(await ab.atomic('add', 2, rkey, { remoteOffset: 8, bits: 32 })).toBe(0xffff_ffffn);
      expect(await ab.atomic('xor', -1, rkey, { remoteOffset: 16 })).toBe(0n);
      expect(await ab.atomic('swap', 5n, rkey, { remoteOffset: 16 })).toBe(2n ** 64n - 1n);
    });
    const expected = new Uint8Array(64);
    new DataView(expected.buffer).setBigUint64(8, 1n, true);
    new DataView(expected.buffer).setBigUint64(16, 5n, true);
    await expectContents(two, words, expected);
    rkey.release();
  });

  it('keeps the order of fences, and flushes everything', async () => {
    const pair = await fixture.pair(kind, ENV, atomicEndpoints());
    const { one, two, ab } = pair;
    const byteLength = 5 * FRAGMENT;
    const [near, far] = [mappedOf(one, 'gaudi', byteLength), mappedOf(two, 'gaudi', byteLength)];
    const flag = mappedOf(two, 'allocated', 8);
    const [rkey, flagKey] = [keyFor(ab, two, far), keyFor(ab, two, flag)];
    const bytes = pattern(byteLength, 3);
    await fill(one, near, bytes);
    const requests = [ab.putNbx(near, 0, byteLength, rkey, 0)];
    ab.fence();
    requests.push(ab.putNbx(Uint8Array.of(1), 0, 1, flagKey, 0));
    ab.fence();
    requests.push(ab.atomicNbx('add', 1, flagKey, 0));
    ab.fence();
    requests.push(ab.getNbx(near, 0, FRAGMENT, rkey, FRAGMENT));
    await driveUntil(pair, () => flag.bytes![0] === 2);
    await expectContents(two, far, bytes, 'the put before the flag');
    const flushed = [one.worker.flushNbx(), ab.flushNbx()];
    for (const request of [...requests, ...flushed]) expect(await endOf(pair, request)).toBe(Status.OK);
    bytes.copyWithin(0, FRAGMENT, 2 * FRAGMENT);
    await expectContents(one, near, bytes, 'the get');
    rkey.release();
    flagKey.release();
  });

  it('holds nothing back behind a fence after which nothing is in flight', async () => {
    const pair = await open();
    const { two, ab } = pair;
    const flag = mappedOf(two, 'allocated', 8);
    const [flagKey, cardKey] = [keyFor(ab, two, flag), keyFor(ab, two, mappedOf(two, 'gaudi', 8))];
    await serving(pair, async () => {
      await ab.put(Uint8Array.of(1), flagKey);
      await ab.put(Uint8Array.of(1), cardKey);
    });
    for (let value = 2; value < 5; value++) {
      ab.fence();
      const request = ab.putNbx(Uint8Array.of(value), 0, 1, flagKey, 0);
      expect(await endOf(pair, request)).toBe(Status.OK);
      await driveUntil(pair, () => flag.bytes![0] === value);
    }
    flagKey.release();
    cardKey.release();
  });

  it('shares few fragments among many operations of both directions', async () => {
    const pair = await open({ UCX_RNDV_FRAG_ALLOC_COUNT: '2' });
    const { one, two, ab, ba } = pair;
    const byteLength = 3 * FRAGMENT + 77;
    const transfers = Array.from({ length: 6 }, (_, index) => {
      const [near, far] = [mappedOf(one, 'gaudi', byteLength), mappedOf(two, 'gaudi', byteLength)];
      const host = mappedOf(two, 'allocated', byteLength);
      return { index, near, far, host, hostKey: keyFor(ab, two, host), farKey: keyFor(ab, two, far) };
    });
    for (const { index, near, far } of transfers) {
      await fill(one, near, pattern(byteLength, index));
      await fill(two, far, new Uint8Array(byteLength));
    }
    await serving(pair, () =>
      Promise.all(
        transfers.flatMap(({ index, near, far, host, hostKey, farKey }) => [
          ab.put(near, hostKey),
          ...(index % 2 === 0
            ? [ab.put(near, farKey)]
            : [ab.tagSend(near, { tag: index }), two.worker.tagRecv(far, { tag: index })]),
          ba.tagSend(host, { tag: 100 + index }).then(() => undefined),
          one.worker.tagRecv(new Uint8Array(byteLength), { tag: 100 + index }),
        ]),
      ),
    );
    for (const { index, far, host, hostKey, farKey } of transfers) {
      await expectContents(two, far, pattern(byteLength, index), `card ${index}`);
      await expectContents(two, host, pattern(byteLength, index), `host ${index}`);
      hostKey.release();
      farKey.release();
    }
  });

  it('drops the pages of memory that was returned to libucp', async () => {
    const { node, one, two, ab } = await open();
    const pinnedBytes = (): number => node.card(0).context!.hostMappings.pinnedBytes;
    const far = mappedOf(two, 'gaudi', FRAGMENT);
    const rkey = keyFor(ab, two, far);
    const put = async (bytes: Uint8Array): Promise<void> => {
      const local = mappedOf(one, 'allocated', FRAGMENT);
      local.bytes!.set(bytes);
      await serving({ one, two }, () => ab.put(local, rkey));
      unmap(one, local);
    };
    await put(pattern(FRAGMENT, 1));
    const before = pinnedBytes();
    for (let count = 2; count < 5; count++) await put(pattern(FRAGMENT, count));
    expect(pinnedBytes()).toBe(before);
    await expectContents(two, far, pattern(FRAGMENT, 4));
    rkey.release();
  });

  it('leaves nothing behind when endpoints are closed by force during operations', async () => {
    // Starting and ending threads of engines takes long.
    const step = kind.node?.dmaThreads === 1 ? 13 : 3;
    for (let turns = 0; turns < 40; turns += step) {
      const pair = await open();
      const { one, two, ab, ba } = pair;
      const byteLength = 9 * FRAGMENT;
      const [near, far] = [mappedOf(one, 'gaudi', byteLength), mappedOf(two, 'gaudi', byteLength)];
      const host = mappedOf(two, 'allocated', byteLength);
      const [hostKey, farKey] = [keyFor(ab, two, host), keyFor(ab, two, far)];
      const operations = [
        ab.putNbx(near, 0, byteLength, hostKey, 0),
        ab.getNbx(near, 0, byteLength, hostKey, 0),
        ab.putNbx(near, 0, byteLength, farKey, 0),
        ab.getNbx(near, 0, byteLength, farKey, 0),
        ab.atomicNbx('add', 1, farKey, 0),
        ab.tagSendNbx(near, 0, byteLength, 1),
        two.worker.tagRecvNbx(far, 0, byteLength, 1),
        ab.flushNbx(),
      ];
      for (let turn = 0; turn < turns; turn++) {
        one.worker.progress();
        two.worker.progress();
      }
      const closing = [(turns % 2 === 0 ? ab : ba).close({ force: true })];
      closing.push((turns % 2 === 0 ? ba : ab).close({ force: true }));
      await Promise.all(closing);
      await Promise.all([one.worker.close(), two.worker.close()]);
      for (const operation of operations) {
        if (typeof operation === 'number') continue;
        expect(operation.isCompleted).toBe(true);
        operation.free();
      }
      expect([one.worker.requestsInUse, two.worker.requestsInUse]).toEqual([0, 0]);
      await Promise.all([one.context.close(), two.context.close()]);
    }
  });
});
