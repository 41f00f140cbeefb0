/** More operations than a worker has requests and a card has queue entries: they wait, start in their order, and end once. */

import { expect, it } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import { type ContextFixture, device, rkeyOf, type Stack } from '../../fixtures/contexts.ts';

export interface ManyOperations {
  /** Threads of the engines of the emulated cards. */
  readonly dmaThreads: number;
  readonly puts: number;
  /** Fewer than the puts. */
  readonly requestsMax: number;
}

/** Drives a worker until `isDone`. The event loop turns meanwhile, so that the time-out of the test ends what never is. */
export async function drive({ worker }: Pick<Stack, 'worker'>, isDone: () => boolean): Promise<void> {
  for (let turn = 0; !isDone(); turn++) {
    if (worker.progress() === 0 && turn % 1024 === 1023) await new Promise(setImmediate);
  }
}

/** The status of a request at its end, which frees it. */
export async function settle(stack: Pick<Stack, 'worker'>, request: Status | Request): Promise<Status> {
  if (typeof request === 'number') return request;
  await drive(stack, () => request.isCompleted);
  const { status } = request;
  request.free();
  return status;
}

/** Declares the tests. */
export function manyOperationsContract(fixture: ContextFixture, many: ManyOperations): void {
  const { dmaThreads, puts, requestsMax } = many;

  it('have a bounded number of requests: NO_RESOURCE beyond it, and again requests after some are freed', async () => {
    const config = { TLS: 'self', REQUESTS_MAX: `${requestsMax}` };
    const stack = await fixture.open({ context: { config } });
    const rkey = rkeyOf(stack, stack.context.memMap({ allocate: 8 }));
    const params = { noImmediateCompletion: true };
    const put = (): Status | Request => stack.endpoint.putNbx(new Uint8Array(8), 0, 8, rkey, 0, params);
    const requests: Request[] = [];
    for (let i = 0; i < requestsMax; i++) requests.push(put() as Request);
    expect(stack.worker.requestsInUse).toBe(requestsMax);
    expect(put()).toBe(Status.NO_RESOURCE);
    requests.pop()!.free();
    (put() as Request).free();
    for (const request of requests) request.free();
    expect(stack.worker.requestsInUse).toBe(0);
  });

  it('queue up beyond the resources, and every put arrives', async () => {
    const stack = await fixture.open({ node: { dmaThreads }, context: { config: { REQUESTS_MAX: `${requestsMax}` } } });
    const { endpoint, worker } = stack;
    const remote = device(stack, puts * 16);
    const rkey = rkeyOf(stack, remote);
    const source = new Uint8Array(puts * 16);
    for (let i = 0; i < source.length; i++) source[i] = (i * 7 + (i >> 8)) & 255;
    const ended: number[] = [];
    const statuses = new Set<Status>();
    let rejected = 0;
    for (let i = 0; i < puts; ) {
      const request = endpoint.putNbx(source, i * 16, 16, rkey, i * 16, {
        userData: i,
        callback: (done, status) => {
          statuses.add(status);
          ended.push(done.userData as number);
          done.free();
        },
      });
      if (request === Status.NO_RESOURCE) {
        rejected += 1;
        worker.progress();
      } else i += 1;
    }
    expect(rejected).toBeGreaterThan(0);
    expect(await settle(stack, endpoint.flushNbx())).toBe(Status.OK);
    expect(statuses).toEqual(new Set([Status.OK]));
    expect(new Set(ended).size).toBe(ended.length);
    // Those that waited started in their order.
    expect(ended).toEqual([...ended].sort((left, right) => left - right));
    const target = new Uint8Array(source.length);
    await endpoint.get(target, rkey);
    expect(Buffer.compare(source, target)).toBe(0);
    expect(worker.requestsInUse).toBe(0);
  });

  it('settle exactly once as promises, more than there are requests', async () => {
    const stack = await fixture.open({ node: { dmaThreads }, context: { config: { REQUESTS_MAX: `${requestsMax}` } } });
    const remote = device(stack, puts * 8);
    const rkey = rkeyOf(stack, remote);
    const source = new Uint8Array(puts * 8);
    for (let i = 0; i < source.length; i++) source[i] = (i * 13 + (i >> 7)) & 255;
    let settled = 0;
    const promises = Array.from({ length: puts }, async (_, i) => {
      const at = i * 8;
      await stack.endpoint.put(source, rkey, { offset: at, remoteOffset: at, byteLength: 8 });
      settled += 1;
    });
    await Promise.all(promises);
    expect(settled).toBe(puts);
    const target = new Uint8Array(source.length);
    await stack.endpoint.get(target, rkey);
    expect(Buffer.compare(source, target)).toBe(0);
    expect(stack.worker.requestsInUse).toBe(0);
  });

  it('give the request that an operation has not needed to the next that waits', async () => {
    const stack = await fixture.open({ node: { dmaThreads }, context: { config: { REQUESTS_MAX: '16' } } });
    const { endpoint, worker } = stack;
    const rkey = rkeyOf(stack, device(stack, 40 * 4096));
    const source = Uint8Array.from({ length: 40 * 4096 }, (_, i) => (i * 31 + (i >> 8)) & 255);
    const operations = Array.from({ length: 80 }, (_, i) => {
      const at = (i >> 1) * 4096;
      // Those of no bytes end without a request.
      return endpoint.put(source, rkey, { offset: at, remoteOffset: at, byteLength: i % 2 === 0 ? 0 : 4096 });
    });
    await Promise.all(operations);
    const target = new Uint8Array(source.length);
    await endpoint.get(target, rkey);
    expect(Buffer.compare(source, target)).toBe(0);
    expect(worker.requestsInUse).toBe(0);
  });

  it('keep the order of puts to one place when they had to wait', async () => {
    const stack = await fixture.open({ node: { dmaThreads } });
    const { endpoint, worker } = stack;
    const rkey = rkeyOf(stack, device(stack, 4));
    const source = new Uint8Array(puts * 4);
    new Uint32Array(source.buffer).forEach((_, i, words) => {
      words[i] = i + 1;
    });
    for (let i = 0; i < puts; ) {
      const status = endpoint.putNbx(source, i * 4, 4, rkey, 0, { callback: (request) => request.free() });
      if (status === Status.NO_RESOURCE) worker.progress();
      else i += 1;
    }
    expect(await settle(stack, worker.flushNbx())).toBe(Status.OK);
    const target = new Uint8Array(4);
    await endpoint.get(target, rkey);
    expect(new Uint32Array(target.buffer)[0]).toBe(puts);
  });
}
