import { expect, it } from 'vitest';
import { HOST_MEMORY, PhysicalMemory } from './physical-memory.ts';
import { CardTraffic, LinkTraffic } from './traffic.ts';

const NONE = { bytes: 0, operations: 0 };
const HOST = new PhysicalMemory(HOST_MEMORY, { address: 0, byteLength: 4096 });
const HBM = new PhysicalMemory('hbm', { address: 0, byteLength: 4096 });

it('a copy from host to host crosses PCIe in both directions, one between memories of cards in none', () => {
  const traffic = new CardTraffic(0, new LinkTraffic(1), 0);
  traffic.copied(HOST, HOST, 100, true);
  traffic.copied(HOST, HOST, 20, false);
  const once = { bytes: 120, operations: 1 };
  expect([traffic.hostToDevice, traffic.deviceToHost, traffic.deviceToDevice]).toEqual([once, once, NONE]);
  traffic.copied(HBM, HBM, 7, true);
  expect([traffic.hostToDevice, traffic.deviceToHost]).toEqual([once, once]);
  expect(traffic.deviceToDevice).toEqual({ bytes: 7, operations: 1 });
  expect(traffic.throughputAt(1e9)).toEqual({ receive: 120, transmit: 120 });
});
