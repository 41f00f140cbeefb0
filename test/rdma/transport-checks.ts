/** Checks of the transport rc of this package between two devices: operations in both directions, refusals, and what follows them. */

import assert from 'node:assert/strict';
import { Context, type Endpoint, type MemoryHandle, MemoryType, Status, type Worker } from '../../src/index.ts';
import { loadConfig } from '../../src/ucs/config/config.ts';
import { createLog, LogLevel } from '../../src/ucs/debug/log.ts';
import { systemClock } from '../../src/ucs/sys/clock.ts';
import type { Iface, UctEndpoint } from '../../src/uct/api/iface.ts';
import type { MemoryDomain } from '../../src/uct/api/memory-domain.ts';
import { IB_CONFIG_TABLE, RC_CONFIG_TABLE } from '../../src/uct/ib/base/config.ts';
import { ibComponent } from '../../src/uct/ib/md.ts';
import { CountingCompletion } from '../contract/uct/driven-operations.ts';
import { fillPattern } from '../fixtures/pattern.ts';
import { check, DEVICES, verbs } from './guest.ts';

/** One end: a context on one of the devices. */
interface End {
  readonly context: Context;
  readonly worker: Worker;
  readonly endpoint: Endpoint;
}

const ENV = {
  UCX_IB_DRIVER: 'verbs',
  UCX_GAUDI_DRIVER: 'emulator',
  UCX_GAUDI_EMULATOR_CARDS: '1',
  UCX_IB_GID_INDEX: '0',
};

/** Runs them. */
export async function transportChecks(): Promise<void> {
  for (const [near, far] of [
    [0, 1],
    [1, 0],
  ] as const) {
    await check(`rc moves puts, gets, messages and atomic operations, ${DEVICES[near]} to ${DEVICES[far]}`, () =>
      withContexts('rc', DEVICES[near], DEVICES[far], moveEverything),
    );
  }
  await check('HBM is staged where the device refuses its dma-buf, and explain says so', () =>
    withContexts('rc,gaudi_cpy,self', DEVICES[0], DEVICES[1], moveStaged),
  );
  await check('messages of registered memory arrive', () => withIfaces(sendRegistered));
  await check('a key that is dead is refused, and a new connection works', () => withIfaces(useDeadKey));
}

async function withContexts(
  tls: string,
  nearDevice: string,
  farDevice: string,
  run: (near: End, far: End) => Promise<void>,
): Promise<void> {
  const contexts = await Promise.all(
    [nearDevice, farDevice].map((device) =>
      Context.create({ env: { ...ENV, UCX_TLS: tls, UCX_NET_DEVICES: `${device}:1` }, configDirectories: [] }),
    ),
  );
  const workers = contexts.map((context) => context.worker());
  const [near, far] = contexts.map((context, i): End => {
    return { context, worker: workers[i]!, endpoint: workers[i]!.endpoint(workers[1 - i]!.address()) };
  }) as [End, End];
  const stop = new AbortController();
  const serving = workers.map((worker) => worker.serve(stop.signal));
  try {
    await run(near, far);
    await Promise.all([near.endpoint.close(), far.endpoint.close()]);
  } finally {
    stop.abort();
    await Promise.all(serving);
    for (const context of contexts) await context.close();
  }
}

async function moveEverything({ endpoint }: End, far: End): Promise<void> {
  const memory = far.context.memMap({ allocate: 2 ** 20 });
  const rkey = endpoint.unpackRkey(far.context.packRkey(memory));
  const source = new Uint8Array(300_000);
  fillPattern(source, 11);
  const put = await endpoint.put(source, rkey);
  await endpoint.flush();
  assert.equal(put.transport, 'rc');
  assert.deepEqual(memory.bytes!.slice(0, source.byteLength), source);
  const target = new Uint8Array(source.byteLength);
  await endpoint.get(target, rkey);
  assert.deepEqual(target, source);
  const received = new Uint8Array(70_000);
  const receiving = far.worker.tagRecv(received, { tag: 5 });
  await endpoint.tagSend(source.subarray(0, 70_000), { tag: 5 });
  await receiving;
  assert.deepEqual(received, source.slice(0, 70_000));
  new DataView(memory.bytes!.buffer, memory.bytes!.byteOffset, 8).setBigUint64(0, 5n, true);
  assert.equal(await endpoint.atomic('add', 3n, rkey), 5n);
  rkey.release();
}

async function moveStaged(near: End, far: End): Promise<void> {
  const bytes = new Uint8Array(200_000);
  fillPattern(bytes, 4);
  const mapped = ({ context }: End): MemoryHandle =>
    context.memMap({ allocate: bytes.byteLength, memoryType: MemoryType.GAUDI });
  const [here, there] = [mapped(near), mapped(far)];
  await here.write(bytes);
  const rkey = near.endpoint.unpackRkey(far.context.packRkey(there));
  assert.ok(near.endpoint.explain('put', here, rkey).chosen.every(({ protocol }) => protocol !== 'put/zcopy'));
  const host = far.context.memMap({ allocate: bytes.byteLength });
  const hostKey = near.endpoint.unpackRkey(far.context.packRkey(host));
  assert.match(JSON.stringify(near.endpoint.explain('put', here, hostKey)), /ibv_reg_dmabuf_mr: EOPNOTSUPP/);
  hostKey.release();
  await near.endpoint.put(here, rkey);
  await near.endpoint.flush();
  assert.deepEqual(await there.read(), bytes);
  rkey.release();
}

interface Ifaces {
  readonly md: MemoryDomain;
  readonly near: Iface;
  readonly far: Iface;
  readonly drive: (isDone: () => boolean) => Promise<void>;
}

/** Runs a check between the interfaces of the transport itself. */
async function withIfaces(run: (ifaces: Ifaces) => Promise<void>): Promise<void> {
  const config = loadConfig([IB_CONFIG_TABLE, RC_CONFIG_TABLE], { overrides: { IB_GID_INDEX: '0' } });
  const log = createLog('rdma', LogLevel.FATAL, () => {});
  const md = ibComponent(verbs).openMd({ log, clock: systemClock, config });
  const [near, far] = DEVICES.map((name) =>
    md.openIface(md.resources.find(({ device }) => device === `${name}:1`)!),
  ) as [Iface, Iface];
  const drive = async (isDone: () => boolean): Promise<void> => {
    while (!isDone()) if (near.progress() + far.progress() === 0) await new Promise(setImmediate);
  };
  try {
    await run({ md, near, far, drive });
  } finally {
    near.close();
    far.close();
    md.close();
  }
}

/** Sends an empty message: the connection is made. */
async function connected({ near, far, drive }: Ifaces): Promise<UctEndpoint> {
  const endpoint = near.connect(far.address);
  await drive(() => endpoint.amShort(1, new Int32Array(2), 2, undefined, 0, 0) === Status.OK);
  return endpoint;
}

async function sendRegistered(ifaces: Ifaces): Promise<void> {
  const { md, far, drive } = ifaces;
  const arrived: Uint8Array[] = [];
  far.setAmHandler((id, { bytes, offset, byteLength }) => {
    if (id === 2) arrived.push(bytes.slice(offset, offset + byteLength));
  });
  const endpoint = await connected(ifaces);
  const source = new Uint8Array(4000);
  fillPattern(source, 8);
  const memory = md.memReg(source);
  const completion = new CountingCompletion();
  const iov = [
    { memory, offset: 2000, byteLength: 2000 },
    { memory, offset: 0, byteLength: 2000 },
  ];
  assert.equal(endpoint.amZcopy!(2, Int32Array.of(1, 2), 2, iov, completion), Status.INPROGRESS);
  await drive(() => completion.calls > 0 && arrived.length > 0);
  assert.equal(completion.failure, Status.OK);
  const expected = [Buffer.from(Int32Array.of(1, 2).buffer), source.subarray(2000), source.subarray(0, 2000)];
  assert.deepEqual(arrived[0], new Uint8Array(Buffer.concat(expected)));
  md.memDereg(memory);
}

async function useDeadKey(ifaces: Ifaces): Promise<void> {
  const { md, near, drive } = ifaces;
  const failed: Status[] = [];
  near.setErrorHandler!((_endpoint, status) => failed.push(status));
  const owner = new Uint8Array(4096);
  const memory = md.memReg(owner);
  const packed = new Uint8Array(md.attributes.rkeyPackedBytes);
  md.mkeyPack(memory, packed, 0);
  // What a peer has of the key, which only the device of the owner can refuse.
  const key = md.rkeyUnpack(packed);
  Object.defineProperty(key, 'live', { value: true });
  const put = async (endpoint: UctEndpoint): Promise<Status> => {
    const completion = new CountingCompletion();
    const status = endpoint.putShort(new Uint8Array(64).fill(7), 0, 64, 0, key, completion);
    if (status !== Status.INPROGRESS) return status;
    await drive(() => completion.calls > 0);
    return completion.failure;
  };
  const endpoint = await connected(ifaces);
  assert.equal(await put(endpoint), Status.OK);
  md.memDereg(memory);
  assert.equal(await put(endpoint), Status.INVALID_ADDR);
  await drive(() => failed.length > 0);
  assert.deepEqual(failed, [Status.CONNECTION_RESET]);
  endpoint.close();
  (await connected(ifaces)).close();
}
