/** Equal byte arrays have the same bytes and the same length. Memory types that are not of devices, or not known. */

import { expect, it } from 'vitest';
import { equalBytes, hasBytes } from './bytes.ts';
import { DEVICE_MEMORY_TYPES, hasMemoryType, MemoryType, withMemoryType } from './memory-type.ts';

it.each([
  [[], [], true],
  [[1, 2], [1, 2], true],
  [[1, 2], [1, 3], false],
  [[1, 2], [0, 2], false],
  [[1], [1, 2], false],
  [[1, 2], [1], false],
  [[], [1], false],
])('%o and %o: %s', (left, right, equal) => {
  expect(equalBytes(Uint8Array.from(left), Uint8Array.from(right))).toBe(equal);
});

it('an array has as many bytes as it is long, and always none', () => {
  const bytes = new Uint8Array(3);
  expect([0, 3, 4].map((end) => hasBytes(bytes, end))).toEqual([true, true, false]);
  expect(hasBytes(new Uint8Array(0), 0)).toBe(true);
});

it('host memory is not device memory, and unknown is not a memory type', () => {
  const types = [MemoryType.HOST, MemoryType.CUDA, MemoryType.GAUDI, MemoryType.UNKNOWN];
  expect(types.map((type) => hasMemoryType(DEVICE_MEMORY_TYPES, type))).toEqual([false, true, true, false]);
  expect(withMemoryType({ memoryType: 'gaudi', length: 3 })).toEqual({ memoryType: MemoryType.GAUDI, length: 3 });
  expect(() => withMemoryType({ memoryType: 'unknown' })).toThrow(/memoryType must be a memory type \(host, /);
});
