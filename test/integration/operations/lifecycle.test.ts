/** The end of contexts, workers, endpoints and memory: with operations in flight, twice, in the wrong order, and by `await using`. */

import { describe, expect, it } from 'vitest';
import { getDramUsage, openControl } from '../../../src/hlthunk/index.ts';
import { Context, isUcxError, MemoryType, type Request, Status } from '../../../src/index.ts';
import { device, failureOf, rkeyOf, useContexts } from '../../fixtures/contexts.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';

const fixture = useContexts();
const MEBIBYTE = 2 ** 20;

describe.each([0, 1])('closing with %s engine threads', { timeout: 5000 }, (dmaThreads) => {
  const node = { dmaThreads };

  it.each(['endpoint', 'worker', 'context'] as const)(
    'the %s with operations in flight settles each once',
    async (what) => {
      const stack = await fixture.open({ node });
      const remote = device(stack, 8 * MEBIBYTE);
      const rkey = rkeyOf(stack, remote);
      let settled = 0;
      const source = new Uint8Array(MEBIBYTE).fill(9);
      const operations = Array.from({ length: 64 }, (_, i) => {
        const options = { remoteOffset: (i % 8) * MEBIBYTE };
        const operation =
          i % 2 === 0
            ? stack.endpoint.put(source, rkey, options)
            : stack.endpoint.get(new Uint8Array(512), rkey, options);
        return operation.finally(() => {
          settled += 1;
        });
      });
      const all = Promise.allSettled(operations);
      await stack[what].close();
      const results = await all;
      expect(settled).toBe(64);
      for (const result of results) {
        if (result.status === 'rejected') expect(isUcxError(result.reason), String(result.reason)).toBe(true);
      }
      expect(stack.worker.requestsInUse).toBe(0);
    },
  );

  it('calls the callbacks of nbx operations once each', async () => {
    const stack = await fixture.open({ node });
    const rkey = rkeyOf(stack, device(stack, MEBIBYTE));
    const calls = new Map<number, Status[]>();
    for (let i = 0; i < 300; i++) {
      const started = stack.endpoint.getNbx(new Uint8Array(1000), 0, 1000, rkey, i, {
        callback: (request, status) => {
          calls.set(i, [...(calls.get(i) ?? []), status]);
          request.free();
        },
      });
      expect(typeof started).toBe('object');
    }
    await stack.context.close();
    expect(calls.size).toBe(300);
    for (const statuses of calls.values()) {
      expect(statuses).toHaveLength(1);
      expect([Status.OK, Status.CANCELED]).toContain(statuses[0]);
    }
  });

  it('waits for the operations of a flush', async () => {
    const stack = await fixture.open({ node });
    const remote = device(stack, MEBIBYTE);
    const rkey = rkeyOf(stack, remote);
    const bytes = new Uint8Array(MEBIBYTE).fill(0x5a);
    const request = stack.endpoint.putNbx(bytes, 0, MEBIBYTE, rkey, 0) as Request;
    await stack.endpoint.close();
    expect(request.status).toBe(Status.OK);
    request.free();
    const again = stack.worker.endpoint(stack.worker.address());
    const target = new Uint8Array(MEBIBYTE);
    await again.get(target, again.unpackRkey(stack.context.packRkey(remote)));
    expect(Buffer.compare(target, bytes)).toBe(0);
  });
});

describe('closing', () => {
  it('can be repeated, also concurrently', async () => {
    const { context, worker, endpoint } = await fixture.open();
    for (const part of [endpoint, worker, context]) {
      await Promise.all([part.close(), part.close()]);
      await part.close();
      await part[Symbol.asyncDispose]();
      expect(part.closed).toBe(true);
    }
  });

  it('happens at the end of a scope', async () => {
    const node = fixture.node();
    let kept: Context;
    {
      await using context = await Context.create(fixture.quiet({ node }));
      await using worker = context.worker();
      await using endpoint = worker.endpoint(worker.address());
      const hbm = context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI });
      await endpoint.put(new Uint8Array(64), endpoint.unpackRkey(context.packRkey(hbm)));
      kept = context;
    }
    expect(kept.closed).toBe(true);
    node.open(0).close();
  });

  it('of a context frees mapped memory, and its cards', async () => {
    const stack = await fixture.open();
    const handles = [
      device(stack, 2 ** 30),
      device(stack, 64, 1),
      stack.context.memMap({ allocate: MEBIBYTE }),
      stack.context.memMap({ buffer: new Uint8Array(MEBIBYTE) }),
    ];
    await stack.context.close();
    for (const handle of handles) expect(handle.mapped).toBe(false);
    for (const { minor } of stack.node.cards()) stack.node.open(minor).close();
  });

  it('makes all later calls fail', async () => {
    const stack = await fixture.open();
    const { context, worker, endpoint } = stack;
    const hbm = device(stack, 64);
    const rkey = rkeyOf(stack, hbm);
    const packed = context.packRkey(hbm);
    const bytes = new Uint8Array(64);
    const ofEndpoint = {
      put: () => endpoint.put(bytes, rkey),
      get: () => endpoint.get(bytes, rkey),
      putNbx: () => endpoint.putNbx(bytes, 0, 64, rkey, 0),
      getNbx: () => endpoint.getNbx(bytes, 0, 64, rkey, 0),
      flush: () => endpoint.flush(),
      flushNbx: () => endpoint.flushNbx(),
      unpackRkey: () => endpoint.unpackRkey(packed),
      explain: () => endpoint.explain('put', bytes, rkey),
    };
    const ofWorker = {
      endpoint: () => worker.endpoint(worker.address()),
      flush: () => worker.flush(),
      flushNbx: () => worker.flushNbx(),
    };
    const ofContext = {
      worker: () => context.worker(),
      memMap: () => context.memMap({ allocate: 64 }),
      memUnmap: () => context.memUnmap(hbm),
      packRkey: () => context.packRkey(hbm),
    };
    const expectClosed = async (calls: Readonly<Record<string, () => unknown>>): Promise<void> => {
      for (const [name, call] of Object.entries(calls)) {
        const error = await failureOf(call);
        expect(isUcxError(error), `${name}: ${error.message}`).toBe(true);
        expect(error.status).toBe(Status.INVALID_PARAM);
      }
    };
    await endpoint.close();
    await expectClosed(ofEndpoint);
    await worker.close();
    await expectClosed({ ...ofEndpoint, ...ofWorker });
    worker.progress();
    await context.close();
    await expectClosed({ ...ofEndpoint, ...ofWorker, ...ofContext });
  });

  it('of a worker permits another one', async () => {
    const { context, worker } = await fixture.open();
    await worker.close();
    const next = context.worker();
    const endpoint = next.endpoint(next.address());
    const hbm = context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    expect(await endpoint.put(new Uint8Array(64), rkey)).toMatchObject({ byteLength: 64 });
  });
});

describe('memory in use', () => {
  it.each(['hbm', 'registered', 'allocated'] as const)('%s cannot be unmapped, and is not changed', async (kind) => {
    const stack = await fixture.open({ node: { dmaThreads: 1 } });
    const remote = device(stack, 16 * MEBIBYTE);
    const local =
      kind === 'registered'
        ? stack.context.memMap({ buffer: new Uint8Array(16 * MEBIBYTE).fill(7) })
        : stack.context.memMap({ allocate: 16 * MEBIBYTE });
    local.bytes!.fill(7);
    const used = kind === 'hbm' ? remote : local;
    const rkey = rkeyOf(stack, remote);
    const request = stack.endpoint.putNbx(local, 0, 16 * MEBIBYTE, rkey, 0) as Request;
    const error = await failureOf(() => stack.context.memUnmap(used));
    expect(error).toMatchObject({ status: Status.BUSY });
    expect(used.mapped).toBe(true);
    while (!request.isCompleted) stack.worker.progress();
    expect(request.status).toBe(Status.OK);
    request.free();
    const target = new Uint8Array(16 * MEBIBYTE);
    await stack.endpoint.get(target, rkey);
    expect(target.every((byte) => byte === 7)).toBe(true);
    // The handle is still valid.
    await stack.endpoint.put(local, rkey);
    stack.context.memUnmap(used);
    expect(used.mapped).toBe(false);
  });

  it.each(['y', 'n'])('may lose one of its handles, and not the last, with GAUDI_COPY_RCACHE=%s', async (cache) => {
    const stack = await fixture.open({ context: { config: { GAUDI_COPY_RCACHE: cache } } });
    const { context, endpoint, worker } = stack;
    const rkey = rkeyOf(stack, device(stack, MEBIBYTE));
    const all = new Uint8Array(2 * MEBIBYTE).fill(6);
    const [used, sibling] = [0, MEBIBYTE].map((from) =>
      context.memMap({ buffer: all.subarray(from, from + MEBIBYTE) }),
    );
    const request = endpoint.putNbx(used!, 0, MEBIBYTE, rkey, 0) as Request;
    context.memUnmap(sibling!);
    expect(await failureOf(() => context.memUnmap(used!))).toMatchObject({ status: Status.BUSY });
    expect([used!.mapped, sibling!.mapped]).toEqual([true, false]);
    while (!request.isCompleted) worker.progress();
    expect(request.status).toBe(Status.OK);
    request.free();
    await endpoint.put(used!, rkey);
    context.memUnmap(used!);
    const target = new Uint8Array(MEBIBYTE);
    await endpoint.get(target, rkey);
    expect(Buffer.compare(target, all.subarray(0, MEBIBYTE))).toBe(0);
  });

  it('without a registration cache cannot be unmapped either, and is freed completely later', async () => {
    const stack = await fixture.open({ node: { dmaThreads: 1 }, context: { config: { GAUDI_COPY_RCACHE: 'n' } } });
    const rkey = rkeyOf(stack, device(stack, 16 * MEBIBYTE));
    const local = stack.context.memMap({ buffer: new Uint8Array(16 * MEBIBYTE) });
    const request = stack.endpoint.putNbx(local, 0, 16 * MEBIBYTE, rkey, 0) as Request;
    expect(await failureOf(() => stack.context.memUnmap(local))).toMatchObject({ status: Status.BUSY });
    while (!request.isCompleted) stack.worker.progress();
    request.free();
    stack.context.memUnmap(local);
  });

  it('is kept for the whole of a queued operation', async () => {
    const stack = await fixture.open();
    const remote = device(stack, 65536);
    const rkey = rkeyOf(stack, remote);
    const pending: Request[] = [];
    for (let i = 0; i < 200; i++) {
      const request = stack.endpoint.getNbx(new Uint8Array(8), 0, 8, rkey, 0);
      if (typeof request !== 'number') pending.push(request);
    }
    expect(nativeWorker(stack.worker).hasPending).toBe(true);
    const local = stack.context.memMap({ buffer: new Uint8Array(65536).fill(4) });
    const queued = stack.endpoint.putNbx(local, 0, 65536, rkey, 0) as Request;
    let refused: unknown;
    try {
      stack.context.memUnmap(local);
    } catch (error) {
      refused = error;
    }
    while (!queued.isCompleted) stack.worker.progress();
    // Either the memory was kept until the end, or the operation failed because it was unmapped.
    if (refused === undefined) expect([Status.INVALID_ADDR, Status.INVALID_PARAM]).toContain(queued.status);
    else expect(queued.status).toBe(Status.OK);
    for (const request of [...pending, queued]) {
      while (!request.isCompleted) stack.worker.progress();
      request.free();
    }
  });
});

describe('several contexts in one process', () => {
  it('have nodes of their own', async () => {
    const stacks = [
      await fixture.open(),
      await fixture.open({ node: { asic: 'gaudi3' } }),
      await fixture.open({ node: { asic: 'gaudi' } }),
    ];
    const memory = stacks.map((stack) => ({ stack, rkey: rkeyOf(stack, device(stack, 65536)) }));
    await Promise.all(memory.map(({ stack, rkey }, i) => stack.endpoint.put(new Uint8Array(65536).fill(i + 1), rkey)));
    for (const [i, { stack, rkey }] of memory.entries()) {
      const target = new Uint8Array(65536);
      await stack.endpoint.get(target, rkey);
      expect(target).toEqual(new Uint8Array(65536).fill(i + 1));
      await stack.context.close();
    }
  });

  it('share the cards of one node: each card has one owner', async () => {
    const node = fixture.node({ cards: 2 });
    fixture.allow(/^gaudi[01] is left out: .*this process has it open/);
    const first = await fixture.openOn(node, {
      env: { GAUDI_MAPPING_TABLE: JSON.stringify([{ index: 0, bus_id: node.cards()[0]!.busId }]) },
    });
    const second = await fixture.openOn(node);
    expect(first.endpoint.transports).toContain('gaudi_cpy/gaudi0');
    expect(second.endpoint.transports.filter((name) => name.startsWith('gaudi_cpy'))).toHaveLength(1);
    await first.context.close();
    const third = await fixture.openOn(node);
    expect(third.endpoint.transports.filter((name) => name.startsWith('gaudi_cpy'))).toHaveLength(1);
  });

  it('map and unmap again and again without growing', async () => {
    const stack = await fixture.open();
    const usage = (): bigint => {
      const control = openControl(stack.node, 0);
      const { ctxDramMem } = getDramUsage(control);
      control.close();
      return ctxDramMem;
    };
    stack.context.memUnmap(device(stack, MEBIBYTE));
    const before = usage();
    for (let i = 0; i < 500; i++) {
      const handles = [device(stack, MEBIBYTE + i), stack.context.memMap({ allocate: 4096 + i })];
      for (const handle of handles) stack.context.memUnmap(handle);
    }
    expect(usage()).toBe(before);
  });
});
