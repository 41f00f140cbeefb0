/** Byte arrays, and what only looks like one. */

import { expect, it } from 'vitest';
import { isBytes } from './bytes.ts';

it('accepts byte arrays only', () => {
  const forged = [
    Object.create(Uint8Array.prototype),
    Object.setPrototypeOf(new DataView(new ArrayBuffer(8)), Uint8Array.prototype),
  ];
  const others = [
    new Proxy(new Uint8Array(8), {}),
    new Int8Array(8),
    new ArrayBuffer(8),
    [1],
    1,
    'text',
    null,
    undefined,
    Symbol('bytes'),
    1n,
  ];
  expect([new Uint8Array(0), Buffer.from('x'), new Uint8Array(new SharedArrayBuffer(4))].map(isBytes)).toEqual([
    true,
    true,
    true,
  ]);
  expect([...forged, ...others].filter(isBytes)).toEqual([]);
});
