/** Memory of messages is used again once it is given back, by one owner at a time. */

import { expect, it } from 'vitest';
import { MessageBlocks } from './stream.ts';

const LONG = new Uint8Array(10_000).map((_, i) => i * 5);

it('a block is used again when it is given back, and only then', () => {
  const blocks = new MessageBlocks();
  const first = blocks.copy(LONG, 0, 8000);
  expect(first).toEqual(LONG.subarray(0, 8000));
  expect(first.buffer.byteLength).toBe(8000);
  const second = blocks.copy(LONG, 1, 8001);
  expect(second.buffer).not.toBe(first.buffer);
  blocks.give(first);
  // Of the same length only.
  expect(blocks.copy(LONG, 0, 9000)).toHaveLength(9000);
  const third = blocks.copy(LONG, 2, 8002);
  expect(third).toBe(first);
  expect(third).toEqual(LONG.subarray(2, 8002));
  expect(second).toEqual(LONG.subarray(1, 8001));
});

it('what a program has is taken back once, and nothing else is', () => {
  const blocks = new MessageBlocks();
  const block = blocks.copy(LONG, 0, 8000);
  blocks.takeBack(block);
  blocks.takeBack(new Uint8Array(8000));
  expect(blocks.copy(LONG, 0, 8000)).not.toBe(block);
  expect(blocks.lend(block)).toBe(block);
  blocks.takeBack(block);
  blocks.takeBack(block);
  expect(blocks.copy(LONG, 0, 8000)).toBe(block);
  expect(blocks.copy(LONG, 0, 8000)).not.toBe(block);
});

it('a block that a program detaches, before or after it gives it back, holds no message', () => {
  const blocks = new MessageBlocks();
  const detach = (bytes: Uint8Array): unknown => structuredClone(bytes, { transfer: [bytes.buffer as ArrayBuffer] });
  for (let i = 0; i < 100; i++) {
    const [before, after] = [blocks.copy(LONG, 0, 8000), blocks.copy(LONG, 0, 8000)];
    blocks.lend(before);
    blocks.lend(after);
    detach(before);
    blocks.takeBack(before);
    blocks.takeBack(after);
    detach(after);
    expect(blocks.copy(LONG, i, i + 8000)).toEqual(LONG.subarray(i, i + 8000));
  }
});

it('short messages have memory of their own', () => {
  const blocks = new MessageBlocks();
  const short = blocks.copy(LONG, 5, 105);
  expect(short).toEqual(LONG.subarray(5, 105));
  blocks.takeBack(blocks.lend(short));
  expect(blocks.copy(LONG, 5, 105)).not.toBe(short);
});
