/** The whole stack over emulated RDMA devices: two nodes whose only connection is the wire between their devices. */

import { describe, expect, it } from 'vitest';
import type { EmulatedNode } from '../../../src/emulator/index.ts';
import {
  type Context,
  type Endpoint,
  type MemoryHandle,
  MemoryType,
  type RemoteKey,
  type StatsNode,
  type Worker,
} from '../../../src/index.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { fillPattern } from '../../fixtures/pattern.ts';

const BYTES = 3 * 2 ** 20 + 5;
const CONFIG = { TLS: 'rc,gaudi_cpy,self', LOG_LEVEL: 'warn' } as const;

/** A node, and an endpoint to the worker of the other one. */
interface End {
  readonly node: EmulatedNode;
  readonly context: Context;
  readonly worker: Worker;
  readonly own: Endpoint;
  readonly endpoint: Endpoint;
}

describe('two nodes over RDMA', () => {
  const fixture = useContexts('native');

  async function ends(farDmabufs = true, nics = 1): Promise<readonly [End, End]> {
    const stacks = [];
    for (const nicDmabufs of [true, farDmabufs]) {
      const node = { cards: 1, nics, nicDmabufs, dmaThreads: 0 };
      stacks.push(await fixture.open({ node, context: { config: CONFIG } }));
    }
    const [near, far] = stacks as [(typeof stacks)[0], (typeof stacks)[0]];
    const options = { errorHandling: 'peer' } as const;
    const make = (own: typeof near, peer: typeof near): End => {
      return { ...own, own: own.endpoint, endpoint: own.worker.endpoint(peer.worker.address(), options) };
    };
    return [make(near, far), make(far, near)];
  }

  function mapped({ context }: End, memoryType: MemoryType, byteLength: number = BYTES): MemoryHandle {
    return context.memMap({ allocate: byteLength, memoryType });
  }

  function keyOf(owner: End, handle: MemoryHandle, user: Endpoint): RemoteKey {
    return user.unpackRkey(owner.context.packRkey(handle));
  }

  async function fill(end: End, handle: MemoryHandle, bytes: Uint8Array): Promise<void> {
    const rkey = keyOf(end, handle, end.own);
    await end.own.put(bytes, rkey);
    await end.own.flush();
    rkey.release();
  }

  async function contents(end: End, handle: MemoryHandle): Promise<Uint8Array> {
    const bytes = new Uint8Array(handle.byteLength);
    const rkey = keyOf(end, handle, end.own);
    await end.own.get(bytes, rkey);
    rkey.release();
    return bytes;
  }

  /** Lets the worker of an end make progress, as that of a program that serves others. */
  async function whileDriven({ worker }: End, run: () => Promise<void>): Promise<void> {
    let isDone = false;
    const running = run().finally(() => {
      isDone = true;
    });
    while (!isDone) {
      worker.progress();
      await new Promise(setImmediate);
    }
    await running;
  }

  const { HOST, GAUDI } = MemoryType;
  it.each([
    ['host', 'host', HOST, HOST],
    ['HBM', 'HBM', GAUDI, GAUDI],
    ['host', 'HBM', HOST, GAUDI],
    ['HBM', 'host', GAUDI, HOST],
  ] as const)('put and get between %s and %s without a copy', async (_near, _far, nearType, farType) => {
    const [near, far] = await ends();
    const [here, there] = [mapped(near, nearType), mapped(far, farType)];
    const bytes = new Uint8Array(BYTES);
    fillPattern(bytes, 3);
    await fill(near, here, bytes);
    const rkey = keyOf(far, there, near.endpoint);
    const { chosen } = near.endpoint.explain('put', here, rkey);
    const long = chosen.find(({ bytesMin, bytesMax }) => bytesMin <= BYTES && (bytesMax ?? BYTES) >= BYTES);
    expect(long).toMatchObject({ protocol: 'put/zcopy', transport: 'rc/hca0:1' });
    if (farType === GAUDI) expect(long?.note).toContain('dma-buf');
    await near.endpoint.put(here, rkey);
    await near.endpoint.flush();
    expect(Buffer.compare(await contents(far, there), bytes)).toBe(0);
    fillPattern(bytes, 4);
    await fill(far, there, bytes);
    await near.endpoint.get(here, rkey);
    expect(Buffer.compare(await contents(near, here), bytes)).toBe(0);
    rkey.release();
    for (const [end, handle] of [
      [near, here],
      [far, there],
    ] as const)
      end.context.memUnmap(handle);
  });

  it('put and get with two devices each, which share the bytes', async () => {
    const [near, far] = await ends(true, 2);
    const [here, there] = [mapped(near, GAUDI), mapped(far, GAUDI)];
    const bytes = new Uint8Array(BYTES);
    fillPattern(bytes, 6);
    await fill(near, here, bytes);
    const rkey = keyOf(far, there, near.endpoint);
    await near.endpoint.put(here, rkey);
    await near.endpoint.flush();
    expect(Buffer.compare(await contents(far, there), bytes)).toBe(0);
    fillPattern(bytes, 7);
    await fill(far, there, bytes);
    await near.endpoint.get(here, rkey);
    expect(Buffer.compare(await contents(near, here), bytes)).toBe(0);
    const carried = zcopyBytes(near.worker.stats());
    expect(carried).toHaveLength(2);
    expect(carried.reduce((sum, each) => sum + each, 0)).toBe(2 * BYTES);
    for (const each of carried) expect(each).toBeGreaterThan(BYTES / 2);
    rkey.release();
    near.context.memUnmap(here);
    far.context.memUnmap(there);
  });

  it('the devices near the card carry what it sends', async () => {
    const { context, worker, node } = await fixture.open({
      node: { cards: 4, nics: 4, dmaThreads: 0 },
      context: { config: CONFIG },
    });
    const [peer] = await ends();
    const endpoint = worker.endpoint(peer.worker.address());
    const there = mapped(peer, HOST);
    const rkey = endpoint.unpackRkey(peer.context.packRkey(there));
    for (const [sysDevice, first] of [
      [0, 'rc/hca0:1'],
      [2, 'rc/hca2:1'],
    ] as const) {
      const here = context.memMap({ allocate: BYTES, memoryType: GAUDI, sysDevice });
      expect(endpoint.explain('put', here, rkey).at(BYTES).winner).toMatchObject({
        transport: first,
        note: expect.stringContaining(`PCI switch in common with device ${sysDevice}`),
      });
      context.memUnmap(here);
    }
    rkey.release();
    peer.context.memUnmap(there);
    expect(node.cards()).toHaveLength(4);
  });

  it('messages and atomic operations', async () => {
    const [near, far] = await ends();
    const sent = new Uint8Array(100_000);
    fillPattern(sent, 1);
    const received = new Uint8Array(sent.byteLength);
    await Promise.all([far.worker.tagRecv(received, { tag: 7 }), near.endpoint.tagSend(sent, { tag: 7 })]);
    expect(Buffer.compare(received, sent)).toBe(0);
    const word = mapped(far, HOST, 64);
    const rkey = keyOf(far, word, near.endpoint);
    const results = await Promise.all(Array.from({ length: 20 }, () => near.endpoint.atomic('add', 3n, rkey)));
    expect(new Set(results).size).toBe(20);
    expect(new DataView(word.bytes!.buffer, word.bytes!.byteOffset).getBigUint64(0, true)).toBe(60n);
    rkey.release();
    far.context.memUnmap(word);
  });

  it.each([
    ['hca9:1', {}, /UCX_NET_DEVICES does not name hca0:1/],
    ['hca0:2', {}, /UCX_NET_DEVICES does not name hca0:1/],
    ['hca0:1', { IB_GID_INDEX: '7' }, /no GID with index 7 \(UCX_IB_GID_INDEX\); valid are: 0/],
  ])(
    'a device, port or GID that is not there is an error that names those that are: %s %o',
    async (device, config, message) => {
      fixture.allow(/^network device '.*' is not available \(maybe: hca0:1\?\)/);
      const node = fixture.node({ cards: 1, nics: 1, dmaThreads: 0 });
      const context = { config: { TLS: 'rc', NET_DEVICES: device, LOG_LEVEL: 'warn', ...config } };
      const error = await failureOf(() => fixture.openOn(node, { ...context }));
      expect([error.code, error.status]).toEqual(['ERR_NO_DEVICE', Status.NO_DEVICE]);
      expect(error.message).toMatch(message);
    },
  );

  it('a device that refuses dma-bufs is a reason, and staging takes over', async () => {
    const [near, far] = await ends(false);
    const [here, there] = [mapped(near, HOST), mapped(far, GAUDI)];
    const bytes = new Uint8Array(BYTES);
    fillPattern(bytes, 9);
    await fill(near, here, bytes);
    const rkey = keyOf(far, there, near.endpoint);
    const { chosen } = near.endpoint.explain('put', here, rkey);
    expect(chosen.every(({ protocol }) => protocol !== 'put/zcopy')).toBe(true);
    await whileDriven(far, async () => {
      await near.endpoint.put(here, rkey);
      await near.endpoint.flush();
    });
    expect(Buffer.compare(await contents(far, there), bytes)).toBe(0);
    const local = far.endpoint.explain('put', there, keyOf(near, here, far.endpoint));
    expect(JSON.stringify(local)).toMatch(/EOPNOTSUPP/);
    for (const [end, handle] of [
      [near, here],
      [far, there],
    ] as const)
      end.context.memUnmap(handle);
  });

  it('devices that are removed fail the operations in flight, with the status of a reset', async () => {
    const [near, far] = await ends();
    const [here, there] = [mapped(near, HOST), mapped(far, HOST)];
    const rkey = keyOf(far, there, near.endpoint);
    await near.endpoint.put(here, rkey);
    await near.endpoint.flush();
    fixture.allow(/^hca0: local catastrophic error$/);
    far.node.verbs!.device('hca0').inject({ kind: 'remove' });
    near.node.verbs!.device('hca0').inject({ kind: 'remove' });
    const failed = await near.endpoint.put(here, rkey).then(
      () =>
        near.endpoint.flush().then(
          () => undefined,
          (error: unknown) => error,
        ),
      (error: unknown) => error,
    );
    expect(failed).toMatchObject({ status: Status.CONNECTION_RESET });
    rkey.release();
    for (const [end, handle] of [
      [near, here],
      [far, there],
    ] as const)
      end.context.memUnmap(handle);
  });
});

/** Bytes that each RDMA device of a worker has moved without a copy. */
function zcopyBytes(node: StatsNode): number[] {
  const own = node.className === 'uct_iface' && node.name.startsWith('rc/') ? [node.counters['bytes_zcopy'] ?? 0] : [];
  return [...own, ...node.children.flatMap(zcopyBytes)];
}
