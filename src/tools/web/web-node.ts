/** Node of the page: real cards, a running node server, or a node server in this process, which programs can use. Also the TCP port of the page. */

import { type Fault, type NodeServer, RemoteNode } from '../../assembly/node-server.ts';
import { openShownNode } from '../../assembly/open-node.ts';
import type { Program } from '../../assembly/program/program.ts';
import type { DriverNode } from '../../driver/port.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { driverOf, startPrivateNode } from '../node-access/node.ts';

/** A node to show. */
export class WebNode {
  readonly node: DriverNode;
  /** Value of UCX_GAUDI_DRIVER for programs that use it; undefined for real cards. */
  readonly driver: string | undefined;
  /** Injects a fault; undefined for real cards. */
  readonly inject: ((minor: number, fault: Fault) => void) | undefined;
  readonly #onClose: () => void | Promise<void>;

  /** @param onClose releases resources that were opened for the page */
  constructor(node: DriverNode, driver: string | undefined, onClose: () => void | Promise<void>) {
    this.node = node;
    this.driver = driver;
    this.inject = isEmulated(node) ? (minor, fault) => node.inject(minor, fault) : undefined;
    this.#onClose = onClose;
  }

  async close(): Promise<void> {
    await this.#onClose();
  }
}

function isEmulated(node: DriverNode): node is RemoteNode | NodeServer['node'] {
  return node.kind === 'emulator';
}

/** The node of a server in this process, which its owner closes. */
export function webNodeOf(server: NodeServer, socketPath: string): WebNode {
  return new WebNode(server.node, `emulator:${socketPath}`, () => {});
}

/**
 * Opens the node that UCX_GAUDI_DRIVER selects; a node that would be emulated in this process gets a server.
 * @throws UcxError ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED, ERR_INVALID_PARAM; SyscallError
 */
export function openWebNode(program: Program): WebNode {
  const node = openShownNode(program);
  const isKernel = node.kind === 'kernel';
  if (isKernel || node instanceof RemoteNode) {
    return new WebNode(node, isKernel ? undefined : driverOf(node), () => node.close());
  }
  node.close();
  const own = startPrivateNode(program);
  return new WebNode(own.server.node, own.driver, () => own.close());
}

/** Default port. */
export const WEB_PORT = '9480';
const PORT_MAX = 65_535;

/** The port of an option; 0 for any free port. @throws UcxError ERR_INVALID_PARAM */
export function webPortOf(name: string, text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= PORT_MAX) return port;
  throw invalidParam(name, `must be a port from 0 to ${PORT_MAX}`, text);
}
