/** Decision whether addresses of cards are passed to libucp. It uses neither libucp nor a card: all inputs are data. */

import { describe, expect, it } from 'vitest';
import { type DeviceAccessInput, deviceAccess } from './memory-handle.ts';

const TYPES = [
  'host',
  'cuda',
  'cuda-managed',
  'rocm',
  'rocm-managed',
  'rdma',
  'ze-host',
  'ze-device',
  'ze-managed',
  'gaudi',
];
const ABLE: DeviceAccessInput = {
  version: '1.21.0',
  memoryTypes: TYPES,
  usableTypes: 0b10_0000_0001n,
  emulated: false,
};

describe('device addresses', () => {
  it('are passed directly if libucp has the type, supports it, and the cards are real', () => {
    expect(deviceAccess(ABLE)).toEqual({ isDirect: true, memoryType: 9, reason: 'UCX 1.21.0 knows memory type gaudi' });
  });

  it.each([
    [{ version: '1.13.1', memoryTypes: TYPES.slice(0, 6) }, /UCX 1\.13\.1 does not know memory type gaudi/],
    [{ usableTypes: 1n }, /no memory domain of UCX 1\.21\.0 supports/],
    [{ emulated: true }, /emulated/],
    [{ memoryTypes: TYPES.slice(0, 9), usableTypes: -1n, emulated: true }, /does not know/],
  ])('do not with %o', (part, reason) => {
    expect(deviceAccess({ ...ABLE, ...part })).toEqual({
      isDirect: false,
      memoryType: 0,
      reason: expect.stringMatching(reason),
    });
  });
});
