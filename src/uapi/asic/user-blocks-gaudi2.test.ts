/** The user's blocks of gaudi2 against addresses of the kernel's header (Linux 6.12, gaudi2_blocks_linux_driver.h and *_regs.h). */

import { describe, expect, it } from 'vitest';
import { GAUDI2_PROFILE } from './asic-profile-gaudi2.ts';
import { GAUDI2_CFG_BASE, GAUDI2_USER_BLOCKS } from './user-blocks-gaudi2.ts';

function named(name: string): { readonly offset: number; readonly size: number } {
  const block = GAUDI2_USER_BLOCKS.find((candidate) => candidate.name === name);
  return { offset: Number((block?.address ?? 0n) - GAUDI2_CFG_BASE), size: block?.size ?? 0 };
}

describe('user blocks of gaudi2', () => {
  it.each([
    ['DCORE1_EDMA0_QM_DCCM', 0x43c0000, 0x8000],
    ['ARC_FARM_ARC0_DCCM', 0x4e90000, 0x10000],
    ['ARC_FARM_ARC3_DCCM', 0x4ef0000, 0x10000],
    ['ARC_FARM_ARC0_ACP_ENG', 0x4e8f000, 0x1000],
    ['ARC_FARM_ARC3_ACP_ENG', 0x4eef000, 0x1000],
    ['DCORE0_MME_QM_ARC_ACP_ENG', 0x40cf000, 0x1000],
    ['DCORE3_DEC0_CMD', 0x47e0000, 0x1000],
    ['DCORE3_DEC1_CMD', 0x47f0000, 0x1000],
    ['PCIE_DEC0_CMD', 0x4f00000, 0x1000],
    ['PCIE_DEC1_CMD', 0x4f10000, 0x1000],
    ['NIC0_UMR0_0', 0x5400000, 0x1000],
    ['NIC0_UMR1_14', 0x542e000, 0x1000],
    ['NIC9_UMR0_14', 0x588e000, 0x1000],
    ['NIC0_QM_DCCM0', 0x5410000, 0x8000],
    ['NIC0_QM_DCCM1', 0x5430000, 0x8000],
    ['DCORE1_SYNC_MNGR_OBJS', 0x4300000, 0x14000],
  ])('%s lies at CFG_BASE + 0x%x', (name, offset, size) => {
    expect(named(name)).toEqual({ offset, size });
  });

  it('are as many as the driver counts: 69 ARCs, 8 ACPs, 15 for each of 24 ports, 10 decoders, 6 of the sync managers', () => {
    const count = (pattern: RegExp): number => GAUDI2_USER_BLOCKS.filter(({ name }) => pattern.test(name)).length;
    expect([/DCCM\d?$/, /ACP_ENG$/, /UMR/, /DEC\d_CMD$/, /SYNC_MNGR/].map(count)).toEqual([69, 8, 360, 10, 6]);
    expect(GAUDI2_USER_BLOCKS).toHaveLength(453);
  });

  it('do not overlap, lie in the configuration space, and have their registers inside', () => {
    const sorted = [...GAUDI2_USER_BLOCKS].sort((left, right) => (left.address < right.address ? -1 : 1));
    let end = GAUDI2_PROFILE.cfg.start;
    for (const { name, address, size, registers } of sorted) {
      expect(address >= end, name).toBe(true);
      expect(size % 4096, name).toBe(0);
      end = address + BigInt(size);
      const offsets = registers.map(({ offset }) => offset);
      expect(offsets, name).toEqual([...new Set(offsets)].sort((left, right) => left - right));
      expect((offsets.at(-1) ?? 0) < size, name).toBe(true);
    }
    expect(end < GAUDI2_PROFILE.cfg.end).toBe(true);
    expect(new Set(GAUDI2_USER_BLOCKS.map(({ name }) => name)).size).toBe(453);
  });

  it('name the registers as the headers do', () => {
    const registers = (name: string): ReadonlyMap<string, number> =>
      new Map(
        GAUDI2_USER_BLOCKS.find((block) => block.name === name)!.registers.map((entry) => [entry.name, entry.offset]),
      );
    expect(registers('NIC0_UMR0_0').get('UNSECURE_DOORBELL0_UNSECURE_DB_FOURTH32')).toBe(0xc);
    expect(registers('NIC0_UMR0_0').get('COMPLETION_QUEUE_CI_1_CQ_CONSUMER_INDEX')).toBe(0x184);
    expect(registers('PCIE_DEC0_CMD').get('SWREG26')).toBe(0x68);
    expect(registers('PCIE_DEC0_CMD').get('SWREG67')).toBe(0x10c);
    expect(registers('ARC_FARM_ARC0_ACP_ENG').get('ACP_DBG_PRIO_OUT_CNT_3')).toBe(0x428);
    expect(registers('ARC_FARM_ARC0_ACP_ENG').get('ACP_DBG_REG')).toBe(0x43c);
    expect(registers('DCORE1_SYNC_MNGR_GLBL').get('CQ_INC_MODE_63')).toBe(0x850 + 63 * 4);
  });
});
