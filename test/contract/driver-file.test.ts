import { createEmulatedNode } from '../../src/emulator/index.ts';
import { driverFileContract } from './driver-file.ts';

for (const asic of ['gaudi', 'gaudi2'] as const) {
  for (const dmaThreads of [0, 1]) {
    driverFileContract(`emulated ${asic}, ${dmaThreads} engine threads`, asic, () => {
      return createEmulatedNode({ asic, cards: 1, dmaThreads });
    });
  }
}
