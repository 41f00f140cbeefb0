/**
 * Node of the page: real cards, a running node server, or a node server of this process, which programs can use. It opens no card. TCP port of the
 * page.
 */

import { type Fault, type NodeServer, RemoteNode } from '../../assembly/node-server.ts';
import { openShownNode } from '../../assembly/open-node.ts';
import type { Program } from '../../assembly/program/program.ts';
import type { DriverNode } from '../../driver/port.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { driverOf, startPrivateNode } from '../node-access/node.ts';

/** A node to show. */
export interface WebNode {
  readonly node: DriverNode;
  /** Value of UCX_GAUDI_DRIVER for programs that use it; undefined for real cards. */
  readonly driver: string | undefined;
  /** Injects a fault; undefined for real cards. */
  readonly inject: ((minor: number, fault: Fault) => void) | undefined;
  close(): Promise<void>;
}

/** The node of a server of this process, which its owner ends. */
export function webNodeOf(server: NodeServer, socketPath: string): WebNode {
  const { node } = server;
  return {
    node,
    driver: `emulator:${socketPath}`,
    inject: (minor, fault) => node.inject(minor, fault),
    close: async () => {},
  };
}

/**
 * Opens the node that UCX_GAUDI_DRIVER selects; one that would be emulated in this process gets a server.
 * @throws UcxError ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED, ERR_INVALID_PARAM; SyscallError
 */
export function openWebNode(program: Program): WebNode {
  const node = openShownNode(program);
  const close = async (): Promise<void> => node.close();
  if (node.kind === 'kernel') return { node, driver: undefined, inject: undefined, close };
  if (node instanceof RemoteNode) {
    return { node, driver: driverOf(node), inject: (minor, fault) => node.inject(minor, fault), close };
  }
  node.close();
  return serve(program);
}

function serve(program: Program): WebNode {
  const { server, socketPath, close } = startPrivateNode(program);
  return { ...webNodeOf(server, socketPath), close };
}

/** Default port. */
export const WEB_PORT = '9480';
const PORT_MAX = 65_535;

/** The port that an option names; 0 for a free one. @throws UcxError ERR_INVALID_PARAM */
export function webPortOf(name: string, text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= PORT_MAX) return port;
  throw invalidParam(name, `must be a port from 0 to ${PORT_MAX}`, text);
}
