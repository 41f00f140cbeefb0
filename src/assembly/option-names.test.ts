/** Options that do not exist, in every options object outside ucp: rejected, with the nearest name. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEmulatedNode, type EmulatedNode } from '../emulator/index.ts';
import {
  commandSubmission,
  type Device,
  deviceMemoryAlloc,
  hostMemoryMap,
  open,
  requestCommandBuffer,
} from '../hlthunk/index.ts';
import { GaudiResources } from '../uct/gaudi/base/resources.ts';
import { openDevice, openDriverNode } from './open-device.ts';
import { ProgramConfig } from './program/program-config.ts';

describe('options that do not exist', () => {
  let node: EmulatedNode;
  let device: Device;
  beforeAll(() => {
    node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    device = open(node);
  });
  afterAll(() => {
    device.close();
    node.close();
  });

  const config = ProgramConfig.read({ env: {}, configDirectories: [] });
  it.each<readonly [string, string, (options: never) => unknown]>([
    ['drivr', 'driver', (options) => openDriverNode(options)],
    ['minr', 'minor', (options) => openDevice(options)],
    ['arenabytes', 'arenaBytes', (options) => openDevice({ driver: 'emulator', device: options })],
    ['minors', 'minor', (options) => open(node, options)],
    ['owns_node', 'ownsNode', (options) => open(node, {}, options)],
    ['slot', 'slots', (options) => open(node, {}, { dma: options })],
    ['aligment', 'alignment', (options) => device.memory.allocate(1, options)],
    ['contigous', 'contiguous', (options) => deviceMemoryAlloc(device, 1, options)],
    ['forcehint', 'forceHint', (options) => hostMemoryMap(device, 4096, 4096, options)],
    ['maped', 'mapped', (options) => requestCommandBuffer(device, 4096, options)],
    ['timeoutSecond', 'timeoutSeconds', (options) => commandSubmission(device, [], options)],
    ['card', 'cards', (options) => createEmulatedNode(options)],
    [
      'mappingtable',
      'mappingTable',
      (options) => new GaudiResources({ ...({ node } as object), ...(options as object) } as never),
    ],
    ['envprefix', 'envPrefix', (options) => ProgramConfig.read(options)],
    ['hiden', 'hidden', (options) => config.print(options)],
  ])('%s is refused, %s was meant', (given, meant, call) => {
    const refusal = expect.objectContaining({
      code: expect.stringMatching(/^ERR_(GAUDI_INVALID_PARAMS|INVALID_PARAM)$/),
      message: expect.stringContaining(`did you mean ${meant}?`),
    });
    expect(() => call({ [given]: 1 } as never)).toThrow(refusal);
  });
});
