/** Contract cases of an endpoint: it fulfils its attributes, refused operations change nothing, and full queues recover. */

import { expect, it } from 'vitest';
import { MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { isUcxError } from '../../../src/ucs/type/error.ts';
import { isFailure, Status } from '../../../src/ucs/type/status.ts';
import { IfaceFlag, type IovEntry } from '../../../src/uct/api/iface.ts';
import { requires } from '../../fixtures/requires.ts';
import type { RmaFixture } from './endpoint-rma-fixture.ts';
import { type CountingCompletion, finish, flush, keyOf, started } from './uct-fixture.ts';

/** The status of an endpoint's call, or that of the error it threw. */
function outcome(call: () => Status): Status {
  try {
    return call();
  } catch (error) {
    if (isUcxError(error)) return error.status;
    throw error;
  }
}

/** Whether an operation has ended when the call returns; otherwise waits for its end. */
async function endsAtOnce(fixture: RmaFixture, start: (completion: CountingCompletion) => Status): Promise<boolean> {
  const completion = fixture.completion();
  const status = await started(fixture.iface, completion, () => start(completion));
  if (status === Status.INPROGRESS) await fixture.drive(() => completion.calls === 1);
  return status === Status.OK;
}

/** Length of a short operation of a transport without a limit of them. */
const UNLIMITED_BYTES = 3 * 2 ** 20;

/** Declares the cases. */
export function endpointLimitCases(fixture: RmaFixture): void {
  advertisedCases(fixture);
  refusalCases(fixture);
  resourceCases(fixture);
}

function advertisedCases(fixture: RmaFixture): void {
  it('work exactly if their flags are set', () => {
    const { flags, put, get } = fixture.iface.attributes;
    expect((flags & IfaceFlag.PUT_SHORT) !== 0).toBe(put.shortBytesMax > 0);
    expect((flags & IfaceFlag.GET_SHORT) !== 0).toBe(get.shortBytesMax > 0);
    expect((flags & IfaceFlag.PUT_ZCOPY) !== 0).toBe(put.iovMax > 0);
    expect((flags & IfaceFlag.GET_ZCOPY) !== 0).toBe(get.iovMax > 0);
    for (const limits of [put, get]) expect(limits.zcopyBytesMin).toBeLessThanOrEqual(limits.zcopyBytesMax);
  });

  it('of short operations are kept: one byte more is refused', async () => {
    const { md, iface, endpoint } = fixture;
    const { put, get } = iface.attributes;
    const bytesMax = Math.max(put.shortBytesMax, get.shortBytesMax);
    requires(bytesMax !== Number.MAX_SAFE_INTEGER, 'a limit of short operations');
    const there = fixture.remote(bytesMax + 1);
    const rkey = keyOf(md, there);
    const bytes = fixture.pattern(there.byteLength);
    await fixture.write(there, new Uint8Array(there.byteLength));
    const refusal = put.shortBytesMax > 0 ? Status.INVALID_PARAM : Status.UNSUPPORTED;
    expect(outcome(() => endpoint.putShort(bytes, 0, put.shortBytesMax + 1, 0, rkey))).toBe(refusal);
    const completion = fixture.completion();
    const refused = outcome(() => endpoint.getShort(bytes, 0, get.shortBytesMax + 1, 0, rkey, completion));
    expect(refused).toBe(refusal);
    await fixture.expectBytes(there, new Uint8Array(there.byteLength));
  });

  it('of short operations are accepted', async () => {
    const { md, iface, endpoint } = fixture;
    const { put, get } = iface.attributes;
    requires(put.shortBytesMax > 0, 'PUT_SHORT');
    const byteLength = Math.min(put.shortBytesMax, UNLIMITED_BYTES);
    const there = fixture.remote(byteLength + 1);
    const rkey = keyOf(md, there);
    const bytes = fixture.pattern(there.byteLength);
    await fixture.write(there, new Uint8Array(there.byteLength));
    expect(await finish(iface, () => endpoint.putShort(bytes, 0, byteLength, 0, rkey))).toBe(Status.OK);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    const expected = new Uint8Array(there.byteLength);
    expected.set(bytes.subarray(0, byteLength));
    await fixture.expectBytes(there, expected);
    const read = new Uint8Array(Math.min(get.shortBytesMax, byteLength));
    expect(await finish(iface, (each) => endpoint.getShort(read, 0, read.byteLength, 0, rkey, each))).toBe(Status.OK);
    expect(read).toEqual(expected.subarray(0, read.byteLength));
  });

  it('of lists are accepted, and one entry more is refused as a whole', async () => {
    const { md, iface, endpoint } = fixture;
    const { iovMax } = iface.attributes.put;
    const there = fixture.remote((iovMax + 1) * 16);
    const here = fixture.memory(MemoryType.HOST, (iovMax + 1) * 16)!;
    here.bytes!.set(fixture.pattern(here.byteLength));
    await fixture.write(there, new Uint8Array(there.byteLength));
    const rkey = keyOf(md, there);
    // In reverse order, so that a list moved as one piece would be detected.
    const iov: IovEntry[] = Array.from({ length: iovMax + 1 }, (_, i) => {
      return { memory: here, offset: (iovMax - i) * 16, byteLength: 16 };
    });
    const completion = fixture.completion();
    expect(outcome(() => endpoint.putZcopy(iov, 0, rkey, completion))).toBe(Status.INVALID_PARAM);
    expect(outcome(() => endpoint.getZcopy(iov, 0, rkey, completion))).toBe(Status.INVALID_PARAM);
    expect(completion).toMatchObject({ calls: 0, count: 1 });
    await fixture.expectBytes(there, new Uint8Array(there.byteLength));
    const full = iov.slice(1);
    expect(await finish(iface, (each) => endpoint.putZcopy(full, 0, rkey, each))).toBe(Status.OK);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    const expected = new Uint8Array(there.byteLength);
    for (const [i, { offset }] of full.entries()) expected.set(here.bytes!.subarray(offset, offset + 16), i * 16);
    await fixture.expectBytes(there, expected);
    here.bytes!.fill(0);
    expect(await finish(iface, (each) => endpoint.getZcopy(full, 0, rkey, each))).toBe(Status.OK);
    for (const [i, { offset }] of full.entries()) {
      expect(here.bytes!.subarray(offset, offset + 16)).toEqual(expected.subarray(i * 16, i * 16 + 16));
    }
  });

  it('of zero copy hold at the minimum length', async () => {
    const { md, iface, endpoint } = fixture;
    const { zcopyBytesMin } = iface.attributes.put;
    const rkey = keyOf(md, fixture.remote(16));
    const iov = [{ memory: fixture.memory(MemoryType.HOST, 16)!, offset: 3, byteLength: zcopyBytesMin }];
    expect(await finish(iface, (each) => endpoint.putZcopy(iov, 1, rkey, each))).toBe(Status.OK);
    expect(await finish(iface, (each) => endpoint.getZcopy(iov, 1, rkey, each))).toBe(Status.OK);
  });
}

/** Remote offset and length outside of 64 bytes. */
const RANGES: readonly (readonly [number, number])[] = [
  [64, 1],
  [63, 2],
  [0, 65],
  [-1, 1],
  [-8, 8],
  [2 ** 40, 1],
  [Number.NaN, 1],
  [0.5, 8],
];

function refusalCases(fixture: RmaFixture): void {
  it.each(RANGES)('refuse a remote range at %s of %s bytes, and write nothing', async (offset, byteLength) => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(64);
    const before = fixture.pattern(64);
    await fixture.write(there, before);
    const rkey = keyOf(md, there);
    const here = fixture.memory(MemoryType.HOST, 128)!;
    const completion = fixture.completion();
    const iov = [{ memory: here, offset: 0, byteLength }];
    const calls = [
      () => endpoint.putShort(new Uint8Array(128).fill(1), 0, byteLength, offset, rkey),
      () => endpoint.getShort(new Uint8Array(128), 0, byteLength, offset, rkey, completion),
      () => endpoint.putZcopy(iov, offset, rkey, completion),
      () => endpoint.getZcopy(iov, offset, rkey, completion),
    ];
    for (const call of calls) expect(isFailure(outcome(call)), call.toString()).toBe(true);
    expect(completion.calls).toBe(0);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    await fixture.expectBytes(there, before);
    expect(here.bytes).toEqual(new Uint8Array(128));
  });

  it.each([
    [128, 1],
    [-1, 8],
    [100, 64],
    [0, -1],
    [Number.NaN, 8],
    [0, Number.NaN],
    [0.5, 8],
    [0, 7.5],
  ])('refuse a local range at %s of %s bytes, and write nothing', async (offset, byteLength) => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(64);
    const before = fixture.pattern(64);
    await fixture.write(there, before);
    const rkey = keyOf(md, there);
    const here = fixture.memory(MemoryType.HOST, 128)!;
    const good = { memory: here, offset: 0, byteLength: 8 };
    const completion = fixture.completion();
    // The bad entry is the last one: those before it must not move either.
    for (const iov of [[{ memory: here, offset, byteLength }], [good, { memory: here, offset, byteLength }]]) {
      expect(isFailure(outcome(() => endpoint.putZcopy(iov, 0, rkey, completion)))).toBe(true);
      expect(isFailure(outcome(() => endpoint.getZcopy(iov, 0, rkey, completion)))).toBe(true);
    }
    expect(completion.calls).toBe(0);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    await fixture.expectBytes(there, before);
    expect(here.bytes).toEqual(new Uint8Array(128));
  });

  it('refuse unmapped memory, on both sides', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(64);
    const rkey = keyOf(md, there);
    const here = fixture.memory(MemoryType.HOST, 64)!;
    const iov = [{ memory: here, offset: 0, byteLength: 8 }];
    const completion = fixture.completion();
    md.memDereg(here);
    expect(isFailure(outcome(() => endpoint.putZcopy(iov, 0, rkey, completion)))).toBe(true);
    expect(isFailure(outcome(() => endpoint.getZcopy(iov, 0, rkey, completion)))).toBe(true);
    fixture.end(there);
    const live = [{ memory: fixture.memory(MemoryType.HOST, 64)!, offset: 0, byteLength: 8 }];
    const bytes = new Uint8Array(8);
    const shortRefusal =
      (iface.attributes.flags & IfaceFlag.PUT_SHORT) === 0 ? Status.UNSUPPORTED : Status.INVALID_ADDR;
    expect(outcome(() => endpoint.putShort(bytes, 0, 8, 0, rkey))).toBe(shortRefusal);
    expect(outcome(() => endpoint.getShort(bytes, 0, 8, 0, rkey, completion))).toBe(shortRefusal);
    expect(outcome(() => endpoint.putZcopy(live, 0, rkey, completion))).toBe(Status.INVALID_ADDR);
    expect(outcome(() => endpoint.getZcopy(live, 0, rkey, completion))).toBe(Status.INVALID_ADDR);
    expect(completion.calls).toBe(0);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
  });

  it('refuse registered memory whose buffer was detached', async () => {
    const { md, iface, endpoint } = fixture;
    const rkey = keyOf(md, fixture.remote(64));
    const here = fixture.memory(MemoryType.HOST, 64)!;
    structuredClone(here.bytes!.buffer, { transfer: [here.bytes!.buffer as ArrayBuffer] });
    const iov = [{ memory: here, offset: 0, byteLength: 8 }];
    const completion = fixture.completion();
    expect(isFailure(outcome(() => endpoint.putZcopy(iov, 0, rkey, completion)))).toBe(true);
    expect(isFailure(outcome(() => endpoint.getZcopy(iov, 0, rkey, completion)))).toBe(true);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
  });

  it('refuse local memory of another memory domain', async () => {
    const { md, iface, endpoint } = fixture;
    const rkey = keyOf(md, fixture.remote(64));
    const foreign = { ...fixture.memory(MemoryType.HOST, 64)!, mdName: 'other', bytes: new Uint8Array(64), live: true };
    const iov = [{ memory: foreign, offset: 0, byteLength: 8 }];
    const completion = fixture.completion();
    expect(outcome(() => endpoint.putZcopy(iov, 0, rkey, completion))).toBe(Status.INVALID_PARAM);
    expect(outcome(() => endpoint.getZcopy(iov, 0, rkey, completion))).toBe(Status.INVALID_PARAM);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
  });

  it('refuse local short ranges beyond the buffer', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(64);
    const before = fixture.pattern(64);
    await fixture.write(there, before);
    const rkey = keyOf(md, there);
    const bytes = new Uint8Array(16).fill(9);
    const completion = fixture.completion();
    for (const [offset, byteLength] of [
      [9, 8],
      [16, 1],
      [-1, 4],
      [0.5, 4],
      [0, 0.5],
    ] as const) {
      expect(isFailure(outcome(() => endpoint.putShort(bytes, offset, byteLength, 0, rkey)))).toBe(true);
      expect(isFailure(outcome(() => endpoint.getShort(bytes, offset, byteLength, 0, rkey, completion)))).toBe(true);
    }
    expect(completion.calls).toBe(0);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    await fixture.expectBytes(there, before);
    expect(bytes).toEqual(new Uint8Array(16).fill(9));
  });
}

function resourceCases(fixture: RmaFixture): void {
  it('of the queues return NO_RESOURCE without effects, and recover', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(65536);
    const here = fixture.memory(MemoryType.HOST, 65536)!;
    const bytes = fixture.pattern(65536);
    here.bytes!.set(bytes);
    const rkey = keyOf(md, there);
    const iov = [{ memory: here, offset: 0, byteLength: 65536 }];
    const completions: CountingCompletion[] = [];
    const endsEarly = await endsAtOnce(fixture, (completion) => endpoint.putZcopy(iov, 0, rkey, completion));
    requires(!endsEarly, 'operations that end after the call: others never run out of anything');
    let status: Status = Status.INPROGRESS;
    while (status === Status.INPROGRESS && completions.length < 20_000) {
      const completion = fixture.completion();
      status = endpoint.putZcopy(iov, 0, rkey, completion);
      if (status === Status.INPROGRESS) completions.push(completion);
      else expect(completion).toMatchObject({ calls: 0, count: 1, failure: Status.OK });
    }
    expect(status).toBe(Status.NO_RESOURCE);
    expect(endpoint.putShort(bytes, 0, 8, 0, rkey)).toBe(Status.NO_RESOURCE);
    const many = [iov[0]!, iov[0]!].map((entry) => ({ ...entry, byteLength: 8 }));
    expect(endpoint.putZcopy(many, 0, rkey, fixture.completion())).toBe(Status.NO_RESOURCE);
    await fixture.drive(() => completions.every(({ calls }) => calls === 1));
    expect(completions.every(({ failure, calls }) => failure === Status.OK && calls === 1)).toBe(true);
    expect(await finish(iface, (completion) => endpoint.putZcopy(iov, 0, rkey, completion))).toBe(Status.OK);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    expect(iface.outstanding).toBe(0);
    await fixture.expectBytes(there, bytes);
  });

  it('of flushes are bounded, and each accepted flush ends once', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(2 ** 20);
    const here = fixture.memory(MemoryType.HOST, 2 ** 20)!;
    const rkey = keyOf(md, there);
    const iov = [{ memory: here, offset: 0, byteLength: 2 ** 20 }];
    const flushes: CountingCompletion[] = [];
    let refused = 0;
    const put = fixture.completion();
    const status = await started(iface, put, () => endpoint.putZcopy(iov, 0, rkey, put));
    requires(status === Status.INPROGRESS, 'operations that end after the call');
    for (let i = 0; i < 1000; i++) {
      const completion = fixture.completion();
      const status = endpoint.flush(completion);
      if (status === Status.INPROGRESS) flushes.push(completion);
      if (status === Status.NO_RESOURCE) refused += 1;
    }
    expect(refused + flushes.length).toBeLessThanOrEqual(1000);
    await fixture.drive(() => put.calls === 1 && flushes.every(({ calls }) => calls === 1));
    expect(iface.outstanding).toBe(0);
  });

  it('end operations in flight once, at the latest when the memory domain closes', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(2 ** 20);
    const here = fixture.memory(MemoryType.HOST, 2 ** 20)!;
    const rkey = keyOf(md, there);
    const iov = [{ memory: here, offset: 0, byteLength: 2 ** 20 }];
    const endsEarly = await endsAtOnce(fixture, (completion) => endpoint.putZcopy(iov, 0, rkey, completion));
    requires(!endsEarly, 'operations that end after the call');
    const inFlight = Array.from({ length: 50 }, () => fixture.completion()).filter(
      (completion) => endpoint.putZcopy(iov, 0, rkey, completion) === Status.INPROGRESS,
    );
    expect(inFlight.length).toBeGreaterThan(0);
    iface.close();
    md.close();
    for (const { calls, failure } of inFlight) {
      expect(calls).toBe(1);
      expect([Status.OK, Status.CANCELED]).toContain(failure);
    }
    expect(iface.outstanding).toBe(0);
  });
}
