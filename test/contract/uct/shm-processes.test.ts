/** posix and cma between real processes: data, messages, sleeping, contention, freed memory, a killed peer, other namespaces. */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WordOperation } from '../../../src/api/operation/word-operation.ts';
import { MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { AtomicOperation, type Iface, type UctEndpoint } from '../../../src/uct/api/iface.ts';
import type { MemoryDomain } from '../../../src/uct/api/memory-domain.ts';
import { scavenge } from '../../../src/uct/base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../../src/uct/base/key/segment-name.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { createTestLog } from '../../fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';
import type { ShmAnswer, ShmRequest } from './shm-program.ts';
import { CountingCompletion, packedKey } from './uct-fixture.ts';
import { openCma, openPosix } from './uct-implementations.ts';

const PROGRAM = join(import.meta.dirname, 'shm-program.ts');

const bytesOf = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, 'hex'));

expectNoLeaks(SEGMENT_PROBES);
let child: Child<ShmRequest, ShmAnswer>;
let hello: Required<Pick<ShmAnswer, 'posix' | 'cma' | 'key' | 'cmaKey'>>;
let posix: MemoryDomain;
let cma: MemoryDomain;
let iface: Iface;
let cmaIface: Iface;
let endpoint: UctEndpoint;
let cmaEndpoint: UctEndpoint;

beforeEach(async () => {
  child = new Child(PROGRAM);
  await child.next();
  hello = (await child.ask({ do: 'hello' })) as typeof hello;
  posix = openPosix(createTestLog()).md;
  cma = openCma(createTestLog()).md;
  iface = posix.openIface(posix.resources[0]!);
  cmaIface = cma.openIface(cma.resources[0]!);
  expect(iface.unreachableReason(bytesOf(hello.posix))).toBeUndefined();
  expect(cmaIface.unreachableReason(bytesOf(hello.cma))).toBeUndefined();
  endpoint = iface.connect(bytesOf(hello.posix));
  cmaEndpoint = cmaIface.connect(bytesOf(hello.cma));
}, 60_000);

afterEach(async () => {
  posix.close();
  cma.close();
  child.disconnect();
  await child.end();
});

describe('another process', { timeout: 60_000 }, () => {
  it('is put to and got from, until it frees the memory', async () => {
    for (const [md, end, hex] of [
      [posix, endpoint, hello.key],
      [cma, cmaEndpoint, hello.cmaKey],
    ] as const) {
      const rkey = md.rkeyUnpack(bytesOf(hex));
      const bytes = new Uint8Array(65536).map((_, i) => i * 7);
      const local = md.memReg(bytes);
      const completion = new CountingCompletion();
      const there = (): Uint8Array => {
        const back = md.memReg(new Uint8Array(65536));
        expect(end.getZcopy([{ memory: back, offset: 0, byteLength: 65536 }], 0, rkey, completion)).toBe(Status.OK);
        return back.bytes!;
      };
      const before = there();
      expect(before.every((byte) => byte === (md === cma ? 0x5a : 0))).toBe(true);
      expect(end.putZcopy([{ memory: local, offset: 100, byteLength: 5000 }], 999, rkey, completion)).toBe(Status.OK);
      before.set(bytes.subarray(100, 5100), 999);
      expect(Buffer.compare(there(), before)).toBe(0);
      // Restored for the check of the child.
      before.fill(md === cma ? 0x5a : 0);
      const restored = md.memReg(before);
      expect(end.putZcopy([{ memory: restored, offset: 0, byteLength: 65536 }], 0, rkey, completion)).toBe(Status.OK);
      if (md === posix) continue;
      const answer = await child.ask({ do: 'free' });
      expect(end.putZcopy([{ memory: local, offset: 0, byteLength: 8 }], 0, rkey, completion)).toBe(
        Status.INVALID_ADDR,
      );
      expect(end.getZcopy([{ memory: local, offset: 0, byteLength: 8 }], 0, rkey, completion)).toBe(
        Status.INVALID_ADDR,
      );
      expect(answer.isUnchanged).toBe(true);
    }
    const gone = () => posix.rkeyUnpack(bytesOf(hello.key));
    expect(gone).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
  });

  it('cannot be reached by cma with the key of a third one', () => {
    const mine = cma.memReg(new Uint8Array(64));
    const rkey = cma.rkeyUnpack(packedKey(cma, mine));
    const iov = [{ memory: mine, offset: 0, byteLength: 8 }];
    expect(cmaEndpoint.putZcopy(iov, 0, rkey, new CountingCompletion())).toBe(Status.INVALID_PARAM);
  });

  it('answers messages, sleeping or not', async () => {
    const answers: Uint8Array[] = [];
    iface.setAmHandler((_id, { bytes, offset, byteLength }) => answers.push(bytes.slice(offset, offset + byteLength)));
    await child.ask({ do: 'echo', address: Buffer.from(iface.address).toString('hex') });
    const sent: Uint8Array[] = [];
    for (let round = 0; round < 200; round++) {
      const bytes = new Uint8Array(1 + ((round * 97) % 8000)).map((_, i) => i + round);
      sent.push(bytes);
      const send = (): Status => endpoint.amShort(5, new Int32Array(0), 0, bytes, 0, bytes.byteLength);
      while (send() === Status.NO_RESOURCE) await iface.wait(1e9);
      // Every tenth message finds both ends asleep.
      while (round % 10 === 9 && answers.length < sent.length) if (iface.progress() === 0) await iface.wait(1e12);
    }
    while (answers.length < sent.length) if (iface.progress() === 0) await iface.wait(1e12);
    for (const [i, bytes] of sent.entries()) expect(Buffer.compare(answers[i]!, bytes)).toBe(0);
  });

  it('sends faster than this one reads, without losses', async () => {
    let count = 0;
    let wrong = 0;
    iface.setAmHandler((_id, { words, offset }) => {
      if (words[offset >> 2] !== count || words[(offset >> 2) + 1] !== ~count) wrong += 1;
      count += 1;
    });
    const sent = child.ask({ do: 'send', address: Buffer.from(iface.address).toString('hex'), count: 50_000 });
    while (count < 50_000) if (iface.progress() === 0) await iface.wait(1e12);
    expect(wrong).toBe(0);
    expect(await sent).toEqual({ sent: 50_000 });
  });

  it('is woken from its sleep', async () => {
    for (let round = 1; round <= 5; round++) {
      await child.ask({ do: 'sleep' });
      const woke = child.next();
      expect(endpoint.amShort(1, Int32Array.of(1, 2), 2, undefined, 0, 0)).toBe(Status.OK);
      expect(await woke).toEqual({ woke: round });
    }
  });

  it('adds to the same words at the same time', async () => {
    const memory = posix.memAlloc(64, { memoryType: MemoryType.HOST });
    const key = packedKey(posix, memory);
    const rkey = posix.rkeyUnpack(key);
    const completion = new CountingCompletion();
    const COUNT = 20_000;
    const added = child.ask({ do: 'add', key: Buffer.from(key).toString('hex'), count: COUNT });
    for (let i = 0; i < COUNT; i++) {
      for (const [wordBytes, at] of [[4, 0] as const, [8, 8] as const]) {
        const call = WordOperation.of(AtomicOperation.ADD, wordBytes, 1n, 0n);
        expect(endpoint.atomic(call, at, rkey, completion)).toBe(Status.OK);
      }
      if (i % 1000 === 0) await new Promise(setImmediate);
    }
    await added;
    const view = new DataView(memory.bytes!.buffer);
    expect([view.getUint32(0, true), view.getBigUint64(8, true)]).toEqual([2 * COUNT, BigInt(2 * COUNT)]);
  });

  it('that is killed is detected by both transports, and leaves no files', async () => {
    const rkey = cma.rkeyUnpack(bytesOf(hello.cmaKey));
    const local = cma.memReg(new Uint8Array(64));
    let count = 0;
    iface.setAmHandler(undefined as never);
    await child.ask({ do: 'send', address: Buffer.from(iface.address).toString('hex'), count: 100 });
    // Attaches the ring without reading it: a ring that no receiver has attached may be removed with its sender.
    iface.progress();
    iface.setAmHandler(() => {
      count += 1;
    });
    await child.kill();
    expect(readdirSync(SEGMENT_FOLDER).filter((name) => name.split('.')[2] === String(child.pid))).toEqual([]);
    expect(endpoint.check()).toBe(Status.ENDPOINT_TIMEOUT);
    expect(cmaEndpoint.check()).toBe(Status.ENDPOINT_TIMEOUT);
    const iov = [{ memory: local, offset: 0, byteLength: 8 }];
    expect(cmaEndpoint.putZcopy(iov, 0, rkey, new CountingCompletion())).toBe(Status.ENDPOINT_TIMEOUT);
    // Messages that it had sent still arrive.
    while (iface.progress() > 0);
    expect(count).toBe(100);
    let status: Status = Status.OK;
    for (let i = 0; i < 10_000 && (status === Status.OK || status === Status.NO_RESOURCE); i++) {
      status = endpoint.amShort(1, Int32Array.of(1, 2), 2, undefined, 0, 0);
    }
    expect(status).toBe(Status.ENDPOINT_TIMEOUT);
    await iface.wait(1e6);
    while (iface.progress() > 0);
    expect(cmaIface.unreachableReason(bytesOf(hello.cma))).toMatch(/has ended/);
    expect(iface.unreachableReason(bytesOf(hello.posix))).toMatch(/ended/);
  });

  it.each([
    ['before it takes the ring in, and the sender closes then', false, ['kill', 'close']],
    ['before it takes the ring in, after the sender has closed', false, ['close', 'kill']],
    ['after it has taken the ring in, and the sender closes then', true, ['kill', 'close']],
    ['after it has taken the ring in and the sender has closed', true, ['close', 'kill']],
  ] as const)('that is killed %s leaves no ring of a sender that lives', async (_, isTaken, steps) => {
    const before = SEGMENT_PROBES['segments']!();
    const second = iface.connect(bytesOf(hello.posix));
    expect(second.amShort(1, Int32Array.of(1, 2), 2, undefined, 0, 0)).toBe(Status.OK);
    expect(SEGMENT_PROBES['segments']!()).toBe(before + 1);
    if (isTaken) {
      iface.setAmHandler(() => {});
      await child.ask({ do: 'echo', address: Buffer.from(iface.address).toString('hex') });
      while (SEGMENT_PROBES['segments']!() > before) await new Promise(setImmediate);
    }
    for (const step of steps) {
      if (step === 'kill') await child.kill();
      else second.close();
    }
    // As at the next use of shared memory by this process.
    scavenge();
    expect(SEGMENT_PROBES['segments']!()).toBe(before);
  });

  it('on another machine or in another namespace is refused with the reason', () => {
    const changed = (hex: string, at: number): Uint8Array => {
      const address = bytesOf(hex);
      address[at]! ^= 0xff;
      return address;
    };
    expect(iface.unreachableReason(changed(hello.posix, 5))).toMatch(/another machine/);
    expect(cmaIface.unreachableReason(changed(hello.cma, 5))).toMatch(/another machine/);
    expect(cmaIface.unreachableReason(changed(hello.cma, 28))).toMatch(/pid namespace/);
    // Another /dev/shm has no such segment.
    const elsewhere = changed(hello.posix, 21);
    elsewhere[40]! ^= 1;
    expect(iface.unreachableReason(elsewhere)).toMatch(/another \/dev\/shm/);
    expect(() => iface.connect(elsewhere)).toThrow(expect.objectContaining({ code: 'ERR_UNREACHABLE' }));
  });
});
