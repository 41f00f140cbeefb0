/** Descriptors that are longer than a slice. */

import { expect, it } from 'vitest';
import { addressOf, mapAnonymous } from '../../../sys/index.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { DmaChannel } from './dma-engines.ts';
import { CHANNELS, Opcode, REGION_BYTES } from './dma-ring.ts';
import { EngineProgram } from './engine-program.ts';

const MIB = 2 ** 20;
const LOW = 0x04030201;
const HIGH = 0x08070605;

it.each([1, 7, 8, 4 * MIB, 9 * MIB + 5])('a fill of %d bytes is executed in slices of 4 MiB', (byteLength) => {
  using memory = mapAnonymous(byteLength + 8);
  const words = new Int32Array(new SharedArrayBuffer(REGION_BYTES));
  const channel = new DmaChannel(words, 0);
  const program = new EngineProgram(words, addressOf(words), CHANNELS, systemClock);
  channel.immediate(Opcode.FILL, LOW, HIGH, memory.address, byteLength);
  channel.publish();
  const slices = Math.ceil(byteLength / (4 * MIB));
  expect(Array.from({ length: slices + 1 }, () => program.serve(0))).toEqual([...new Array(slices - 1).fill(1), 2, 0]);
  const expected = Buffer.alloc(byteLength + 8);
  expected.fill(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), 0, byteLength);
  expect(Buffer.compare(memory.u8, expected)).toBe(0);
});
