/**
 * The one place that chooses the driver: cards of this machine through the kernel, or an emulated node.
 */

import { KernelNode } from '../driver/kernel/kernel-node.ts';
import type { DriverNode } from '../driver/port.ts';
import {
  connectEmulatedNode,
  createEmulatedNode,
  defaultSocketPath,
  type EmulatedNodeOptions,
  findEmulatedNode,
} from '../emulator/index.ts';
import type { Clock } from '../ucs/clock.ts';
import type { Config } from '../ucs/config.ts';
import type { Log } from '../ucs/log.ts';
import { GAUDI_CONFIG_TABLE } from './config.ts';

/** What the choice depends on. */
export interface OpenNodeOptions {
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Opens the node that UCX_GAUDI_DRIVER asks for.
 * @throws UcxError ERR_INVALID_PARAM for an emulated node that cannot be; ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED by the node server
 */
export function openNode(options: OpenNodeOptions): DriverNode {
  const { config, log, clock, env } = options;
  const values = config.get(GAUDI_CONFIG_TABLE);
  if (typeof values.DRIVER === 'object') return connectEmulatedNode(values.DRIVER.socket);
  if (values.DRIVER === 'emulator') return createEmulatedNode(nodeOptions(options));
  const kernel = new KernelNode({ clock, log: log.child('driver') });
  if (values.DRIVER === 'kernel' || kernel.cards().length > 0) return kernel;
  kernel.close();
  const socket = defaultSocketPath(env['XDG_RUNTIME_DIR']);
  const server = findEmulatedNode(socket);
  if (server !== undefined) {
    log.debug(`no card of the habanalabs driver on this machine: using the node server at ${socket}`);
    return server;
  }
  log.debug('no card of the habanalabs driver on this machine: using the emulated node');
  return createEmulatedNode(nodeOptions(options));
}

/** Options of an emulated node by UCX_GAUDI_EMULATOR_*. */
export function nodeOptions({ config, log, clock }: OpenNodeOptions): EmulatedNodeOptions {
  const values = config.get(GAUDI_CONFIG_TABLE);
  return {
    asic: values.EMULATOR_ASIC,
    cards: values.EMULATOR_CARDS,
    dmaThreads: values.EMULATOR_DMA_THREADS,
    clock,
    log: log.child('emulator'),
    ...(values.EMULATOR_HBM === 'auto' ? {} : { hbmBytes: values.EMULATOR_HBM }),
  };
}
