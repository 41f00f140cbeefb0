import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { close, Errno, mapAnonymous } from '../sys/index.ts';
import { HL_INFO_HW_IP_INFO, HL_INFO_OP } from '../uapi/index.ts';
import { createEmulatedNode } from './index.ts';

describe('a gaudi3 card', () => {
  it('has information and memory, and rejects submissions', () => {
    const node = createEmulatedNode({ asic: 'gaudi3', cards: 1 });
    const client = new DriverClient(node.open(0));
    const hw = client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).out;
    expect(hw.device_id).toBe(0x1060);
    const memory = client.allocate(hw.dram_page_size).out;
    const address = client.mapDevice(memory).out;
    expect(address).toBeGreaterThanOrEqual(hw.dram_base_address);
    const { out: fd } = client.exportDmabuf(address, 4096);
    close(fd);
    const host = mapAnonymous(8192);
    const mapped = client.mapHost(host.address, 8192);
    expect(mapped.result).toBe(0);
    expect(client.submit([{ queue: 0, cb: mapped.out, byteLength: 8 }]).result).toBe(-Errno.EINVAL);
    // A rejected submission keeps its sequence number.
    expect([client.wait(1n).result, client.wait(2n).result]).toEqual([0, -Errno.EINVAL]);
    expect(client.unmap(mapped.out)).toBe(0);
    client.close();
    host.close();
    node.close();
  });
});

describe('the cards of a node', () => {
  it('are placed as in a server: module ids differ from minors, two sockets, attributes', () => {
    const node = createEmulatedNode();
    const cards = node.cards();
    expect(cards.length).toBe(8);
    expect([...cards.map((card) => card.moduleId!)].sort()).toEqual(cards.map((card) => card.minor));
    expect(cards.some((card) => card.moduleId !== card.minor)).toBe(true);
    expect(cards.map((card) => card.numaNode)).toEqual([0, 0, 0, 0, 1, 1, 1, 1]);
    expect(new Set(cards.map((card) => card.busId)).size).toBe(8);
    const names = [
      'fw_os_ver',
      'clk_max_freq_mhz',
      'clk_cur_freq_mhz',
      'module_id',
      'device_type',
      'status',
      'hard_reset_cnt',
    ];
    for (const name of names) expect(node.attribute(0, name)).not.toBeUndefined();
    expect(node.attribute(0, 'status')).toBe('Operational');
    node.close();
    node.close();
    expect(node.cards()).toEqual([]);
  });

  it('have options with bounds', () => {
    for (const options of [{ cards: 0 }, { cards: 9 }, { hbmBytes: 1 }, { dmaThreads: 9 }, { csTimeoutSeconds: 0 }]) {
      expect(() => createEmulatedNode(options)).toThrow('argument');
    }
  });
});
