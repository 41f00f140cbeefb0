/** Causes that cards report, over both engines: after the node server of a program was killed every operation on their memory says so, and a failed transfer names its card. */

import { expect, it, onTestFinished } from 'vitest';
import { connectEmulatedNode, createEmulatedNode } from '../../../src/emulator/index.ts';
import { Context, MemoryType, Status } from '../../../src/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { requires } from '../../fixtures/requires.ts';

const BYTES = 65_536;
const { skipReason } = installedLibucp();

it.each(['native', 'libucx'] as const)(
  'the killed node server is named by put, get, message and atomic operation over %s',
  async (engine) => {
    if (engine === 'libucx') requires(skipReason === undefined, skipReason ?? '');
    const server = await TestNodeServer.start({ cards: 1 });
    const node = connectEmulatedNode(server.socketPath);
    const context = await Context.create({ node, engine, env: {}, configDirectories: [], logSink: () => undefined });
    onTestFinished(async () => {
      await context.close();
      node.close();
      await server.stop();
    });
    const worker = context.worker();
    // Software atomics need it from UCX 1.16 on.
    const endpoint = worker.endpoint(worker.address(), { errorHandling: 'none' });
    const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const host = context.memMap({ allocate: BYTES });
    const [toHbm, toHost] = [hbm, host].map((memory) => endpoint.unpackRkey(context.packRkey(memory)));
    await endpoint.put(new Uint8Array(BYTES), toHbm!);
    await server.kill();
    const stop = new AbortController();
    worker.tagRecv(new Uint8Array(BYTES), { tag: 5, signal: stop.signal }).catch(() => undefined);
    worker.setAmHandler(3, (message) => {
      if (message.isRendezvous) message.into(new Uint8Array(BYTES)).catch(() => undefined);
    });
    const operations: Readonly<Record<string, () => Promise<unknown>>> = {
      put: () => endpoint.put(new Uint8Array(BYTES), toHbm!),
      'short put': () => endpoint.put(new Uint8Array(8), toHbm!),
      'put of HBM': () => endpoint.put(hbm, toHost!),
      'put of HBM to HBM': () => endpoint.put(hbm, toHbm!),
      get: () => endpoint.get(new Uint8Array(BYTES), toHbm!),
      'get into HBM': () => endpoint.get(hbm, toHost!),
      // Whether a message is sent before its receiver is known depends on the engine.
      tag: () => endpoint.tagSend(hbm, { tag: 5 }),
      am: () => endpoint.amSend(3, hbm),
      atomic: () => endpoint.atomic('add', 1n, toHbm!),
    };
    const wrong: Record<string, unknown> = {};
    for (const [name, run] of Object.entries(operations)) {
      const error = await failureOf(run);
      if (!error.message.includes(server.socketPath)) wrong[name] = [error.code, error.message];
    }
    expect(wrong).toEqual({});
    stop.abort();
  },
  60_000,
);

it.each(['native', 'libucx'] as const)('a failed transfer names its card over %s', async (engine) => {
  if (engine === 'libucx') requires(skipReason === undefined, skipReason ?? '');
  const node = createEmulatedNode({ cards: 1 });
  const context = await Context.create({ node, engine, env: {}, configDirectories: [], logSink: () => undefined });
  onTestFinished(async () => {
    await context.close();
    node.close();
  });
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
  const toHbm = endpoint.unpackRkey(context.packRkey(hbm));
  const source = new Uint8Array(BYTES);
  await endpoint.put(source, toHbm);
  const { busId } = node.cards()[0]!;
  node.inject(0, { kind: 'unplug' });
  const cause = { code: 'ERR_GAUDI_DMA_FAILED', details: { busId } };
  expect(await failureOf(() => endpoint.put(source, toHbm))).toMatchObject({ status: Status.IO_ERROR, cause });
});
