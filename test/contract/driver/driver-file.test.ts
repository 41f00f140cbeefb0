/** Runs the contract of driver files on the emulated node, in process and in a node server, and on the cards of this machine if it has any. */

import { afterAll } from 'vitest';
import { KernelNode } from '../../../src/driver/kernel/kernel-node.ts';
import { connectEmulatedNode, createEmulatedNode } from '../../../src/emulator/index.ts';
import { getDeviceName, openControl } from '../../../src/hlthunk/index.ts';
import { useErrnoRecord } from '../../fixtures/driver/errno-record.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { ENGINE_THREADS } from '../uct/uct-implementations.ts';
import { driverFileContract } from './driver-file.ts';

useErrnoRecord();

/** With real cards, or device nodes of emulated ones, only those are asked for. */
const EMULATED = process.env['UCX_GAUDI_DRIVER'] === 'kernel' ? [] : (['gaudi', 'gaudi2', 'gaudi3'] as const);

for (const [asic, dmaThreads] of EMULATED.length === 0 ? [] : ENGINE_THREADS) {
  driverFileContract(`emulated ${asic}, ${dmaThreads} engine threads`, asic, () => {
    return createEmulatedNode({ asic, cards: 1, dmaThreads, strict: true });
  });
}

for (const asic of EMULATED) {
  const server = await TestNodeServer.start({ asic, cards: 1 });
  afterAll(() => server.stop());
  // Resources that a process creates once for all sockets are not leaks.
  connectEmulatedNode(server.socketPath).close();
  driverFileContract(`${asic} of a node server`, asic, () => connectEmulatedNode(server.socketPath));
}

const node = new KernelNode();
const card = node.cards()[0];
if (card === undefined) {
  console.log('contract of driver files on a real card skipped: the habanalabs driver has none on this machine');
} else {
  const control = openControl(node, card.minor);
  const asic = getDeviceName(control);
  control.close();
  driverFileContract(`${asic} at ${card.busId}`, asic, () => new KernelNode());
}
node.close();
