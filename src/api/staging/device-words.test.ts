/** Atomic operations on words of device memory: one after the other, with their results, and how they fail. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import type { MemoryHandle } from '../contract/memory.ts';
import { WordOperation } from '../operation/word-operation.ts';
import { type CopyDone, type DeviceCopier, type DeviceCopy, DeviceWords } from './device-copier.ts';

/** A card whose memory is `device`, and that copies when the test says so. */
class Card implements DeviceCopier {
  readonly device: MemoryHandle = memoryOf(32);
  readonly copies: (() => void)[] = [];
  /** Whether copies end in their call. */
  isImmediate = false;
  /** Status with which the next copy ends. */
  status: Status = Status.OK;

  copy(isToDevice: boolean, { device, offset, host, byteLength }: DeviceCopy, done: CopyDone): void {
    const end = (): void => {
      const word = device.bytes!.subarray(offset, offset + byteLength);
      const bytes = host as Uint8Array;
      if (this.status === Status.OK && isToDevice) word.set(bytes.subarray(0, byteLength));
      else if (this.status === Status.OK) bytes.set(word);
      done(this.status);
    };
    if (this.isImmediate) end();
    else this.copies.push(end);
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
    expect(Buffer.from(card.device.bytes!).readBigUInt64LE(16)).toBe(13n);
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
    expect([ends, card.device.bytes![0]]).toEqual([[Status.IO_ERROR, Status.OK], 1]);
  });

  it('fail in their call, any number of them without recursion', () => {
    const card = new Card();
    const words = new DeviceWords(card);
    const ends: Status[] = [];
    for (let i = 0; i <= 20_000; i++) words.modify(card.device, 0, add(1n), (status) => void ends.push(status));
    const first = card.copies.shift()!;
    card.isImmediate = true;
    card.status = Status.NO_MEMORY;
    first();
    expect([ends.length, ends.every((status) => status === Status.NO_MEMORY)]).toEqual([20_001, true]);
  });
});
