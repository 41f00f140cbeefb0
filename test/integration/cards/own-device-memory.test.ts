/**
 * Device memory that the application owns: allocated by hl-thunk on a device that it has opened or that a context has, registered by its address,
 * used by every kind of
 * operation, and never freed by the library.
 */

import { closeSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import {
  type Device,
  deviceMemoryAlloc,
  deviceMemoryFree,
  deviceMemoryMap,
  getDramUsage,
  memoryUnmap,
  open,
} from '../../../src/hlthunk/index.ts';
import { Context, MemoryType, Status } from '../../../src/index.ts';
import type { AsicName } from '../../../src/uapi/index.ts';
import { failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';
import { asProcesses } from '../../fixtures/transports/ipc-fixture.ts';

const fixture = useContexts();
const GAUDI = MemoryType.GAUDI;
const MIB = 2 ** 20;
const PART = { offset: 4096, byteLength: 300_000 };

/** Memory of the application at an address, and a function that frees it. */
interface Owned {
  readonly address: bigint;
  free(): void;
}

/** A block of the arenas of a device, or separate memory by the raw calls. */
const KINDS: Readonly<Record<string, (device: Device) => Owned>> = {
  'a block': ({ memory }) => memory.allocate(MIB),
  'raw memory': (device) => {
    const handle = deviceMemoryAlloc(device, MIB);
    const address = deviceMemoryMap(device, handle);
    return {
      address,
      free: () => {
        memoryUnmap(device, address);
        deviceMemoryFree(device, handle);
      },
    };
  },
};

/** Every kind on every generation that has it: on gaudi the raw calls only account, and memory has the addresses of the arenas. */
const CASES: readonly (readonly [AsicName, string])[] = [
  ['gaudi', 'a block'],
  ['gaudi2', 'a block'],
  ['gaudi2', 'raw memory'],
  ['gaudi3', 'a block'],
  ['gaudi3', 'raw memory'],
];

/** Bytes at an address of the own device, through the loopback. */
async function bytesAt(stack: Omit<Stack, 'node'>, address: bigint, byteLength: number): Promise<Uint8Array> {
  const memory = stack.context.memMap({ address, byteLength, memoryType: GAUDI, sysDevice: 0 });
  const rkey = rkeyOf(stack, memory);
  const bytes = new Uint8Array(byteLength);
  await stack.endpoint.get(bytes, rkey);
  rkey.release();
  stack.context.memUnmap(memory);
  return bytes;
}

describe.each(CASES)('on %s, %s of the application', (asic, kind) => {
  it('is used by put, get and atomics, whole and in part, and stays allocated when it is unmapped', async () => {
    const stack = await fixture.open({ node: { asic } });
    const { context, endpoint } = stack;
    const device = context.device(0);
    const owned = KINDS[kind]!(device);
    const used = getDramUsage(device).ctxDramMem;
    const whole = context.memMap({ address: owned.address, byteLength: MIB, memoryType: GAUDI, sysDevice: 0 });
    const part = context.memMap({
      address: owned.address + BigInt(PART.offset),
      byteLength: PART.byteLength,
      sysDevice: 0,
    });
    expect([part.memoryType, part.sysDevice, part.byteLength]).toEqual([GAUDI, 0, PART.byteLength]);
    const expected = pattern(MIB, 1);
    await endpoint.put(expected, rkeyOf(stack, whole));
    const inner = pattern(PART.byteLength, 2);
    await endpoint.put(inner, rkeyOf(stack, part));
    expected.set(inner, PART.offset);
    const back = new Uint8Array(MIB);
    await endpoint.get(back, rkeyOf(stack, whole));
    expectSame(back, expected);
    const { byteLength } = PART;
    expect((await failureOf(() => endpoint.put(inner, rkeyOf(stack, part), { remoteOffset: 1 }))).status).toBeLessThan(
      0,
    );
    // The first word as a number, and incremented.
    const before = new DataView(inner.buffer).getBigUint64(0, true);
    expect(await endpoint.atomic('add', 1, rkeyOf(stack, part))).toBe(before);
    new DataView(inner.buffer).setBigUint64(0, BigInt.asUintN(64, before + 1n), true);
    const target = new Uint8Array(byteLength);
    await Promise.all([endpoint.tagSend(part, { tag: 1 }), stack.worker.tagRecv(target, { tag: 1 })]);
    expectSame(target, inner);
    context.memUnmap(part);
    context.memUnmap(whole);
    expected.set(inner, PART.offset);
    expectSame(await bytesAt(stack, owned.address, MIB), expected);
    expect(getDramUsage(device).ctxDramMem).toBe(used);
    owned.free();
  });

  it('is detected by its address, without a hint, from its start to its end', async () => {
    const { context } = await fixture.open({ node: { asic } });
    const device = context.device(0);
    const owned = KINDS[kind]!(device);
    const { address } = owned;
    const found = context.memQuery({ address: address + 5n, byteLength: 100, sysDevice: 0 });
    expect([found.memoryType, found.sysDevice, found.baseAddress]).toEqual([GAUDI, 0, address]);
    expect(context.memQuery({ address, byteLength: 1 })).toMatchObject({ memoryType: GAUDI });
    const exported = context.exportDmabuf({ address: address + 4096n, byteLength: 4096, sysDevice: 0 });
    const base = context.exportDmabuf({ address, byteLength: 1, sysDevice: 0 });
    expect(exported.offset - base.offset).toBe(4096);
    for (const { fd } of [exported, base]) closeSync(fd);
    owned.free();
    expect(context.memQuery({ address, byteLength: 1, sysDevice: 0 }).memoryType).toBe(MemoryType.HOST);
  });

  it('that is freed while registered is not accessed, and operations fail with that reason', async () => {
    const stack = await fixture.open({ node: { asic } });
    const { context, endpoint } = stack;
    const device = context.device(0);
    const owned = KINDS[kind]!(device);
    const memory = context.memMap({ address: owned.address, byteLength: 4096, memoryType: GAUDI, sysDevice: 0 });
    const rkey = rkeyOf(stack, memory);
    await endpoint.put(pattern(4096, 1), rkey);
    owned.free();
    const next = KINDS[kind]!(device);
    expect(next.address).toBe(owned.address);
    const other = context.memMap({ address: next.address, byteLength: 4096, memoryType: GAUDI, sysDevice: 0 });
    const kept = pattern(4096, 2);
    await endpoint.put(kept, rkeyOf(stack, other));
    for (const use of [
      () => endpoint.put(new Uint8Array(4096), rkey),
      () => endpoint.get(new Uint8Array(4096), rkey),
      () => endpoint.put(memory, rkeyOf(stack, other)),
      () => endpoint.get(memory, rkeyOf(stack, other)),
      () => Promise.all([endpoint.tagSend(memory, { tag: 3 }), stack.worker.tagRecv(new Uint8Array(4096), { tag: 3 })]),
    ]) {
      const failure = await failureOf(use);
      expect(failure).toMatchObject({ status: Status.INVALID_ADDR, cause: { code: 'ERR_RKEY_STALE' } });
    }
    expect((await failureOf(() => endpoint.unpackRkey(context.packRkey(memory)))).code).toBe('ERR_RKEY_STALE');
    expectSame(await bytesAt(stack, next.address, 4096), kept);
    context.memUnmap(memory);
    context.memUnmap(other);
    next.free();
  });
});

describe('a peer on another card', () => {
  it.each([
    ['by look-up', () => {}],
    ['by socket', asProcesses],
  ])('reaches a part of memory of the application, %s, until it is freed', async (_, share) => {
    const node = fixture.node({ cards: 2 });
    const devices = [open(node, { minor: 0 }), open(node, { minor: 1 })] as const;
    const one = await fixture.openOn(node, { devices: [devices[0]], config: { TLS: 'self,gaudi,posix' } });
    const two = await fixture.openOn(node, { devices: [devices[1]], config: { TLS: 'self,gaudi,posix' } });
    const owned = KINDS['raw memory']!(devices[1]);
    const { offset, byteLength } = PART;
    const part = { address: owned.address + BigInt(offset), byteLength, sysDevice: 0 };
    const memory = two.context.memMap(part);
    const whole = two.context.memMap({ address: owned.address, byteLength: MIB, sysDevice: 0 });
    await two.endpoint.put(new Uint8Array(MIB), rkeyOf(two, whole));
    const ab = one.worker.endpoint(two.worker.address());
    share();
    const attending = new AbortController();
    const served = two.worker.serve(attending.signal);
    const rkey = ab.unpackRkey(two.context.packRkey(memory));
    const bytes = pattern(byteLength, 3);
    const source = one.context.memMap({ allocate: byteLength, memoryType: GAUDI });
    await one.endpoint.put(bytes, rkeyOf(one, source));
    expect(await ab.put(source, rkey)).toMatchObject({ transport: 'gaudi_ipc' });
    const expected = new Uint8Array(MIB);
    expected.set(bytes, offset);
    expectSame(await bytesAt(two, owned.address, MIB), expected);
    const back = new Uint8Array(1000);
    await ab.get(back, rkey, { remoteOffset: 77 });
    expectSame(back, bytes.subarray(77, 1077));
    two.context.memUnmap(whole);
    // The driver keeps exported memory until its last descriptor is closed, those of a peer a little later.
    await vi.waitFor(() => owned.free(), { interval: 1 });
    expect((await failureOf(() => ab.put(source, rkey))).status).toBe(Status.INVALID_ADDR);
    two.context.memUnmap(memory);
    attending.abort();
    await served;
    await one.context.close();
    await two.context.close();
    // The memory was freed in the driver.
    expect(devices[1].memory.blocks()).toEqual([]);
    for (const device of devices) device.close();
  });
});

describe('a context on devices of the application', () => {
  it('uses them as its cards, does not close them, and returns them', async () => {
    const node = fixture.node({ cards: 3 });
    const devices = [open(node, { minor: 2 }), open(node, { minor: 0 })];
    const stack = await fixture.openOn(node, { devices });
    const { context, endpoint } = stack;
    expect([context.device(0), context.device(1)]).toEqual(devices);
    expect((await failureOf(() => context.device(2))).code).toBe('ERR_GAUDI_DEVICE_NOT_FOUND');
    // The card that is not in the list is free.
    node.open(1).close();
    const before = devices[0]!.memory.allocate(4096);
    const memory = context.memMap({ address: before.address, byteLength: 4096, sysDevice: 0 });
    const far = context.memMap({ allocate: 4096, memoryType: GAUDI, sysDevice: 1 });
    await endpoint.put(pattern(4096, 1), rkeyOf(stack, memory));
    await endpoint.put(memory, rkeyOf(stack, far));
    const back = new Uint8Array(4096);
    await endpoint.get(back, rkeyOf(stack, far));
    expectSame(back, pattern(4096, 1));
    await context.close();
    expect(devices.map(({ closed }) => closed)).toEqual([false, false]);
    expect([before.live, before.inFlight]).toEqual([true, 0]);
    before.free();
    const request = devices[1]!.dma.putShort(new Uint8Array(8), 0, devices[1]!.memory.allocate(64), 0, 8)!;
    while (devices[1]!.dma.dmaPoll(request) === Status.INPROGRESS);
    expect(request.status).toBe(Status.OK);
    for (const device of devices) device.close();
  });

  it('closes after its own transfers, which end', async () => {
    const node = fixture.node({ cards: 1, dmaThreads: 1 });
    const device = open(node);
    const stack = await fixture.openOn(node, { devices: [device] });
    const memory = stack.context.memMap({ allocate: 64 * MIB, memoryType: GAUDI });
    const rkey = rkeyOf(stack, memory);
    const put = stack.endpoint.put(new Uint8Array(64 * MIB), rkey).then(
      () => Status.OK,
      (error: { readonly status: number }) => error.status,
    );
    await stack.context.close();
    expect([Status.OK, Status.CANCELED]).toContain(await put);
    expect([device.dma.outstanding, device.closed]).toEqual([0, false]);
    expect(device.memory.statistics.blocks).toBe(0);
    device.close();
  });

  it('stays usable when a device is closed before it', async () => {
    const node = fixture.node({ cards: 1 });
    const device = open(node);
    const stack = await fixture.openOn(node, { devices: [device] });
    const memory = stack.context.memMap({ allocate: 4096, memoryType: GAUDI });
    const host = stack.context.memMap({ buffer: new Uint8Array(4096) });
    const rkey = rkeyOf(stack, memory);
    await stack.endpoint.put(host, rkey);
    device.close();
    expect((await failureOf(() => stack.endpoint.put(host, rkey))).status).toBeLessThan(0);
    await stack.context.close();
  });

  it('refuses invalid devices by name', async () => {
    const node = fixture.node({ cards: 2 });
    const elsewhere = fixture.node({ cards: 1 });
    const [device, closed, foreign] = [open(node, { minor: 0 }), open(node, { minor: 1 }), open(elsewhere)];
    closed.close();
    const bad: readonly (readonly [unknown, RegExp])[] = [
      [null, /devices/],
      [[], /devices/],
      ['gaudi0', /devices/],
      [[undefined], /devices\[0\]/],
      [[device, {}], /devices\[1\]/],
      [[Object.create(device)], /devices\[0\]/],
      [[closed], /devices\[0\].*open/],
      [[device, device], /devices\[1\].*twice/],
      [[device, foreign], /devices\[1\].*same node/],
    ];
    for (const [devices, message] of bad) {
      const error = await failureOf(() => Context.create(fixture.quiet({ devices: devices as never })));
      expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', status: Status.INVALID_PARAM });
      expect(error.message).toMatch(message);
    }
    for (const open of [device, foreign]) open.close();
  });
});

describe('an address that cannot be mapped', () => {
  it('is refused with the reason, and leaves nothing behind', async () => {
    const { context } = await fixture.open();
    const device = context.device(0);
    const block = device.memory.allocate(4096);
    const { address } = block;
    const bad: readonly (readonly [object, RegExp])[] = [
      [{ address, byteLength: 4097, sysDevice: 0 }, /not inside one allocation/],
      [{ address: address - 1n, byteLength: 2, sysDevice: 0 }, /not inside one allocation/],
      [{ address, byteLength: 4096, sysDevice: 1, memoryType: GAUDI }, /memoryType.*host/],
      [{ address, byteLength: 4096, sysDevice: 9, memoryType: GAUDI }, /memoryType.*host/],
      [{ address, byteLength: 4096, sysDevice: -1 }, /sysDevice/],
      [{ address, byteLength: 0, sysDevice: 0 }, /byteLength/],
      [{ address, byteLength: 1.5, sysDevice: 0 }, /byteLength/],
      [{ address: 2n ** 64n, byteLength: 1, sysDevice: 0 }, /address/],
      [{ address: -1n, byteLength: 1, sysDevice: 0 }, /address/],
      [{ address, byteLength: 4096, memoryType: 77 }, /memoryType/],
      [{ address, byteLength: 4096, memoryType: MemoryType.HOST }, /2\^47/],
    ];
    for (const [params, message] of bad) {
      const error = await failureOf(() => context.memMap(params as never));
      expect(error.message).toMatch(message);
      expect(error.status).toBeLessThan(0);
    }
    const index: unknown[] = [undefined, null, -1, 0.5, Number.NaN, '0', 0n];
    for (const value of index)
      expect((await failureOf(() => context.device(value as never))).code).toBe('ERR_INVALID_PARAM');
    block.free();
  });

  it('is unmapped in any order, when registrations overlap', async () => {
    const stack = await fixture.open();
    const { context, endpoint } = stack;
    const block = context.device(0).memory.allocate(MIB);
    const parts = [0, 1000, 500].map((offset) =>
      context.memMap({ address: block.address + BigInt(offset), byteLength: 2000, sysDevice: 0 }),
    );
    const expected = new Uint8Array(3000);
    await endpoint.put(new Uint8Array(2000), rkeyOf(stack, parts[0]!));
    for (const [index, offset] of [0, 1000, 500].entries()) {
      const bytes = pattern(2000, index);
      await endpoint.put(bytes, rkeyOf(stack, parts[index]!));
      expected.set(bytes, offset);
      context.memUnmap(parts[index]!);
    }
    expectSame(await bytesAt(stack, block.address, 3000), expected);
    block.free();
  });
});
