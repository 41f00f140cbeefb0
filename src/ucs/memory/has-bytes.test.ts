/** The check of byte arrays in code that V8 has compiled for all kinds of them. */

import { describe, expect, it } from 'vitest';
import { hasBytes } from './bytes.ts';

/** Node 20 has resizable ArrayBuffers (ES2024), but the library types of ES2023 do not. */
interface ResizableBuffer extends ArrayBuffer {
  resize(byteLength: number): void;
}
const Resizable = ArrayBuffer as unknown as new (
  byteLength: number,
  options: { maxByteLength: number },
) => ResizableBuffer;

/** Calls after which V8 has compiled the function. */
const CALLS = 300_000;

function detach({ buffer }: Uint8Array): void {
  structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });
}

/** Runs it on arrays of every kind, often enough to be compiled. */
function warm(): void {
  const kinds = [
    new Uint8Array(64),
    new Uint8Array(new Resizable(64, { maxByteLength: 128 })),
    new Uint8Array(new SharedArrayBuffer(64)),
    Buffer.alloc(64),
  ];
  let found = 0;
  for (let i = 0; i < CALLS; i++) if (hasBytes(kinds[i & 3]!, i % 65)) found += 1;
  expect(found).toBe(CALLS);
}

describe('hasBytes', () => {
  it('compares with the length', () => {
    const bytes = new Uint8Array(8);
    expect([0, 1, 8, 9, 2 ** 40].map((end) => hasBytes(bytes, end))).toEqual([true, true, true, false, false]);
    const part = new Uint8Array(new ArrayBuffer(16), 4, 8);
    expect([8, 9].map((end) => hasBytes(part, end))).toEqual([true, false]);
    expect([0, 1].map((end) => hasBytes(new Uint8Array(0), end))).toEqual([true, false]);
  });

  it('notices that an array was detached or shortened, also in compiled code', () => {
    for (let round = 0; round < 3; round++) {
      warm();
      const bytes = new Uint8Array(64);
      expect(hasBytes(bytes, 64)).toBe(true);
      detach(bytes);
      expect([hasBytes(bytes, 64), hasBytes(bytes, 1), hasBytes(bytes, 0)]).toEqual([false, false, true]);
      const buffer = new Resizable(64, { maxByteLength: 64 });
      const resized = new Uint8Array(buffer);
      expect(hasBytes(resized, 64)).toBe(true);
      buffer.resize(8);
      expect([hasBytes(resized, 64), hasBytes(resized, 9), hasBytes(resized, 8)]).toEqual([false, false, true]);
    }
  });
});
