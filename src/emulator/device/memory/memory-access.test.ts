/** Copies between address spaces. That of this process stands for those of others: the kernel copies. */

import { describe, expect, it } from 'vitest';
import {
  close,
  ftruncate,
  mapAnonymous,
  mapLarge,
  memfdCreate,
  OWN_ADDRESS_SPACE,
  unmapLarge,
} from '../../../sys/index.ts';
import { copyBytes } from './memory-access.ts';
import { DIRECT } from './physical-memory.ts';

const PAGE = 4096;
const BYTES = 300_000;
const SPACES = [DIRECT, OWN_ADDRESS_SPACE];

/** Calls `use` with an address whose first `accessible` bytes can be read and written. */
function withShortFile(accessible: number, use: (address: number) => void): void {
  const fd = memfdCreate('short', { sealing: false });
  ftruncate(fd, accessible);
  const address = mapLarge(fd, accessible + PAGE, 0);
  use(address);
  unmapLarge(address, accessible + PAGE);
  close(fd);
}

describe('copyBytes', () => {
  using memory = mapAnonymous(3 * BYTES);

  it.each(SPACES.flatMap((target) => SPACES.map((source) => [target, source] as const)))(
    'copies any number of bytes to space %i from space %i',
    (target, source) => {
      for (const byteLength of [0, 1, 7, 65_535, 65_536, 65_537, BYTES]) {
        for (let i = 0; i < BYTES; i++) memory.u8[i] = (i * 13) ^ (i >>> 8) ^ byteLength;
        memory.u8.fill(0, BYTES);
        const to = memory.address + BYTES + 3;
        expect(copyBytes(target, to, source, memory.address, byteLength)).toBe(byteLength);
        const received = memory.u8.subarray(BYTES + 3, BYTES + 3 + byteLength);
        expect(Buffer.compare(received, memory.u8.subarray(0, byteLength))).toBe(0);
        expect([memory.u8[BYTES + 2], memory.u8[BYTES + 3 + byteLength]]).toEqual([0, 0]);
      }
    },
  );

  it('ends between two address spaces where one of them has no page, after all bytes before it', () => {
    const accessible = 20 * PAGE;
    withShortFile(accessible, (address) => {
      memory.u8.fill(5);
      const offset = 10;
      const moved = copyBytes(OWN_ADDRESS_SPACE, address + offset, OWN_ADDRESS_SPACE, memory.address, accessible + 1);
      expect(moved).toBe(accessible - offset);
      memory.u8.fill(9);
      const back = copyBytes(OWN_ADDRESS_SPACE, memory.address, OWN_ADDRESS_SPACE, address + offset, accessible + 1);
      expect(back).toBe(accessible - offset);
      expect(memory.u8.subarray(0, back).every((byte) => byte === 5)).toBe(true);
      expect(memory.u8[back]).toBe(9);
    });
    expect(copyBytes(OWN_ADDRESS_SPACE, PAGE, OWN_ADDRESS_SPACE, memory.address, BYTES)).toBe(0);
  });
});
