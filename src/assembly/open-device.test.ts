/** Opening a card without a context: the driver is selected by parameter, configuration or environment, and closed with the card. */

import { expect, it } from 'vitest';
import { expectNoLeaks } from '../../test/fixtures/leak-check.ts';
import { close, GaudiErrorCode, getDeviceName, open } from '../hlthunk/index.ts';
import { type OpenDeviceOptions, openDevice, openDriverNode } from './open-device.ts';
import { ProgramConfig } from './program/program-config.ts';

expectNoLeaks();

const ENV = { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '2', UCX_GAUDI_EMULATOR_DMA_THREADS: '0' };
const EMULATED: OpenDeviceOptions = { env: ENV, configDirectories: [] };

it('opens the node of the environment, and closes it with the card', () => {
  const device = openDevice({ ...EMULATED, minor: 1 });
  expect([device.node.kind, device.minor, getDeviceName(device)]).toEqual(['emulator', 1, 'gaudi2']);
  const { node, moduleId, busId } = device;
  close(device);
  expect(node.cards()).toEqual([]);
  using byModule = openDevice({ ...EMULATED, moduleId });
  expect(byModule.minor).toBe(1);
  using byBus = openDevice({ ...EMULATED, busId });
  expect(byBus.minor).toBe(1);
});

it('prefers the driver of its parameter to that of the environment, and that to a configuration', () => {
  const env = { ...ENV, UCX_GAUDI_DRIVER: 'kernel', UCX_GAUDI_EMULATOR_ASIC: 'gaudi' };
  const config = ProgramConfig.read({ env, configDirectories: [] });
  for (const source of [{ env, configDirectories: [] }, { config }]) {
    using device = openDevice({ ...source, driver: 'emulator' });
    expect(getDeviceName(device)).toBe('gaudi');
  }
  expect(config.get('GAUDI_DRIVER')).toBe('kernel');
  using node = { node: openDriverNode({ env, configDirectories: [] }), [Symbol.dispose]: () => node.node.close() };
  expect(node.node.kind).toBe('kernel');
});

it('releases everything if no card matches, and reports which exist', () => {
  expect(() => openDevice({ ...EMULATED, minor: 7 })).toThrow(
    expect.objectContaining({ code: GaudiErrorCode.DEVICE_NOT_FOUND, message: expect.stringContaining('minor 7') }),
  );
  expect(() => openDevice({ ...EMULATED, name: 'gaudi3' })).toThrow(
    expect.objectContaining({ code: GaudiErrorCode.DEVICE_NOT_FOUND }),
  );
});

it('names the argument that it rejects', () => {
  const refusal = (argument: string): unknown =>
    expect.objectContaining({ details: expect.objectContaining({ argument }) });
  expect(() => openDevice({ ...EMULATED, moduleId: 1, minor: 0 })).toThrow(refusal('moduleId'));
  expect(() => openDevice({ ...EMULATED, driver: 1 as unknown as string })).toThrow(refusal('driver'));
  expect(() => openDevice({ ...EMULATED, device: { arenaBytes: 0 } })).toThrow(refusal('arenaBytes'));
  expect(() => openDevice({ ...EMULATED, driver: 'c' })).toThrow(expect.objectContaining({ code: 'ERR_CONFIG_VALUE' }));
});

it('opens several cards of one machine', () => {
  const node = openDriverNode(EMULATED);
  const [first, second] = [open(node, { minor: 0 }), open(node, { minor: 1 })];
  close(first);
  expect(second.closed).toBe(false);
  close(second);
  expect(node.cards()).toHaveLength(2);
  node.close();
});
