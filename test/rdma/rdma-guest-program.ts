/**
 * What `npm run test:rdma` runs in the guest: the binding to libibverbs and the transport rc over two devices of rdma_rxe, `rxe0` and `rxe1`. Prints one line per check;
 * a failure ends it with code 1. Not a test file: no test runner is needed in the guest.
 */

import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { Context, Status } from '../../src/index.ts';
import { memfdCreate } from '../../src/sys/index.ts';
import { WcStatus, WrOpcode } from '../../src/verbs/abi.ts';
import { Libibverbs } from '../../src/verbs/libibverbs/libibverbs.ts';
import { loadLibibverbs } from '../../src/verbs/libibverbs/library.ts';
import { fillPattern } from '../fixtures/pattern.ts';
import { type Completed, RdmaEnd } from '../fixtures/rdma-end.ts';

const DEVICES = ['rxe0', 'rxe1'] as const;
const POLL_MS = 1;
const TURNS_MAX = 20_000;

let failures = 0;
async function check(name: string, run: () => void | Promise<void>): Promise<void> {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED ${name}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }
}

const verbs = new Libibverbs(loadLibibverbs());

/** Polls until there is a completion. */
async function completion(end: RdmaEnd): Promise<Completed> {
  for (let turn = 0; turn < TURNS_MAX; turn++) {
    const [completed] = end.poll();
    if (completed !== undefined) return completed;
    await pause(POLL_MS);
  }
  throw new Error('no completion');
}

/** Runs a check between one end on each device. */
async function withEnds(run: (near: RdmaEnd, far: RdmaEnd) => Promise<void>): Promise<void> {
  const contexts = DEVICES.map((name) => verbs.open(name));
  const [near, far] = [new RdmaEnd(contexts[0]!), new RdmaEnd(contexts[1]!)];
  try {
    near.connect(far, { pathMtu: 3 });
    await run(near, far);
  } finally {
    near.close();
    far.close();
    for (const context of contexts) context.close();
  }
}

await check('libibverbs lists both devices', () => {
  assert.deepEqual(
    verbs
      .devices()
      .map(({ name }) => name)
      .sort(),
    [...DEVICES],
  );
});

await check('writes and reads move the bytes', () =>
  withEnds(async (near, far) => {
    fillPattern(near.memory.u8.subarray(0, 20_000), 3);
    assert.equal(near.write(1, 0, 20_000, far, 4096), 0);
    assert.deepEqual([(await completion(near)).status], [WcStatus.SUCCESS]);
    assert.deepEqual(far.memory.u8.slice(4096, 24_096), near.memory.u8.slice(0, 20_000));
    fillPattern(far.memory.u8.subarray(0, 3000), 9);
    assert.equal(near.read(2, 30_000, 3000, far, 0), 0);
    assert.deepEqual([(await completion(near)).status], [WcStatus.SUCCESS]);
    assert.deepEqual(near.memory.u8.slice(30_000, 33_000), far.memory.u8.slice(0, 3000));
  }),
);

await check('messages arrive with their immediate data, also inline', () =>
  withEnds(async (near, far) => {
    fillPattern(near.memory.u8.subarray(0, 500), 5);
    assert.equal(far.receive(7, 1000, 4096), 0);
    assert.equal(near.send(1, 0, 500, 0x1234), 0);
    const { status, byteLength, id } = await completion(far);
    assert.deepEqual([status, byteLength, id], [WcStatus.SUCCESS, 500, 7]);
    assert.equal((await completion(near)).status, WcStatus.SUCCESS);
    assert.deepEqual(far.memory.u8.slice(1000, 1500), near.memory.u8.slice(0, 500));
    assert.equal(far.receive(8, 0, 64), 0);
    assert.equal(near.inline(2, Uint8Array.of(1, 2, 3)), 0);
    assert.equal((await completion(far)).byteLength, 3);
    assert.deepEqual([...far.memory.u8.slice(0, 3)], [1, 2, 3]);
  }),
);

await check('atomic operations of 64 bits return the word before', () =>
  withEnds(async (near, far) => {
    const word = new DataView(far.memory.buffer, 0, 8);
    word.setBigUint64(0, 40n, true);
    assert.equal(near.atomic(WrOpcode.ATOMIC_FETCH_AND_ADD, 1, 64, far, 0, [2n, 0n]), 0);
    assert.equal((await completion(near)).status, WcStatus.SUCCESS);
    assert.equal(word.getBigUint64(0, true), 42n);
    assert.equal(new DataView(near.memory.buffer, 64, 8).getBigUint64(0, true), 40n);
    assert.equal(near.atomic(WrOpcode.ATOMIC_CMP_AND_SWP, 2, 64, far, 0, [42n, 7n]), 0);
    assert.equal((await completion(near)).status, WcStatus.SUCCESS);
    assert.equal(word.getBigUint64(0, true), 7n);
  }),
);

await check('a write outside the region fails with a remote access error', () =>
  withEnds(async (near, far) => {
    assert.equal(near.write(1, 0, 64, far, 10_000_000), 0);
    assert.equal((await completion(near)).status, WcStatus.REM_ACCESS_ERR);
  }),
);

await check('rxe refuses dma-bufs', () => {
  const context = verbs.open('rxe0');
  const pd = context.allocPd();
  const fd = memfdCreate('not-a-dmabuf');
  try {
    assert.throws(() => pd.regDmabufMr(fd, 0, 4096, 0, 1), /ibv_reg_dmabuf_mr/);
  } finally {
    pd.close();
    context.close();
  }
});

await check('rc of this package moves puts, gets, messages and atomic operations', async () => {
  const env = {
    UCX_IB_DRIVER: 'verbs',
    UCX_TLS: 'rc',
    UCX_GAUDI_DRIVER: 'emulator',
    UCX_GAUDI_EMULATOR_CARDS: '1',
    UCX_IB_GID_INDEX: '0',
  };
  const one = await Context.create({ env: { ...env, UCX_NET_DEVICES: 'rxe0:1' }, configDirectories: [] });
  const two = await Context.create({ env: { ...env, UCX_NET_DEVICES: 'rxe1:1' }, configDirectories: [] });
  const [near, far] = [one.worker(), two.worker()];
  const serving = new AbortController();
  const served = far.serve(serving.signal);
  const endpoint = near.endpoint(far.address());
  const memory = two.memMap({ allocate: 2 ** 20 });
  const rkey = endpoint.unpackRkey(two.packRkey(memory));
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
  const receiving = far.tagRecv(received, { tag: 5 });
  await endpoint.tagSend(source.subarray(0, 70_000), { tag: 5 });
  await receiving;
  assert.deepEqual(received, source.slice(0, 70_000));
  new DataView(memory.bytes!.buffer, memory.bytes!.byteOffset, 8).setBigUint64(0, 5n, true);
  assert.equal(await endpoint.atomic('add', 3n, rkey), 5n);
  rkey.release();
  serving.abort();
  await served;
  await endpoint.close();
  await one.close();
  await two.close();
  assert.equal(Status.OK, 0);
});

console.log(failures === 0 ? 'all checks passed' : `${failures} checks failed`);
process.exitCode = failures === 0 ? 0 : 1;
