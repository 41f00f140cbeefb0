/** The user's blocks of gaudi3 against addresses of the vendor's header (gaudi3_blocks_linux_driver.h). */

import { describe, expect, it } from 'vitest';
import { GAUDI3_PROFILE } from './asic-profile-gaudi3.ts';
import { GAUDI3_CFG_BASE, gaudi3UserBlocks } from './user-blocks-gaudi3.ts';

const BLOCKS = gaudi3UserBlocks(0x7f_ffff);

const offsetOf = (address: bigint): number => Number(address - GAUDI3_CFG_BASE);

function named(name: string) {
  return BLOCKS.find((block) => block.name === name)!;
}

describe('user blocks of gaudi3', () => {
  it.each([
    ['HD0_ARC_FARM_ARC0_DCCM', 0xe310000, 0x10000],
    ['HD7_ARC_FARM_ARC1_DCCM', 0xff30000, 0x10000],
    ['HD0_ARC_FARM_ARC1_ACP_ENG', 0xe32d000, 0x2000],
    ['D0_SPDMA0_CH0_A', 0xc540000, 0x1000],
    ['D0_SPDMA1_CH5_A', 0xc565000, 0x1000],
    ['D1_SPDMA0_CH0_A', 0xcd40000, 0x1000],
    ['D1_SPDMA1_CH4_A', 0xcd64000, 0x1000],
    ['D0_CBC_USER', 0xc445000, 0x1000],
    ['HD0_SYNC_MNGR_OBJS_1', 0xe390000, 0xf000],
    ['HD1_SYNC_MNGR_OBJS_0', 0xe780000, 0xf000],
    ['HD7_SYNC_MNGR_GLBL', 0xffa0000, 0x1000],
    ['D0_TIMESTAMP', 0xc489000, 0x1000],
  ])('%s lies at CFG_BASE + 0x%x', (name, offset, size) => {
    expect([offsetOf(named(name).address), named(name).size]).toEqual([offset, size]);
  });

  it('are those of the driver as far as their addresses are known: 32 of ARCs, 23 channels, 22 of the sync managers, two more', () => {
    const count = (pattern: RegExp): number => BLOCKS.filter(({ name }) => pattern.test(name)).length;
    expect([/DCCM$/, /ACP_ENG$/, /SPDMA/, /SYNC_MNGR/].map(count)).toEqual([16, 16, 23, 22]);
    expect(BLOCKS).toHaveLength(79);
  });

  it('leave out the channel, the sync objects and the completion queues of the driver', () => {
    for (const name of ['D1_SPDMA1_CH5_A', 'HD0_SYNC_MNGR_OBJS_0', 'HD0_SYNC_MNGR_GLBL']) {
      expect(named(name), name).toBeUndefined();
    }
  });

  it('do not overlap, lie in the configuration space, and have their registers inside', () => {
    const sorted = [...BLOCKS].sort((left, right) => (left.address < right.address ? -1 : 1));
    let end = GAUDI3_PROFILE.cfg.start;
    for (const { name, address, size, registers } of sorted) {
      expect(address >= end, name).toBe(true);
      expect(size % 4096, name).toBe(0);
      end = address + BigInt(size);
      const offsets = registers.map(({ offset }) => offset);
      expect(offsets, name).toEqual([...new Set(offsets)].sort((left, right) => left - right));
      expect((offsets.at(-1) ?? 0) < size, name).toBe(true);
    }
    expect(end <= GAUDI3_PROFILE.cfg.end).toBe(true);
    expect(new Set(BLOCKS.map(({ name }) => name)).size).toBe(79);
  });

  it('name the registers as the headers do', () => {
    const at = (block: string, register: string) =>
      named(block).registers.find(({ name }) => name === register)?.offset;
    expect(at('D0_SPDMA0_CH0_A', 'MSQ_PI')).toBe(0x1f8);
    expect(at('D0_SPDMA0_CH0_A', 'FENCE_CNT_3')).toBe(0x1e8);
    expect(at('HD1_SYNC_MNGR_OBJS_0', 'CQ_DIRECT_63')).toBe(0xe0fc);
    expect(at('HD1_SYNC_MNGR_OBJS_1', 'MON_ARM_1_1023')).toBe(0xbffc);
    expect(at('HD1_SYNC_MNGR_OBJS_1', 'CQ_DIRECT_0')).toBeUndefined();
    expect(at('HD1_SYNC_MNGR_GLBL', 'CQ_INC_MODE_63')).toBe(0x750 + 63 * 4);
    expect(at('D0_CBC_USER', 'INVALID_STATUS_4')).toBe(0x150);
  });
});
