/** A node that several processes can use: that of the kernel driver, a node server, or an emulated node of this process, served through a socket; and the
 * environment of a process that uses one of its cards. It opens no card. */

import { type AllowedCard, allowedCards, cardSettings } from '../../assembly/allowed-cards.ts';
import { openNode } from '../../assembly/open-node.ts';
import { GAUDI_CONFIG_TABLE } from '../../assembly/program/config.ts';
import { type Program, startProgram } from '../../assembly/program/program.ts';
import { startPrivateNode } from './private-node.ts';

/** A node that several processes can use. */
export interface SharedNode {
  readonly emulated: boolean;
  /** Cards that the configuration permits, by logical index. */
  readonly cards: readonly AllowedCard[];
  /** Value of UCX_GAUDI_DRIVER for programs that use the node. */
  readonly driver: string;
  /** Ends the node server, if one was started. */
  close(): Promise<void>;
}

/**
 * Finds the node, or starts one.
 * @param count number of emulated cards; by default UCX_GAUDI_EMULATOR_CARDS
 * @throws UcxError ERR_INVALID_PARAM, ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED; SyscallError
 */
export function openSharedNode(count: number | undefined): SharedNode {
  const program = startProgram();
  const { DRIVER } = program.config.get(GAUDI_CONFIG_TABLE);
  const node = openNode(program);
  const cards = allowedCards(program, node);
  node.close();
  const isNamed = typeof DRIVER === 'object';
  if (!isNamed && node.kind === 'emulator') return serveNode(program, count);
  const driver = isNamed ? `emulator:${DRIVER.socket}` : 'kernel';
  return { emulated: node.emulated, cards, driver, close: async () => {} };
}

function serveNode(program: Program, count: number | undefined): SharedNode {
  const description = count === undefined ? {} : { cards: String(count) };
  const { server, socketPath, close } = startPrivateNode(program, description);
  return { emulated: true, cards: allowedCards(program, server.node), driver: `emulator:${socketPath}`, close };
}

/** Environment of a process that uses one card only. @param driver value of UCX_GAUDI_DRIVER */
export function cardEnvironment(card: AllowedCard, driver: string): NodeJS.ProcessEnv {
  return { ...process.env, UCX_GAUDI_DRIVER: driver, ...cardSettings(card) };
}
