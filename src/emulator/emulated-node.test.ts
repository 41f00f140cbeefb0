import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { Errno, mapAnonymous } from '../sys/index.ts';
import { HL_INFO_HW_IP_INFO, HL_INFO_OP, linDmaCtl, writeLinDma } from '../uapi/index.ts';
import { createEmulatedNode } from './index.ts';

const low = (value: bigint): number => Number(value & 0xffff_ffffn);
const high = (value: bigint): number => Number(value >> 32n);

describe('an emulated node', () => {
  for (const dmaThreads of [0, 1]) {
    it(`copies host to device and back (${dmaThreads} threads)`, () => {
      const node = createEmulatedNode({ cards: 1, dmaThreads });
      const client = new DriverClient(node.open(0));
      const info = client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO);
      expect(info.result).toBe(0);
      const bytes = 3 * 2 ** 20;
      const host = mapAnonymous(4 * bytes);
      for (let i = 0; i < bytes; i++) host.u8[i] = i * 7;
      const mapped = client.mapHost(host.address, host.byteLength);
      expect(mapped.result).toBe(0);
      const memory = client.allocate(info.out.dram_page_size);
      const device = client.mapDevice(memory.out);
      expect(device.result).toBe(0);
      const commands = new Uint32Array(host.buffer, 2 * bytes);
      const back = mapped.out + BigInt(bytes);
      writeLinDma(
        commands,
        0,
        linDmaCtl('gaudi2'),
        bytes,
        low(mapped.out),
        high(mapped.out),
        low(device.out),
        high(device.out),
      );
      writeLinDma(commands, 6, linDmaCtl('gaudi2'), bytes, low(device.out), high(device.out), low(back), high(back));
      const cb = mapped.out + BigInt(2 * bytes);
      const first = client.submit([{ queue: 0, cb, byteLength: 24 }]);
      expect(first.result).toBe(0);
      expect(client.wait(first.out.seq, 1e7)).toMatchObject({ result: 0, out: { status: 0 } });
      const second = client.submit([{ queue: 4, cb: cb + 24n, byteLength: 24 }]);
      expect(client.wait(second.out.seq, 1e7)).toMatchObject({ result: 0, out: { status: 0 } });
      expect(Buffer.compare(host.u8.subarray(0, bytes), host.u8.subarray(bytes, 2 * bytes))).toBe(0);
      expect(client.unmap(mapped.out)).toBe(0);
      expect(client.unmap(device.out)).toBe(0);
      expect(client.free(memory.out)).toBe(0);
      client.close();
      host.close();
      node.close();
    });
  }

  it.each([
    ['gaudi', 0xffff],
    ['gaudi2', 46],
  ] as const)('names the interrupt of the TPCs of %s', (asic, tpc_interrupt_id) => {
    const node = createEmulatedNode({ asic, cards: 1, dmaThreads: 0 });
    const client = new DriverClient(node.open(0));
    expect(client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).out).toMatchObject({ tpc_interrupt_id });
    client.close();
    node.close();
  });

  it('releases everything of a closed file', () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const card = node.card(0);
    const client = new DriverClient(node.open(0));
    const host = mapAnonymous(65536);
    client.mapHost(host.address + 100, 5000);
    client.mapHost(host.address, 65536);
    client.mapDevice(client.allocate(1).out);
    const { context, device } = card;
    expect(context?.hostMappings.pinnedBytes).toBe(8192 + 65536);
    expect(card.dramUsedBytes).toBeGreaterThan(0);
    client.close();
    expect(card.dramUsedBytes).toBe(0);
    expect(context?.hostMappings.pinnedBytes).toBe(0);
    expect([device.hostPages.size, device.hostHugePages.size, device.dramPages.size]).toEqual([0, 0, 0]);
    expect(card.context).toBeUndefined();
    host.close();
    node.close();
  });

  it('that is closed is gone for open files, until they are closed', async () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const files = [node.open(0), node.openControl(0)];
    const { context } = node.card(0);
    node.close();
    expect(context?.closed).toBe(true);
    for (const file of files) {
      const client = new DriverClient(file);
      const { INFO, WAIT_CS } = file.numbers;
      expect(file.ioctl(INFO, client.block)).toBe(-Errno.ENODEV);
      expect(await file.ioctlAsync(WAIT_CS, client.block)).toBe(-Errno.ENODEV);
      expect(() => file.mmap(4096, 0n)).toThrow('ENODEV');
      file.close();
      expect(file.ioctl(INFO, client.block)).toBe(-Errno.EBADF);
      client.close();
    }
  });
});
