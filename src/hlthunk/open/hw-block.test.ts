/** Register blocks on emulated cards: found by name, read, updated, rejected. */

import { describe, expect, it, vi } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { mapFile } from '../../sys/index.ts';
import { GaudiErrorCode, getHwBlock, open, type RegisterValue, readHwBlock, userBlockOf } from '../index.ts';

const fixture = useEmulatedDevice();
const CFG = 0x1000007ff8000000n;

/** The registers with values other than 0. */
function set(values: readonly RegisterValue[]): Record<string, number> {
  const named = values.filter(({ value }) => value !== 0);
  return Object.fromEntries(named.map(({ name, offset, value }) => [name ?? `@${offset}`, value]));
}

/** A write by the card itself, as by MSG_LONG. */
function deviceWrites(address: bigint, value: number): void {
  fixture.node.card(0).device.writeWord(Number(address >> 32n), Number(address & 0xffff_ffffn), value);
}

describe('register blocks', () => {
  it("show the card's writes, before and after they are mapped", () => {
    const device = fixture.setUp();
    const block = userBlockOf(device, 'nic3_umr1_2');
    expect(block.address).toBe(CFG + 0x55a2000n);
    deviceWrites(block.address + 0x104n, 77);
    expect(set(readHwBlock(device, block))).toEqual({ COMPLETION_QUEUE_CI_0_CQ_CONSUMER_INDEX: 77 });
    deviceWrites(block.address + 0x80n, 0xffff_fffe);
    expect(set(readHwBlock(device, block))).toEqual({
      UNSECURE_DOORBELL1_UNSECURE_DB_FIRST32: 0xffff_fffe,
      COMPLETION_QUEUE_CI_0_CQ_CONSUMER_INDEX: 77,
    });
    expect(set(readHwBlock(device, userBlockOf(device, 'NIC3_UMR1_3')))).toEqual({});
  });

  it('show sync objects, and blocks without register names word by word', () => {
    const device = fixture.setUp();
    deviceWrites(CFG + 0x4300000n + 4n * 8191n, 5);
    expect(set(readHwBlock(device, userBlockOf(device, 'DCORE1_SYNC_MNGR_OBJS')))['SOB_OBJ_8191']).toBe(5);
    const memory = userBlockOf(device, 'PDMA1_QM_ARC_DCCM');
    deviceWrites(memory.address + 0x7ffcn, 9);
    const values = readHwBlock(device, memory);
    expect(values).toHaveLength(0x8000 / 4);
    expect(set(values)).toEqual({ '@32764': 9 });
  });

  it('are 0 again after a reset, also if they are mapped', () => {
    const device = fixture.setUp();
    const block = userBlockOf(device, 'PCIE_DEC0_CMD');
    const mapping = getHwBlock(device, block.address).map();
    deviceWrites(block.address + 4n, 3);
    expect(new Uint32Array(mapping.buffer)[1]).toBe(3);
    fixture.node.card(0).device.resetState();
    expect(new Uint32Array(mapping.buffer)[1]).toBe(0);
    mapping.close();
  });

  it.each(['DCORE1_SYNC_MNGR_OBJS', 'DCORE1_SYNC_MNGR_GLBL', 'PCIE_DEC0_CMD'])(
    'of the next owner are out of reach of a mapping that another process has kept: %s',
    (name) => {
      const device = fixture.setUp();
      const block = userBlockOf(device, name);
      const { size, handle } = getHwBlock(device, block.address);
      device.close();
      const former = fixture.node.openFor(0, process.pid, false);
      const { fd } = former.share(size, handle);
      const kept = mapFile(fd, size, 0);
      const words = new Uint32Array(kept.buffer);
      deviceWrites(block.address, 5);
      expect(words[0]).toBe(5);
      former.close();
      const owner = open(fixture.node, { busId: device.busId });
      const mapping = getHwBlock(owner, block.address).map();
      words[0] = 0x7777;
      expect(new Uint32Array(mapping.buffer)[0]).toBe(0);
      deviceWrites(block.address, 6);
      expect([words[0], new Uint32Array(mapping.buffer)[0]]).toEqual([0x7777, 6]);
      mapping.close();
      owner.close();
      kept.close();
    },
  );

  it('are mapped only while they are read', () => {
    const device = fixture.setUp();
    const mapped = vi.spyOn(device.card, 'mmap');
    const unmapped = vi.spyOn(device.card, 'unmap');
    readHwBlock(device, userBlockOf(device, 'NIC3_UMR1_3'));
    expect(unmapped.mock.calls).toEqual(mapped.mock.results.map(({ value }) => [value]));
    expect(mapped).toHaveBeenCalledTimes(1);
  });

  it('are all mapped by gaudi2, as a whole', () => {
    const device = fixture.setUp();
    for (const { address, size } of device.info.profile.userBlocks) expect(getHwBlock(device, address).size).toBe(size);
  });

  it('have names; others are rejected', () => {
    const device = fixture.setUp();
    const refusal = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
    expect(() => userBlockOf(device, 'NIC12_UMR0_0')).toThrow(refusal);
  });
});
