/** Options that describe an emulated node, for all commands that start one. */

import type { Command } from 'commander';
import { type NodeDescription, readNodeDescription } from '../../assembly/node-server.ts';

/** Values of the options. */
export interface NodeOptions extends NodeDescription {
  readonly config?: string;
}

/** Adds the options to a command. */
export function addNodeOptions(command: Command): Command {
  return command
    .option('--cards <number>', 'cards, 1 to 8')
    .option('--asic <name>', 'gaudi, gaudi2 or gaudi3')
    .option('--hbm <size>', 'HBM of a card, such as 96GiB')
    .option('--links <links>', 'scale-up links: full, or ^ and the pairs of cards without one, such as ^0-1,2-5')
    .option('--dma-threads <number>', 'threads that run the DMA engines')
    .option('--nics <number>', 'RDMA devices in each client of the node, 0 to 8')
    .option('--config <file>', 'JSON file with asic, cards, hbm, links, dmaThreads, nics; options win');
}

/**
 * The node that the options describe.
 * @throws UcxError ERR_INVALID_PARAM for an invalid file; the error of node:fs if it does not exist
 */
export function describeNode({ asic, cards, hbm, links, dmaThreads, nics, config }: NodeOptions): NodeDescription {
  const given = Object.entries({ asic, cards, hbm, links, dmaThreads, nics }).filter(
    ([, value]) => value !== undefined,
  );
  return { ...(config === undefined ? {} : readNodeDescription(config)), ...Object.fromEntries(given) };
}
