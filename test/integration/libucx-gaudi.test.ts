/**
 * Memory of cards over libucp: every way that its bytes can take, with sizes around the fragments, and what is left when connections end at a bad moment. Two
 * contexts of one process stand for two programs; without gaudi_ipc they are as far from each other as on two machines.
 */

import { describe, expect, it } from 'vitest';
import { type Request, Status } from '../../src/index.ts';
import { installedLibucp } from '../fixtures/libucp.ts';
import {
  type ConnectionKind,
  driveUntil,
  expectContents,
  fill,
  keyFor,
  type MemoryKind,
  mappedOf,
  memoryOf,
  type Pair,
  pattern,
  unmap,
  usePairs,
} from '../fixtures/pair.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`skipped: ${skipReason}`);

const FRAGMENT = 65_536;
const ENV = { UCX_ENGINE: 'libucx', UCX_RNDV_FRAG_SIZE: '64k', UCX_RNDV_FRAG_ALLOC_COUNT: '6' };
const LOCAL_OFFSET = 5;
const REMOTE_OFFSET = 9;
const MARGIN = 24;
const KEEP = { noImmediateCompletion: true };
/** Around what is sent at once, and the fragments. */
const SIZES = [1, 8, 1000, 9001, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 7 * FRAGMENT + 13];

const KINDS: readonly ConnectionKind[] = [
  { name: 'staging, tcp', isLoopback: false, tls: 'tcp,self,gaudi_cpy', hasGaudi: true },
  { name: 'staging, shared memory', isLoopback: false, tls: 'posix,cma,self,gaudi_cpy', hasGaudi: true },
  {
    name: 'staging, tcp, with a thread',
    isLoopback: false,
    tls: 'tcp,self,gaudi_cpy',
    hasGaudi: true,
    node: { dmaThreads: 1 },
  },
  { name: 'all transports', isLoopback: false, tls: 'all', hasGaudi: true, node: { dmaThreads: 1 } },
  { name: 'loopback', isLoopback: true, tls: 'all', hasGaudi: true },
];

/** Pairs of memory of which at least one is on a card. */
const MEMORY_PAIRS: readonly (readonly [MemoryKind, Exclude<MemoryKind, 'bytes'>])[] = [
  ['gaudi', 'allocated'],
  ['gaudi', 'registered'],
  ['gaudi', 'gaudi'],
  ['bytes', 'gaudi'],
  ['allocated', 'gaudi'],
];

describe.skipIf(skipReason !== undefined).each(KINDS)(
  `memory of cards over libucp, $name (${skipReason ?? 'installed'})`,
  (kind) => {
    const fixture = usePairs();
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
  },
);
