/** The driver's checks of command buffers: packets of users, and the bounds of the ranges where they may lie. */

import { describe, expect, it } from 'vitest';
import { Errno } from '../../../sys/index.ts';
import { dmmuRange, GAUDI_PROFILE, GAUDI2_PROFILE, PacketOpcode, packetCtl } from '../../../uapi/index.ts';
import { PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { parseExternalBuffer, UserCbRanges } from './command-buffer-check.ts';

/** Parses packets of 8 bytes that consist of a first word and an opcode; a number for the length cuts the buffer. */
function parse(packets: readonly (readonly [number, number])[], byteLength = packets.length * 8): number {
  const words = new Uint32Array(1024);
  for (const [index, [first, opcode]] of packets.entries()) words.set([first, packetCtl(opcode as never)], index * 2);
  const bytes = new Uint8Array(words.buffer);
  return parseExternalBuffer(new PhysicalMemory('cb', { address: 0, byteLength: 4096 }, () => bytes), byteLength);
}

const { NOP, FENCE, MSG_PROT, STOP, WREG_BULK, CP_DMA, LIN_DMA, LOAD_AND_EXE, MSG_LONG } = PacketOpcode;

describe('a command buffer of an external queue', () => {
  it('may have packets of users', () => {
    expect(parse([])).toBe(0);
    expect(
      parse([
        [0, NOP],
        [0, FENCE],
        [0, NOP],
      ]),
    ).toBe(0);
    expect(parse([[0, LIN_DMA]], 24)).toBe(0);
    expect(parse([[0, MSG_LONG]], 16)).toBe(0);
  });

  it.each([MSG_PROT, STOP, WREG_BULK, CP_DMA])(
    'may not have a packet of the driver, also behind others: %i',
    (opcode) => {
      expect(
        parse(
          [
            [0, NOP],
            [0, opcode],
          ],
          64,
        ),
      ).toBe(Errno.EPERM);
    },
  );

  it('may not end within a packet, nor have an unknown one', () => {
    expect(parse([[0, LIN_DMA]], 23)).toBe(Errno.EINVAL);
    expect(parse([[0, NOP]], 4)).toBe(Errno.EINVAL);
    expect(parse([[0, 0x1e]])).toBe(Errno.EINVAL);
    // Its length is checked before what it may do.
    expect(parse([[0, STOP]], 4)).toBe(Errno.EINVAL);
  });

  it('may load tensors, and no scalars, which are packets', () => {
    expect(parse([[0, LOAD_AND_EXE]], 16)).toBe(0);
    expect(parse([[1, LOAD_AND_EXE]], 16)).toBe(Errno.EPERM);
  });
});

describe('the ranges of command buffers', () => {
  const HBM = 8 * 2 ** 30;
  const halves = (address: bigint): [number, number] => [
    Number(address >> 32n) | 0,
    Number(address & 0xffff_ffffn) | 0,
  ];

  it.each([GAUDI_PROFILE, GAUDI2_PROFILE])('are those of users, to their last byte: $name', (profile) => {
    const ranges = new UserCbRanges(profile, HBM);
    const contains = (address: bigint, byteLength: number) => ranges.contain(...halves(address), byteLength);
    const { dram, va, sram } = profile;
    const user = { start: dram.base + dram.reservedSize, end: dram.base + BigInt(HBM) };
    const virtual = dmmuRange(dram, BigInt(HBM));
    for (const range of [va.host, sram, user, ...(virtual === undefined ? [] : [virtual])]) {
      expect(contains(range.start, 64)).toBe(true);
      expect(contains(range.start - 8n, 64)).toBe(false);
      expect(contains(range.end - 64n, 64)).toBe(true);
      expect(contains(range.end - 64n, 65)).toBe(false);
      expect(contains(range.start, 0)).toBe(false);
    }
  });
});
