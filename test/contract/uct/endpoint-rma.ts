/** The contract of an endpoint: put, get, flush and fence over every kind of memory that its interface supports, compared byte by byte. */

import { describe, expect, it } from 'vitest';
import { MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { IfaceFlag } from '../../../src/uct/api/iface.ts';
import { requires } from '../../fixtures/requires.ts';
import { RmaFixture } from './endpoint-rma-fixture.ts';
import { endpointLimitCases } from './endpoint-rma-limits.ts';
import { finish, flush, keyOf, type MdSetup, ownBytes, started } from './uct-fixture.ts';

const MEBIBYTE = 2 ** 20;
/** Sizes around the limits of packets, pages and chunks. */
const SIZES = [1, 7, 8, 64, 1023, 1024, 1025, 4096, 65536, MEBIBYTE + 3] as const;
/** Offset of a transfer on either side. */
const LOCAL_OFFSET = 13;
const REMOTE_OFFSET = 7;

/** Kinds of memory by name. */
export const KINDS = ['host', 'gaudi'] as const;
const TYPE_OF = { host: MemoryType.HOST, gaudi: MemoryType.GAUDI } as const;

/** Declares the suite. */
export function endpointRmaContract(name: string, setup: MdSetup): void {
  describe(`endpoint: ${name}`, () => {
    const fixture = new RmaFixture(setup);

    describe('zero copy', () => {
      zcopyCases(fixture);
      detachedCases(fixture);
    });
    describe('short operations', () => shortCases(fixture));
    describe('order', () => orderCases(fixture));
    describe('limits', () => endpointLimitCases(fixture));
  });
}

function zcopyCases(fixture: RmaFixture): void {
  for (const local of KINDS) {
    for (const remote of KINDS) {
      it.each(SIZES)(`put and get between local ${local} and remote ${remote}: %s bytes`, async (byteLength) => {
        const { md, iface, endpoint } = fixture;
        const there = fixture.remoteMemory(TYPE_OF[remote], byteLength + 40);
        const here = fixture.memory(TYPE_OF[local], byteLength + 40);
        requires(there !== undefined && here !== undefined, `memory of ${local} and ${remote}`);
        const [localBytes, remoteBytes] = [fixture.pattern(here.byteLength), fixture.pattern(there.byteLength)];
        const rkey = keyOf(md, there);
        const iov = [{ memory: here, offset: LOCAL_OFFSET, byteLength }];
        if (!fixture.serves(TYPE_OF[local], TYPE_OF[remote])) {
          for (const operation of ['putZcopy', 'getZcopy'] as const) {
            const status = await finish(iface, (completion) => endpoint[operation](iov, 0, rkey, completion));
            expect(status).toBe(Status.UNSUPPORTED);
          }
          return;
        }
        await fixture.write(here, localBytes);
        await fixture.write(there, remoteBytes);
        const put = await finish(iface, (completion) => endpoint.putZcopy(iov, REMOTE_OFFSET, rkey, completion));
        expect(put).toBe(Status.OK);
        // It has arrived when it has ended, without a flush.
        remoteBytes.set(localBytes.subarray(LOCAL_OFFSET, LOCAL_OFFSET + byteLength), REMOTE_OFFSET);
        await fixture.expectBytes(there, remoteBytes);
        await fixture.expectBytes(here, localBytes);
        // Reads it back to another place.
        await fixture.write(here, fixture.pattern(here.byteLength));
        await fixture.write(there, remoteBytes.reverse());
        const before = await fixture.read(here);
        const get = await finish(iface, (completion) => endpoint.getZcopy(iov, REMOTE_OFFSET, rkey, completion));
        expect(get).toBe(Status.OK);
        before.set(remoteBytes.subarray(REMOTE_OFFSET, REMOTE_OFFSET + byteLength), LOCAL_OFFSET);
        await fixture.expectBytes(here, before);
        await fixture.expectBytes(there, remoteBytes);
      });
    }
  }

  it('moves every entry of a list, also of empty ones', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(300);
    const pieces = [1, 0, 7, 100, 0, 64].map((byteLength, index) => ({
      memory: fixture.memory(MemoryType.HOST, 128)!,
      offset: index,
      byteLength,
    }));
    const expected = new Uint8Array(300);
    let at = 11;
    for (const { memory, offset, byteLength } of pieces) {
      const bytes = fixture.pattern(128);
      memory.bytes!.set(bytes);
      expected.set(bytes.subarray(offset, offset + byteLength), at);
      at += byteLength;
    }
    await fixture.write(there, new Uint8Array(300));
    const rkey = keyOf(md, there);
    expect(await finish(iface, (completion) => endpoint.putZcopy(pieces, 11, rkey, completion))).toBe(Status.OK);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    await fixture.expectBytes(there, expected);
    for (const { memory } of pieces) memory.bytes!.fill(0);
    expect(await finish(iface, (completion) => endpoint.getZcopy(pieces, 11, rkey, completion))).toBe(Status.OK);
    at = 11;
    for (const { memory, offset, byteLength } of pieces) {
      const want = new Uint8Array(128);
      want.set(expected.subarray(at, at + byteLength), offset);
      expect(memory.bytes).toEqual(want);
      at += byteLength;
    }
  });

  it('gives the list back when the call has returned', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(100_000);
    const other = fixture.memory(MemoryType.HOST, 100_000)!;
    const here = fixture.memory(MemoryType.HOST, 100_000)!;
    const rkey = keyOf(md, there);
    const bytes = fixture.pattern(100_000);
    /** Uses one list for an operation, and for nothing else after the call. */
    const move = (operation: 'putZcopy' | 'getZcopy'): Promise<Status> =>
      finish(iface, (completion) => {
        const iov = [{ memory: here, offset: 0, byteLength: 100_000 }];
        const status = endpoint[operation](iov, 0, rkey, completion);
        Object.assign(iov[0]!, { memory: other, offset: 1, byteLength: 1 });
        iov.length = 0;
        return status;
      });
    here.bytes!.set(bytes);
    expect(await move('putZcopy')).toBe(Status.OK);
    await fixture.expectBytes(there, bytes);
    here.bytes!.fill(0);
    other.bytes!.fill(0);
    expect(await move('getZcopy')).toBe(Status.OK);
    await fixture.expectBytes(here, bytes);
    await fixture.expectBytes(other, new Uint8Array(100_000));
    expect([here.inFlight, other.inFlight].every((inFlight) => (inFlight ?? 0) === 0)).toBe(true);
  });

  it('moves nothing for lists without bytes', async () => {
    const { md, iface, endpoint } = fixture;
    const rkey = keyOf(md, fixture.remote(16));
    const empty = { memory: fixture.memory(MemoryType.HOST, 16)!, offset: 16, byteLength: 0 };
    for (const iov of [[], [empty], [empty, empty]]) {
      expect(await finish(iface, (completion) => endpoint.putZcopy(iov, 16, rkey, completion))).toBe(Status.OK);
      expect(await finish(iface, (completion) => endpoint.getZcopy(iov, 16, rkey, completion))).toBe(Status.OK);
    }
  });
}

type Operation = 'putZcopy' | 'getZcopy';
type BufferSide = 'local' | 'remote';

/** Operations, and the side whose buffer is detached under them: those that write into it, and those that only read it. */
const INTO_DETACHED: readonly (readonly [Operation, BufferSide])[] = [
  ['putZcopy', 'remote'],
  ['getZcopy', 'local'],
];
const FROM_DETACHED: readonly (readonly [Operation, BufferSide])[] = [
  ['putZcopy', 'local'],
  ['getZcopy', 'remote'],
];

/** Buffers that are detached under an operation: operations in progress fail, others do not. */
function detachedCases(fixture: RmaFixture): void {
  it.each([...FROM_DETACHED, ...INTO_DETACHED])(
    '%s whose %s buffer is detached fails, and the endpoint stays usable',
    async (operation, side) => {
      const { md, iface, endpoint } = fixture;
      await runDetached(fixture, operation, side);
      const whole = fixture.remote(64);
      const bytes = fixture.memory(MemoryType.HOST, 64)!;
      const good = [{ memory: bytes, offset: 0, byteLength: 64 }];
      const key = keyOf(md, whole);
      expect(await finish(iface, (each) => endpoint[operation](good, 0, key, each))).toBe(Status.OK);
    },
  );

  it.each([...FROM_DETACHED, ...INTO_DETACHED])(
    '%s whose %s buffer is detached leaves its memory as it was',
    async (operation, side) => {
      const isWritten = INTO_DETACHED.some(([each, of]) => each === operation && of === side);
      const isKept = fixture.under.writesDetached === true;
      requires(!isWritten || !isKept, 'a device that does not keep the pages of a detached buffer');
      const { before, after } = await runDetached(fixture, operation, side);
      // The collector may give the memory to other code at once.
      expect(Buffer.compare(after, before)).toBe(0);
    },
  );
}

/** Starts an operation, detaches the buffer of a side, and waits for the end. Returns the bytes of the memory of the buffer then and now. */
async function runDetached(
  fixture: RmaFixture,
  operation: Operation,
  side: BufferSide,
): Promise<{ before: Uint8Array; after: Uint8Array }> {
  const { md, iface, endpoint } = fixture;
  const byteLength = MEBIBYTE + 3;
  const partner = KINDS.find((kind) => fixture.memory(TYPE_OF[kind], 8) !== undefined && serves(kind))!;
  function serves(kind: (typeof KINDS)[number]): boolean {
    const [local, remote] = side === 'local' ? (['host', kind] as const) : ([kind, 'host'] as const);
    return fixture.serves(TYPE_OF[local], TYPE_OF[remote]);
  }
  requires(partner !== undefined, `${side} host memory`);
  const lost = md.memReg(ownBytes(byteLength));
  requires(side === 'local' || lost.packable !== false, 'keys of registered host memory');
  const other =
    side === 'local'
      ? fixture.remoteMemory(TYPE_OF[partner], byteLength)!
      : fixture.memory(TYPE_OF[partner], byteLength)!;
  const [here, there] = side === 'local' ? [lost, other] : [other, lost];
  await fixture.write(other, fixture.pattern(byteLength));
  const rkey = keyOf(md, there);
  const iov = [{ memory: here, offset: 0, byteLength }];
  const completion = fixture.completion();
  const status = await started(iface, completion, () => endpoint[operation](iov, 0, rkey, completion));
  const after = new Uint8Array(structuredClone(lost.bytes!.buffer, { transfer: [lost.bytes!.buffer as ArrayBuffer] }));
  const before = after.slice();
  if (status === Status.INPROGRESS) {
    await fixture.drive(() => completion.calls === 1);
    expect(completion.failure).toBe(Status.INVALID_ADDR);
  } else expect([status, completion.calls]).toEqual([Status.OK, 0]);
  expect(await flush(iface, endpoint)).toBe(Status.OK);
  return { before, after };
}

function shortCases(fixture: RmaFixture): void {
  it.each([1, 2, 3, 7, 8, 64, 1023, 1024, 1025, 8192])('put and get %s bytes', async (byteLength) => {
    const { md, iface, endpoint } = fixture;
    const { put, get, flags } = iface.attributes;
    requires(
      (flags & IfaceFlag.PUT_SHORT) !== 0 && byteLength <= Math.min(put.shortBytesMax, get.shortBytesMax),
      'PUT_SHORT of that length',
    );
    const there = fixture.remote(byteLength + 40);
    const expected = fixture.pattern(there.byteLength);
    await fixture.write(there, expected);
    const rkey = keyOf(md, there);
    const source = fixture.pattern(byteLength + 20);
    const sent = source.slice();
    const status = await finish(iface, () => endpoint.putShort(source, 5, byteLength, 9, rkey));
    expect(status).toBe(Status.OK);
    // The caller's buffer can be reused at once.
    source.fill(0);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    expected.set(sent.subarray(5, 5 + byteLength), 9);
    await fixture.expectBytes(there, expected);
    const target = new Uint8Array(byteLength + 20).fill(0xcc);
    const got = await finish(iface, (completion) => endpoint.getShort(target, 3, byteLength, 9, rkey, completion));
    expect(got).toBe(Status.OK);
    const want = new Uint8Array(byteLength + 20).fill(0xcc);
    want.set(sent.subarray(5, 5 + byteLength), 3);
    expect(target).toEqual(want);
  });

  it('accept small Buffers of the pool and views of resizable buffers, which are not pinned', async () => {
    const { md, iface, endpoint } = fixture;
    requires((iface.attributes.flags & IfaceFlag.PUT_SHORT) !== 0, 'PUT_SHORT');
    const there = fixture.remote(64);
    const rkey = keyOf(md, there);
    const source = Buffer.from('small and pooled');
    expect(await finish(iface, () => endpoint.putShort(source, 0, source.length, 0, rkey))).toBe(Status.OK);
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    const target = Buffer.allocUnsafe(source.length);
    const status = await finish(iface, (completion) =>
      endpoint.getShort(target, 0, source.length, 0, rkey, completion),
    );
    expect(status).toBe(Status.OK);
    expect(target.toString()).toBe('small and pooled');
  });
}

function orderCases(fixture: RmaFixture): void {
  it('keeps the last of many puts to one place', async () => {
    const { md, iface, endpoint } = fixture;
    requires((iface.attributes.flags & IfaceFlag.PUT_SHORT) !== 0, 'PUT_SHORT');
    const there = fixture.remote(8);
    const rkey = keyOf(md, there);
    for (let i = 1; i <= 500; i++) {
      const bytes = new Uint8Array(8).fill(i & 255);
      expect(await finish(iface, () => endpoint.putShort(bytes, 0, 8, 0, rkey))).toBe(Status.OK);
    }
    expect(await flush(iface, endpoint)).toBe(Status.OK);
    await fixture.expectBytes(there, new Uint8Array(8).fill(500 & 255));
  });

  it('completes operations of one direction in their order, and a flush after all of them', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(65536);
    const here = fixture.memory(MemoryType.HOST, 65536)!;
    const rkey = keyOf(md, there);
    const order: unknown[] = [];
    const expected: unknown[] = [];
    for (let i = 0; i < 40; i++) {
      const iov = [{ memory: here, offset: 0, byteLength: i % 2 === 0 ? 65536 : 8 }];
      const completion = fixture.completion(order, i);
      const status = await started(iface, completion, () => endpoint.putZcopy(iov, 0, rkey, completion));
      expect([Status.OK, Status.INPROGRESS]).toContain(status);
      if (status === Status.INPROGRESS) expected.push(i);
    }
    const flushed = fixture.completion(order, 'flush');
    if (endpoint.flush(flushed) === Status.INPROGRESS) expected.push('flush');
    await fixture.drive(() => order.length >= expected.length);
    expect(order).toEqual(expected);
    expect(iface.outstanding).toBe(0);
    expect(endpoint.flush(undefined)).toBe(Status.OK);
  });

  it('has a fence that orders a get after earlier puts', async () => {
    const { md, iface, endpoint } = fixture;
    const there = fixture.remote(65536);
    const [source, target] = [0, 1].map(() => fixture.memory(MemoryType.HOST, 65536)!);
    const rkey = keyOf(md, there);
    for (let round = 0; round < 10; round++) {
      const bytes = fixture.pattern(65536);
      source!.bytes!.set(bytes);
      const put = fixture.completion();
      const putIov = [{ memory: source!, offset: 0, byteLength: 65536 }];
      const status = await started(iface, put, () => endpoint.putZcopy(putIov, 0, rkey, put));
      expect([Status.OK, Status.INPROGRESS]).toContain(status);
      let fenced = endpoint.fence();
      await fixture.drive(() => {
        if (fenced !== Status.OK) fenced = endpoint.fence();
        return fenced === Status.OK;
      });
      const iov = [{ memory: target!, offset: 0, byteLength: 65536 }];
      expect(await finish(iface, (completion) => endpoint.getZcopy(iov, 0, rkey, completion))).toBe(Status.OK);
      expect(Buffer.compare(target!.bytes!, bytes)).toBe(0);
    }
  });
}
