/** Atomic operations on words of device memory: one after the other, with their results, and how they fail. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import type { MemoryHandle } from '../api/memory.ts';
import { WordOperation } from '../api/word-operation.ts';
import type { CopyDone, DeviceCopy, StagingPort } from './device-copier.ts';
import { DeviceWords } from './device-words.ts';
import type { FragmentUser } from './fragment-pool.ts';

/** A card whose memory is `device`, and that copies when the test says so. */
class Card implements StagingPort<MemoryHandle> {
  readonly device: MemoryHandle = memoryOf(32);
  readonly copies: (() => void)[] = [];
  free = 1;
  /** Status with which the next copy ends. */
  status: Status = Status.OK;

  acquire(run: FragmentUser<MemoryHandle>): void {
    if (this.free === 0) {
      run(undefined, Status.NO_MEMORY);
      return;
    }
    this.free -= 1;
    run(memoryOf(8), Status.OK);
  }

  release(): void {
    this.free += 1;
  }

  copy(isToDevice: boolean, copy: DeviceCopy<MemoryHandle>, done: CopyDone): void {
    const { device, offset, fragment, byteLength } = copy;
    this.copies.push(() => {
      const [from, to] = isToDevice ? [fragment.bytes!, device.bytes!] : [device.bytes!, fragment.bytes!];
      if (this.status === Status.OK)
        to.set(from.subarray(isToDevice ? 0 : offset, 32).subarray(0, byteLength), isToDevice ? offset : 0);
      done(this.status);
    });
  }

  /** Copies until nothing is left to copy. */
  run(): void {
    for (;;) {
      const copy = this.copies.shift();
      if (copy === undefined) return;
      copy();
    }
  }
}

function memoryOf(byteLength: number): MemoryHandle {
  return { bytes: new Uint8Array(byteLength), byteLength, mapped: true } as unknown as MemoryHandle;
}

const add = (value: bigint): WordOperation => WordOperation.of(AtomicOperation.ADD, 8, value, 0n);

describe('operations on words of device memory', () => {
  it('run one after the other', () => {
    const card = new Card();
    const words = new DeviceWords(card);
    const calls = [add(5n), add(7n), add(1n)];
    const ends: Status[] = [];
    for (const call of calls) words.modify(card.device, 16, call, (status) => void ends.push(status));
    expect(card.copies.length).toBe(1);
    card.run();
    expect([ends, calls.map(({ result }) => result)]).toEqual([
      [Status.OK, Status.OK, Status.OK],
      [0n, 5n, 12n],
    ]);
    expect([Buffer.from(card.device.bytes!).readBigUInt64LE(16), card.free]).toEqual([13n, 1]);
  });

  it('fail with the copy, and the next one runs', () => {
    const card = new Card();
    const words = new DeviceWords(card);
    const ends: Status[] = [];
    for (let i = 0; i < 2; i++) words.modify(card.device, 0, add(1n), (status) => void ends.push(status));
    card.status = Status.IO_ERROR;
    card.copies.shift()!();
    card.status = Status.OK;
    card.run();
    expect([ends, card.device.bytes![0], card.free]).toEqual([[Status.IO_ERROR, Status.OK], 1, 1]);
  });

  it('fail without a fragment, any number of them without recursion', () => {
    const card = new Card();
    const words = new DeviceWords(card);
    const ends: Status[] = [];
    words.modify(card.device, 0, add(1n), (status) => void ends.push(status));
    for (let i = 0; i < 20_000; i++) words.modify(card.device, 0, add(1n), (status) => void ends.push(status));
    const release = card.release.bind(card);
    // The fragment of the first operation is the last that there was.
    card.release = () => {};
    card.run();
    release();
    expect([ends.length, ends[0], ends.slice(1).every((status) => status === Status.NO_MEMORY)]).toEqual([
      20_001,
      Status.OK,
      true,
    ]);
  });
});
