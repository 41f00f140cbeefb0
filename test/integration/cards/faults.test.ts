/** Faults of cards from the view of a program: every pending operation settles with the right status, and the node can be used again. */

import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { EmulatedNode } from '../../../src/emulator/index.ts';
import { isUcxError, MemoryType, type Request, Status } from '../../../src/index.ts';
import { Errno } from '../../../src/sys/index.ts';
import { ASIC_PROFILES, type AsicName } from '../../../src/uapi/index.ts';
import { ManualClock, systemClock } from '../../../src/ucs/sys/clock.ts';
import { device, failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { requires } from '../../fixtures/requires.ts';

const fixture = useContexts();
const MEBIBYTE = 2 ** 20;
const CARDS: readonly (readonly [AsicName, number])[] = [
  ['gaudi2', 0],
  ['gaudi2', 1],
  ['gaudi3', 0],
  ['gaudi3', 1],
];

/** The results of promises, as the status of their errors. */
async function outcomes(promises: readonly Promise<unknown>[]): Promise<Status[]> {
  const results = await Promise.allSettled(promises);
  return results.map((result) => {
    if (result.status === 'fulfilled') return Status.OK;
    const error: unknown = result.reason;
    if (!isUcxError(error)) throw error;
    return error.status;
  });
}

/** Hangs the queue that gets the next submission: it and later submissions stay in flight. */
function hang(node: EmulatedNode, minor = 0): void {
  node.inject(minor, { kind: 'hang' });
}

/** Makes the clock of the program run ahead of that of this machine, by what the result is called with. */
function programAhead(): (ns: number) => void {
  const nowNs = systemClock.nowNs.bind(systemClock);
  let ahead = 0;
  const spied = vi.spyOn(systemClock, 'nowNs').mockImplementation(() => nowNs() + ahead);
  onTestFinished(() => spied.mockRestore());
  return (ns) => {
    ahead += ns;
  };
}

/** A program that opens the node again can transfer bytes. */
async function expectWorks(node: EmulatedNode, card = 0): Promise<void> {
  const stack = await fixture.openOn(node, { config: { TLS: 'gaudi' } });
  const remote = device(stack, 65536, card);
  const rkey = rkeyOf(stack, remote);
  const bytes = new Uint8Array(65536).fill(0x3c);
  const target = new Uint8Array(65536);
  await stack.endpoint.put(bytes, rkey);
  await stack.endpoint.get(target, rkey);
  expect(Buffer.compare(bytes, target)).toBe(0);
  await stack.context.close();
}

/** An operation on a card that is about to fail: succeeds, or fails with a typed error. */
async function rejectsTyped(call: () => Promise<unknown>): Promise<void> {
  try {
    await call();
  } catch (error) {
    if (!isUcxError(error)) throw error;
  }
}

/** Concurrent puts and gets, short and zero copy. */
function startMany({ endpoint }: Stack, rkey: ReturnType<typeof rkeyOf>): Promise<unknown>[] {
  return Array.from({ length: 30 }, (_, i) => {
    const bytes = new Uint8Array(i % 3 === 0 ? 8 : 65536);
    return i % 2 === 0 ? endpoint.put(bytes, rkey) : endpoint.get(bytes, rkey);
  });
}

describe.each(CARDS)('on %s with %s engine threads', { timeout: 10_000 }, (asic, dmaThreads) => {
  it('a transfer that hangs times out, and everything settles', async () => {
    fixture.allow(/./);
    const clock = new ManualClock(1e9);
    const advanceProgram = programAhead();
    const stack = await fixture.open({ node: { asic, cards: 1, dmaThreads, clock } });
    const rkey = rkeyOf(stack, device(stack, MEBIBYTE));
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    hang(stack.node);
    const pending = startMany(stack, rkey);
    const all = outcomes(pending);
    await new Promise(setImmediate);
    let isSettled = false;
    void all.then(() => {
      isSettled = true;
    });
    // The driver looks every 30 s at a submission, the program from time to time at a channel.
    while (!isSettled) {
      clock.advance(30e9);
      advanceProgram(30e9);
      await new Promise(setImmediate);
    }
    const statuses = await all;
    expect(statuses).toHaveLength(30);
    for (const status of statuses) expect([Status.TIMED_OUT, Status.IO_ERROR, Status.OK]).toContain(status);
    expect(statuses).toContain(Status.TIMED_OUT);
    const later = await failureOf(() => stack.endpoint.put(new Uint8Array(65536), rkey));
    expect(isUcxError(later), later.message).toBe(true);
    await stack.context.close();
    stack.node.card(0).faults.clear();
    await expectWorks(stack.node);
  });

  it('a transfer that hangs for a while completes', async () => {
    const stack = await fixture.open({ node: { asic, cards: 1, dmaThreads } });
    const rkey = rkeyOf(stack, device(stack, 65536));
    const bytes = new Uint8Array(65536).fill(6);
    stack.node.inject(0, { kind: 'hang', delayNs: 2e6 });
    expect(await stack.endpoint.put(bytes, rkey)).toMatchObject({ byteLength: 65536 });
    const target = new Uint8Array(65536);
    await stack.endpoint.get(target, rkey);
    expect(Buffer.compare(target, bytes)).toBe(0);
  });

  it.each(['hard-reset', 'unplug'] as const)('%s ends everything in flight', async (kind) => {
    fixture.allow(/./);
    const stack = await fixture.open({ node: { asic, cards: 2, dmaThreads } });
    const rkey = rkeyOf(stack, device(stack, MEBIBYTE));
    const other = rkeyOf(stack, device(stack, 65536, 1));
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    hang(stack.node);
    const pending = startMany(stack, rkey);
    const all = outcomes(pending);
    await new Promise(setImmediate);
    stack.node.inject(0, { kind });
    const statuses = await all;
    expect(statuses).toHaveLength(30);
    const expected: readonly Status[] = [Status.OK, Status.IO_ERROR, Status.NO_DEVICE, Status.BUSY, Status.TIMED_OUT];
    for (const status of statuses) expect(expected).toContain(status);
    expect(statuses.filter((status) => status !== Status.OK).length).toBeGreaterThan(0);
    // The other card is not affected.
    for (const byteLength of [8, 65536]) {
      for (const use of ['put', 'get'] as const) {
        const error = await failureOf(() => stack.endpoint[use](new Uint8Array(byteLength), rkey));
        expect(isUcxError(error), error.message).toBe(true);
      }
    }
    expect(await stack.endpoint.put(new Uint8Array(65536), other)).toMatchObject({ device: 'gaudi1' });
    await stack.context.close();
    expect(stack.worker.requestsInUse).toBe(0);
    stack.node.card(0).faults.clear();
    await expectWorks(stack.node, kind === 'unplug' ? 1 : 0);
  });

  it('a card that breaks between operations fails the next ones', async () => {
    fixture.allow(/./);
    const stack = await fixture.open({ node: { asic, cards: 1, dmaThreads } });
    const rkey = rkeyOf(stack, device(stack, 65536));
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    stack.node.inject(0, { kind: 'malfunction' });
    for (const byteLength of [8, 65536]) {
      const error = await failureOf(() => stack.endpoint.put(new Uint8Array(byteLength), rkey));
      expect(isUcxError(error), error.message).toBe(true);
      expect(error.status).toBeLessThan(0);
    }
    await stack.context.close();
    stack.node.inject(0, { kind: 'recover' });
    await expectWorks(stack.node);
  });

  it('a submission that the driver refuses ends its operations', async () => {
    requires(ASIC_PROFILES[asic].capabilities.submits, 'command submissions');
    fixture.allow(/./);
    const stack = await fixture.open({ node: { asic, cards: 1, dmaThreads } });
    const rkey = rkeyOf(stack, device(stack, 65536));
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    stack.node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: Errno.EIO });
    const error = await failureOf(() => stack.endpoint.put(new Uint8Array(65536), rkey));
    expect(error).toMatchObject({ status: Status.IO_ERROR });
    await stack.context.close();
    await expectWorks(stack.node);
  });

  it('a submission is retried when the driver has no room for it', async () => {
    const stack = await fixture.open({ node: { asic, cards: 1, dmaThreads } });
    const rkey = rkeyOf(stack, device(stack, 65536));
    const bytes = new Uint8Array(65536).fill(8);
    for (let i = 0; i < 3; i++) stack.node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: Errno.EAGAIN });
    await stack.endpoint.put(bytes, rkey);
    const target = new Uint8Array(65536);
    await stack.endpoint.get(target, rkey);
    expect(Buffer.compare(target, bytes)).toBe(0);
  });

  it('a node that closes before its users costs them what they had, without errors in the log', async () => {
    const stack = await fixture.open({ node: { asic, cards: 2, dmaThreads } });
    const [near, far] = [device(stack, 65536), device(stack, 65536, 1)];
    const rkey = rkeyOf(stack, near);
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    await stack.endpoint.put(far, rkey);
    stack.node.close();
    await expect(stack.endpoint.put(new Uint8Array(65536), rkey)).rejects.toThrow('was removed');
    stack.context.memUnmap(near);
    await stack.context.close();
  });

  it.each([0, 1])('card %i of two that is removed fails transfers between them', async (gone) => {
    fixture.allow(/page_fault/);
    const stack = await fixture.open({ node: { asic, cards: 2, dmaThreads } });
    const far = device(stack, 65536, 1);
    const rkey = rkeyOf(stack, device(stack, 65536));
    await stack.endpoint.put(far, rkey);
    stack.node.inject(gone, { kind: 'unplug' });
    expect(isUcxError(await failureOf(() => stack.endpoint.put(far, rkey)))).toBe(true);
    await stack.context.close();
  });

  it.each([1, 2, 3])(
    'device addresses that are exhausted at request %i of a first get leave nothing in use',
    async (nth) => {
      const stack = await fixture.open({ node: { asic, cards: 1, dmaThreads }, context: { config: { TLS: 'gaudi' } } });
      const rkey = rkeyOf(stack, device(stack, 65536));
      const bytes = new Uint8Array(65536).fill(nth);
      await stack.endpoint.put(bytes, rkey);
      stack.node.inject(0, { kind: 'exhausted', resource: 'va', nth });
      const target = new Uint8Array(65536);
      await rejectsTyped(() => stack.endpoint.get(target, rkey));
      await stack.endpoint.get(target, rkey);
      expect(Buffer.compare(target, bytes)).toBe(0);
      await stack.context.close();
    },
  );

  it('close() settles everything on a removed card', async () => {
    fixture.allow(/./);
    const stack = await fixture.open({ node: { asic, cards: 1, dmaThreads } });
    const rkey = rkeyOf(stack, device(stack, MEBIBYTE));
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    hang(stack.node);
    const calls: Status[] = [];
    let started = 0;
    for (let i = 0; i < 20; i++) {
      const request = stack.endpoint.putNbx(new Uint8Array(65536), 0, 65536, rkey, 0, {
        callback: (ended: Request, status) => {
          calls.push(status);
          ended.free();
        },
      });
      if (typeof request !== 'number') started += 1;
    }
    stack.node.inject(0, { kind: 'unplug' });
    await stack.context.close();
    expect(calls).toHaveLength(started);
    for (const status of calls) expect(status).not.toBe(Status.INPROGRESS);
  });
});

describe('a transfer that fails', () => {
  it.each([
    ['unplug', 'the card was removed, or its driver was unloaded'],
    ['malfunction', 'the card has failed (malfunction)'],
  ] as const)('after %s names the card and says that %s', async (kind, reason) => {
    fixture.allow(/./);
    const stack = await fixture.open();
    const { busId } = stack.node.cards()[1]!;
    const rkey = rkeyOf(stack, device(stack, 65536, 1));
    const source = new Uint8Array(65536);
    await stack.endpoint.put(source, rkey);
    stack.node.inject(1, { kind });
    const error = await failureOf(() => stack.endpoint.put(source, rkey));
    expect(error).toMatchObject({ code: 'ERR_IO_ERROR', cause: { code: 'ERR_GAUDI_DMA_FAILED', details: { busId } } });
    expect(error.message).toContain(`a transfer of card 1 (accel1, ${busId}) ended with IO_ERROR: ${reason}`);
  });
});

describe('exhausted resources of the driver', () => {
  it('HBM: NO_MEMORY with its code, no leak, and the next allocation works', async () => {
    const stack = await fixture.open();
    stack.node.inject(0, { kind: 'exhausted', resource: 'hbm' });
    stack.node.inject(0, { kind: 'exhausted', resource: 'hbm' });
    stack.node.inject(0, { kind: 'exhausted', resource: 'hbm' });
    const error = await failureOf(() => device(stack, MEBIBYTE));
    expect(error).toMatchObject({ code: 'ERR_GAUDI_OUT_OF_MEMORY', status: Status.NO_MEMORY });
    stack.node.card(0).faults.clear();
    stack.context.memUnmap(device(stack, MEBIBYTE));
  });

  it('addresses for pinned memory, without idle registrations to evict: the operation fails, the next one works', async () => {
    const stack = await fixture.open({ node: { cards: 1 }, context: { config: { GAUDI_COPY_RCACHE: 'n' } } });
    const rkey = rkeyOf(stack, device(stack, 65536));
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    stack.node.inject(0, { kind: 'exhausted', resource: 'va' });
    const local = stack.context.memMap({ buffer: new Uint8Array(65536).fill(1) });
    const error = await failureOf(() => stack.endpoint.put(local, rkey));
    expect(isUcxError(error), error.message).toBe(true);
    expect(error.status).toBe(Status.NO_MEMORY);
    expect(stack.worker.requestsInUse).toBe(0);
    await stack.endpoint.put(local, rkey);
    const target = new Uint8Array(65536);
    await stack.endpoint.get(target, rkey);
    expect(target).toEqual(new Uint8Array(65536).fill(1));
    stack.context.memUnmap(local);
  });

  it('a refusal to pin names the memory and leaks no request', async () => {
    const stack = await fixture.open({ node: { cards: 1 } });
    const rkey = rkeyOf(stack, device(stack, 65536));
    await stack.endpoint.put(new Uint8Array(65536), rkey);
    for (let i = 0; i < 10; i++) {
      stack.node.inject(0, { kind: 'ioctl', ioctl: 'MEMORY', errno: Errno.EFAULT });
      const error = await failureOf(() => stack.endpoint.putNbx(new Uint8Array(65536), 0, 65536, rkey, 0));
      expect(error).toMatchObject({ code: 'ERR_GAUDI_INVALID_PARAMS', status: Status.INVALID_PARAM });
    }
    expect(stack.worker.requestsInUse).toBe(0);
    await stack.endpoint.put(new Uint8Array(65536), rkey);
  });
});

describe('cards that cannot be opened', () => {
  it.each([
    [Errno.EBUSY, 'ERR_GAUDI_DEVICE_BUSY', Status.BUSY],
    [Errno.ENODEV, 'ERR_GAUDI_DEVICE_NOT_FOUND', Status.NO_DEVICE],
    [Errno.EPERM, 'ERR_GAUDI_PERMISSION_DENIED', Status.IO_ERROR],
    [Errno.EACCES, 'ERR_GAUDI_PERMISSION_DENIED', Status.IO_ERROR],
  ])('errno %s is %s', async (errno, code, status) => {
    fixture.allow(/./);
    const node = fixture.node({ cards: 1 });
    node.inject(0, { kind: 'open', errno });
    const error = await failureOf(() => fixture.openOn(node, { config: { TLS: 'gaudi' } }));
    expect(error).toMatchObject({ code, status });
    await expectWorks(node);
  });

  it('are reported with the reason by a context', async () => {
    fixture.allow(/./);
    const node = fixture.node({ cards: 1 });
    const busy = node.open(0);
    let error: Awaited<ReturnType<typeof failureOf>>;
    try {
      const stack = await fixture.openOn(node);
      error = await failureOf(() => stack.context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI }));
    } catch (thrown) {
      error = thrown as typeof error;
    }
    expect(error.message).toMatch(/busy/);
    busy.close();
  });
});
