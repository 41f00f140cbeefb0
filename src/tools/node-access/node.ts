/**
 * The node that a command uses: that of the kernel driver, a node server, or an emulated node in this process, with the options that describe it. A command
 * that starts programs serves its node through a socket in a temporary folder, which other programs do not find, in contrast to `node up`.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import {
  NODE_FIELDS,
  type NodeDescription,
  type NodeServer,
  RemoteNode,
  readNodeDescription,
  startNodeServer,
} from '../../assembly/node-server.ts';
import { type AllowedCard, allowedCards, cardSettings, openNode } from '../../assembly/open-node.ts';
import { type Program, startProgram } from '../../assembly/program/program.ts';
import type { DriverNode } from '../../hlthunk/index.ts';

/** A node that several processes can use. */
export class SharedNode {
  readonly emulated: boolean;
  /** Allowed cards by the configuration, by logical index. */
  readonly cards: readonly AllowedCard[];
  /** Value of UCX_GAUDI_DRIVER for programs that use the node. */
  readonly driver: string;
  readonly #server: PrivateNode | undefined;

  /** @param server the node server that was started for this node */
  constructor(node: DriverNode, cards: readonly AllowedCard[], driver: string, server?: PrivateNode) {
    this.emulated = node.emulated;
    this.cards = cards;
    this.driver = driver;
    this.#server = server;
  }

  /** Ends the node server, if one was started. */
  async close(): Promise<void> {
    await this.#server?.close();
  }
}

/**
 * Finds the node, or starts one.
 * @param count number of emulated cards; by default UCX_GAUDI_EMULATOR_CARDS
 * @throws UcxError ERR_INVALID_PARAM, ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED; SyscallError
 */
export function openSharedNode(count: number | undefined): SharedNode {
  const program = startProgram();
  const node = openNode(program);
  const cards = allowedCards(program, node);
  node.close();
  const driver = driverOf(node);
  if (driver === undefined) return serveNode(program, count);
  return new SharedNode(node, cards, driver);
}

/** Value of UCX_GAUDI_DRIVER for programs that use a node; undefined for a node in this process, which other programs cannot use. */
export function driverOf(node: DriverNode): string | undefined {
  if (node.kind === 'kernel') return 'kernel';
  return node instanceof RemoteNode ? `emulator:${node.socketPath}` : undefined;
}

function serveNode(program: Program, count: number | undefined): SharedNode {
  const description = count === undefined ? {} : { cards: String(count) };
  const server = startPrivateNode(program, description);
  const { node } = server.server;
  return new SharedNode(node, allowedCards(program, node), server.driver, server);
}

/** Environment of a process that uses one card only. @param driver value of UCX_GAUDI_DRIVER */
export function cardEnvironment(card: AllowedCard, driver: string): NodeJS.ProcessEnv {
  return { ...process.env, UCX_GAUDI_DRIVER: driver, ...cardSettings(card) };
}

/** A node server of this process, whose socket is in a temporary folder. */
export class PrivateNode {
  readonly server: NodeServer;
  readonly socketPath: string;
  readonly #folder: string;

  /** Throws the errors of {@link startNodeServer}. */
  constructor(program: Program, description: NodeDescription) {
    this.#folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-node-'));
    this.socketPath = join(this.#folder, 'node.sock');
    try {
      this.server = startNodeServer(program, this.socketPath, description);
    } catch (error) {
      this.#removeFolder();
      throw error;
    }
  }

  /** Value of UCX_GAUDI_DRIVER for programs that use the node. */
  get driver(): string {
    return `emulator:${this.socketPath}`;
  }

  /** Ends the server, and removes the folder. */
  async close(): Promise<void> {
    this.server.close();
    await this.server.closed;
    this.#removeFolder();
  }

  #removeFolder(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Starts a node server. Throws the errors of {@link startNodeServer}. */
export function startPrivateNode(program: Program, description: NodeDescription = {}): PrivateNode {
  return new PrivateNode(program, description);
}

/** Values of the options. */
export interface NodeOptions extends NodeDescription {
  readonly config?: string;
}

/** Adds the options to a command. */
export function addNodeOptions(command: Command): Command {
  return command
    .option('--cards <number>', 'cards, 1 to 8')
    .option('--asic <name>', 'gaudi, gaudi2 or gaudi3')
    .option('--hbm <size>', 'HBM of a card, such as 96GiB; min is the smallest, for programs that fill it')
    .option(
      '--links <links>',
      'scale-up links: full, or ^ followed by the pairs of cards without a link, such as ^0-1,2-5',
    )
    .option('--dma-threads <number>', 'threads that run the DMA engines')
    .option('--nics <number>', 'RDMA devices in each client of the node, 0 to 8')
    .option('--timeout-locked <seconds>', 'time-out of submissions, as the parameter of the driver: 1 to 86400')
    .option('--config <file>', 'JSON file with these options by name, such as dmaThreads; options override it');
}

/**
 * The node that the options describe.
 * @throws UcxError ERR_INVALID_PARAM for an invalid file; the error of node:fs if it does not exist
 */
export function describeNode({ config, ...options }: NodeOptions): NodeDescription {
  const given = NODE_FIELDS.map((name) => [name, options[name]] as const).filter(([, value]) => value !== undefined);
  return { ...(config === undefined ? {} : readNodeDescription(config)), ...Object.fromEntries(given) };
}
