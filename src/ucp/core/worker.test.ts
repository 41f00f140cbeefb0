import { afterEach, describe, expect, it } from 'vitest';
import { drive, manyOperationsContract, settle } from '../../../test/contract/ucp/ucp-many-operations.ts';
import { device, failureOf, rkeyOf, type Stack, useContexts } from '../../../test/fixtures/contexts.ts';
import { nativeWorker } from '../../../test/fixtures/libucp/native-engine.ts';
import { type Request, Status, type Worker } from '../../index.ts';

const fixture = useContexts();

describe('requests', () => {
  it('call back once, inside progress, with the request and its status', async () => {
    const stack = await fixture.open();
    const { endpoint, worker } = stack;
    const rkey = rkeyOf(stack, device(stack, 65536));
    const userData = { mine: true };
    const calls: [Status, unknown, string | undefined, string | undefined, string][] = [];
    let inside = false;
    const request = endpoint.putNbx(new Uint8Array(65536), 0, 65536, rkey, 0, {
      userData,
      callback: (ended, status) => {
        expect(inside).toBe(true);
        calls.push([status, ended.userData, ended.transport, ended.device, ended.protocol]);
      },
    }) as Request;
    expect(typeof request).toBe('object');
    for (let turn = 0; turn < 1e6 && !request.isCompleted; turn++) {
      inside = true;
      worker.progress();
      inside = false;
    }
    for (let turn = 0; turn < 100; turn++) worker.progress();
    expect(calls).toEqual([[Status.OK, userData, 'gaudi_cpy', 'gaudi0', 'put/zcopy']]);
    request.free();
    expect(worker.requestsInUse).toBe(0);
  });

  it('are given back in the callback too', async () => {
    const stack = await fixture.open();
    const rkey = rkeyOf(stack, device(stack, 8192));
    let ended = 0;
    for (let i = 0; i < 100; i++) {
      stack.endpoint.getNbx(new Uint8Array(8192), 0, 8192, rkey, 0, {
        callback: (request) => {
          ended += 1;
          request.free();
        },
      });
    }
    await drive(stack, () => ended === 100);
    expect(stack.worker.requestsInUse).toBe(0);
  });

  it('are returned for operations that ended at once, if asked for', async () => {
    const stack = await fixture.open({ context: { config: { TLS: 'self' } } });
    const remote = stack.context.memMap({ allocate: 64 });
    const rkey = rkeyOf(stack, remote);
    let called = 0;
    const params = { noImmediateCompletion: true, callback: () => (called += 1) };
    for (const byteLength of [8, 64]) {
      for (const operation of ['putNbx', 'getNbx'] as const) {
        const request = stack.endpoint[operation](new Uint8Array(64), 0, byteLength, rkey, 0, params) as Request;
        expect(request).toMatchObject({ status: Status.OK, isCompleted: true, transport: 'self', device: 'memory' });
        request.free();
      }
    }
    const flushed = stack.endpoint.flushNbx(params) as Request;
    expect(flushed).toMatchObject({ status: Status.OK, protocol: 'flush', transport: undefined });
    flushed.free();
    expect(called).toBe(5);
    // Without the wish there is neither request nor callback.
    expect(stack.endpoint.putNbx(new Uint8Array(8), 0, 8, rkey, 0, { callback: () => (called += 1) })).toBe(Status.OK);
    expect(called).toBe(5);
  });

  it('are not in the pool before their end, when they are given back early', async () => {
    const stack = await fixture.open();
    const rkey = rkeyOf(stack, device(stack, 65536));
    const request = stack.endpoint.putNbx(new Uint8Array(65536), 0, 65536, rkey, 0) as Request;
    let refused = false;
    try {
      request.free();
    } catch {
      refused = true;
    }
    const inUse = stack.worker.requestsInUse;
    await drive(stack, () => nativeWorker(stack.worker).ifaces.every((iface) => iface.outstanding === 0));
    expect(inUse).toBe(1);
    // Rejected, or freed automatically at its end as in UCX.
    if (refused) request.free();
    expect(stack.worker.requestsInUse).toBe(0);
  });

  it('from one buffer end one by one without disturbing each other', async () => {
    const stack = await fixture.open({ node: { dmaThreads: 1 } });
    const remote = device(stack, 40 * 65536);
    const rkey = rkeyOf(stack, remote);
    const source = new Uint8Array(40 * 65536);
    for (let i = 0; i < source.length; i++) source[i] = (i * 31 + (i >> 12)) & 255;
    const puts = Array.from({ length: 40 }, (_, i) =>
      stack.endpoint.put(source, rkey, { offset: i * 65536, remoteOffset: i * 65536, byteLength: 65536 }),
    );
    await Promise.all(puts);
    const target = new Uint8Array(source.length);
    const gets = Array.from({ length: 40 }, (_, i) =>
      stack.endpoint.get(target, rkey, { offset: i * 65536, remoteOffset: i * 65536, byteLength: 65536 }),
    );
    await Promise.all(gets);
    expect(Buffer.compare(source, target)).toBe(0);
    expect(stack.worker.requestsInUse).toBe(0);
  });

  it('are refused when they are given back twice', async () => {
    const stack = await fixture.open();
    const rkey = rkeyOf(stack, device(stack, 65536));
    const request = stack.endpoint.putNbx(new Uint8Array(65536), 0, 65536, rkey, 0) as Request;
    await drive(stack, () => request.isCompleted);
    request.free();
    const twice = await failureOf(() => request.free());
    expect(['ERR_INVALID_PARAM', 'ERR_POOL_OVERFLOW']).toContain(twice.code);
    expect(stack.worker.requestsInUse).toBe(0);
  });
});

describe.each([0, 1])('many operations with %s engine threads', (dmaThreads) => {
  manyOperationsContract(fixture, { dmaThreads, puts: 300, requestsMax: 200 });
});

describe('cancelling', () => {
  /** Fills the queues, so that the next operation has to wait. */
  function fillQueues({ endpoint }: Stack, rkey: ReturnType<typeof rkeyOf>): { ended: number; started: number } {
    const counts = { ended: 0, started: 0 };
    for (let i = 0; i < 200; i++) {
      const status = endpoint.getNbx(new Uint8Array(8), 0, 8, rkey, 0, {
        callback: (request) => {
          counts.ended += 1;
          request.free();
        },
      });
      if (typeof status !== 'number') counts.started += 1;
    }
    return counts;
  }

  it('ends a queued request with CANCELED, once, and leaves the others alone', async () => {
    const stack = await fixture.open();
    const rkey = rkeyOf(stack, device(stack, 64));
    const counts = fillQueues(stack, rkey);
    const statuses: Status[] = [];
    const target = new Uint8Array(8).fill(0xee);
    const request = stack.endpoint.getNbx(target, 0, 8, rkey, 0, {
      callback: (_request, status) => statuses.push(status),
    }) as Request;
    expect(nativeWorker(stack.worker).hasPending).toBe(true);
    expect(request.cancel()).toBe(true);
    expect(statuses).toEqual([Status.CANCELED]);
    expect(request.cancel()).toBe(false);
    request.free();
    await drive(stack, () => counts.ended === counts.started);
    expect(statuses).toEqual([Status.CANCELED]);
    expect(target).toEqual(new Uint8Array(8).fill(0xee));
    expect(stack.worker.requestsInUse).toBe(0);
  });

  it('is too late for a request on its way', async () => {
    const stack = await fixture.open({ node: { dmaThreads: 1 } });
    const rkey = rkeyOf(stack, device(stack, 2 ** 20));
    const request = stack.endpoint.putNbx(new Uint8Array(2 ** 20), 0, 2 ** 20, rkey, 0) as Request;
    expect(request.cancel()).toBe(false);
    expect(await settle(stack, request)).toBe(Status.OK);
  });

  it('by a signal that has fired rejects before anything moves', async () => {
    const stack = await fixture.open();
    const remote = device(stack, 8);
    const rkey = rkeyOf(stack, remote);
    await stack.endpoint.put(new Uint8Array(8).fill(1), rkey);
    const reason = new Error('changed my mind');
    const signal = AbortSignal.abort(reason);
    for (const run of [
      () => stack.endpoint.put(new Uint8Array(8).fill(2), rkey, { signal }),
      () => stack.endpoint.get(new Uint8Array(8), rkey, { signal }),
      () => stack.endpoint.flush({ signal }),
      () => stack.worker.flush({ signal }),
    ]) {
      await expect(run()).rejects.toMatchObject({ name: 'AbortError', code: 'ABORT_ERR', cause: reason });
    }
    const target = new Uint8Array(8);
    await stack.endpoint.get(target, rkey);
    expect(target).toEqual(new Uint8Array(8).fill(1));
  });

  it.each([64, 2 ** 20])('by a signal during a transfer of %s bytes does not lose it', async (byteLength) => {
    const stack = await fixture.open({ node: { dmaThreads: 1 } });
    const remote = device(stack, byteLength);
    const rkey = rkeyOf(stack, remote);
    const stopped = (): AbortSignal => {
      const controller = new AbortController();
      queueMicrotask(() => controller.abort('too slow'));
      return controller.signal;
    };
    // Nobody knows whether the bytes of a put have arrived.
    const put = stack.endpoint.put(new Uint8Array(byteLength).fill(7), rkey, { signal: stopped() });
    await expect(put).rejects.toMatchObject({ name: 'AbortError', code: 'ABORT_ERR', cause: 'too slow' });
    await stack.endpoint.flush();
    const bytes = new Uint8Array(byteLength);
    expect(await stack.endpoint.get(bytes, rkey, { signal: stopped() })).toMatchObject({ byteLength });
    expect(bytes).toEqual(new Uint8Array(byteLength).fill(7));
    expect(stack.worker.requestsInUse).toBe(0);
    // The memory that was pinned for the transfer is not in use any more.
    stack.context.memUnmap(remote);
  });

  it('by a signal of operations that wait for resources settles them all', async () => {
    const stack = await fixture.open();
    const rkey = rkeyOf(stack, device(stack, 64));
    fillQueues(stack, rkey);
    const controller = new AbortController();
    const waiting = Array.from({ length: 50 }, () =>
      stack.endpoint.get(new Uint8Array(8), rkey, { signal: controller.signal }),
    );
    controller.abort();
    const results = await Promise.allSettled(waiting);
    for (const result of results) {
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'ABORT_ERR' } });
    }
    await stack.worker.flush();
    expect(stack.worker.requestsInUse).toBe(0);
    // Node warns about signals with many listeners a little later, and a warning fails a test.
    await new Promise(setImmediate);
  });

  it('leaves no listeners on a signal that is used often', async () => {
    const stack = await fixture.open();
    const rkey = rkeyOf(stack, device(stack, 4096));
    const controller = new AbortController();
    let listeners = 0;
    const { signal } = controller;
    const counting = new Proxy(signal, {
      get(target, name) {
        if (name === 'addEventListener') listeners += 1;
        if (name === 'removeEventListener') listeners -= 1;
        const value = Reflect.get(target, name, target) as unknown;
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    for (let i = 0; i < 50; i++) await stack.endpoint.put(new Uint8Array(4096), rkey, { signal: counting });
    expect(listeners).toBe(0);
  });
});

describe('several workers', () => {
  let workers: Worker[] = [];
  afterEach(async () => {
    for (const worker of workers) await worker.close();
    workers = [];
  });

  it('of one context transfer side by side', async () => {
    const stack = await fixture.open({ node: { dmaThreads: 1 } });
    const remote = device(stack, 4 * 65536);
    const rkey = rkeyOf(stack, remote);
    workers = [0, 1, 2].map(() => stack.context.worker());
    const endpoints = [stack.endpoint, ...workers.map((worker) => worker.endpoint(worker.address()))];
    const puts = endpoints.map((endpoint, i) =>
      endpoint.put(new Uint8Array(65536).fill(i + 1), rkeyOf({ ...stack, endpoint }, remote), {
        remoteOffset: i * 65536,
      }),
    );
    await Promise.all(puts);
    const target = new Uint8Array(4 * 65536);
    await stack.endpoint.get(target, rkey);
    expect([0, 1, 2, 3].map((i) => target[i * 65536 + 777])).toEqual([1, 2, 3, 4]);
  });

  it('live on when one of them is closed', async () => {
    const stack = await fixture.open();
    const remote = device(stack, 4096);
    const rkey = rkeyOf(stack, remote);
    const other = stack.context.worker();
    const endpoint = other.endpoint(other.address());
    await endpoint.put(new Uint8Array(4096).fill(1), rkeyOf({ ...stack, endpoint }, remote));
    await other.close();
    await stack.endpoint.put(new Uint8Array(4096).fill(2), rkey);
    const target = new Uint8Array(4096);
    await stack.endpoint.get(target, rkey);
    expect(target).toEqual(new Uint8Array(4096).fill(2));
  });

  it('do not end the transfers of others when they are closed', async () => {
    const stack = await fixture.open({ node: { dmaThreads: 1 } });
    const remote = device(stack, 8 * 2 ** 20);
    const rkey = rkeyOf(stack, remote);
    const other = stack.context.worker();
    const put = stack.endpoint.put(new Uint8Array(8 * 2 ** 20).fill(5), rkey);
    await other.close();
    expect(await put).toMatchObject({ byteLength: 8 * 2 ** 20 });
  });

  it('have addresses of their own, and refuse what is none', async () => {
    const stack = await fixture.open();
    const other = stack.context.worker();
    const address = other.address();
    expect(address).not.toEqual(stack.worker.address());
    for (const bad of [undefined, 'address', {}]) {
      const error = await failureOf(() => stack.worker.endpoint(bad as never));
      expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', details: { argument: 'address' } });
    }
    for (const bad of [new Uint8Array(0), new Uint8Array(16), address.subarray(1)]) {
      const error = await failureOf(() => stack.worker.endpoint(bad));
      expect(error, String(bad)).toMatchObject({ code: 'ERR_ADDRESS_MALFORMED', status: Status.INVALID_PARAM });
    }
    // An address is a copy: writing to it changes nothing.
    stack.worker.address().fill(0);
    await stack.worker.endpoint(stack.worker.address()).close();
  });
});
