/** Parameters of memMap that contradict each other. */

import { expect, it } from 'vitest';
import type { MemMapParams } from './memory.ts';
import { checkMapParams } from './request.ts';

const BUFFER = new Uint8Array(8);

it.each([
  [{ allocate: 8, buffer: BUFFER }, 'buffer and allocate'],
  [{ buffer: BUFFER, address: 4096, byteLength: 8 }, 'buffer and address'],
  [{ address: 4096, dmabuf: { fd: 3, byteLength: 8 } }, 'address and dmabuf'],
  [{ buffer: BUFFER, dmabuf: { fd: 3, byteLength: 8 }, allocate: 8 }, 'buffer and dmabuf and allocate'],
])('says which parameters of memMap exclude each other: %j', (params, given) => {
  expect(() => checkMapParams(params as unknown as MemMapParams)).toThrow(
    expect.objectContaining({
      code: 'ERR_INVALID_PARAM',
      message: `argument params must have exactly one of buffer, address, dmabuf and allocate, got ${given}, which exclude each other`,
    }),
  );
});

it.each([{ buffer: BUFFER }, { address: 4096, byteLength: 8 }, { dmabuf: { fd: 3, byteLength: 8 } }, { allocate: 8 }])(
  'takes one of them: %j',
  (params) => {
    expect(checkMapParams(params)).toMatchObject(params);
  },
);
