/**
 * Emulated nodes for the exchange: node servers of this process, each with one card and RDMA devices. Only the wire between the RDMA devices connects the
 * cards.
 */

import { GAUDI_CONFIG_TABLE } from '../../assembly/program/config.ts';
import { startProgram } from '../../assembly/program/program.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { cardEnvironment, type PrivateNode, startPrivateNode } from '../node-access/node.ts';
import type { ExchangePlace, Party } from './crew.ts';

/** Default transports between the nodes. */
const TLS = 'rc,gaudi_cpy,self';

/**
 * Starts nodes.
 * @throws UcxError ERR_INVALID_PARAM if UCX_GAUDI_DRIVER names a node or forbids emulation; SyscallError
 */
export async function openExchangeNodes(count: number): Promise<ExchangePlace> {
  const program = startProgram();
  const { DRIVER, EMULATOR_NICS } = program.config.get(GAUDI_CONFIG_TABLE);
  if (DRIVER !== 'auto' && DRIVER !== 'emulator') {
    throw invalidParam('nodes', 'starts emulated nodes: UCX_GAUDI_DRIVER must be emulator or auto', count);
  }
  const nodes: PrivateNode[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.close()));
  };
  try {
    const description = { cards: '1', nics: String(Math.max(1, EMULATOR_NICS)) };
    const parties = Array.from({ length: count }, (_, index) => {
      const node = startPrivateNode(program, description);
      nodes.push(node);
      return partyOf(index, node);
    });
    return { unit: 'node', emulated: true, parties, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Parameters of the process for the card of a node. */
function partyOf(index: number, { server, socketPath }: PrivateNode): Party {
  const card = { name: 'gaudi0', index: 0, card: server.node.cards()[0]! };
  const environment = cardEnvironment(card, `emulator:${socketPath}`);
  const env = { UCX_TLS: TLS, ...environment, UCX_ENGINE: 'native', UCX_IB_DRIVER: 'emulator' };
  return { index, name: `node ${index}`, env };
}
