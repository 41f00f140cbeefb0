/** The node server of a program: its socket path, its options from configuration and command line, and connections for control. */

import {
  connectEmulatedNode,
  defaultSocketPath,
  type EmulatedNodeOptions,
  NodeServer,
  parseLinks,
  prepareFolder,
  type RemoteNode,
} from '../emulator/index.ts';
import type { AsicName } from '../uapi/index.ts';
import { memorySizeType } from '../ucs/config/value.ts';
import { readText } from '../ucs/sys/file-name.ts';
import { invalidParam, withArgumentNames } from '../ucs/type/error.ts';
import { HBM_VARIABLE, nodeOptions } from './open-node.ts';
import { GAUDI_CONFIG_TABLE } from './program/config.ts';
import type { Program } from './program/program.ts';

export type {
  CardStatus,
  ClientStatus,
  Fault,
  NodeServer,
  NodeStatus,
  ServerIdentity,
} from '../emulator/index.ts';
export { diffTraces, endServer, identifyServer, RemoteNode, readFault } from '../emulator/index.ts';

/** Options of a node as strings, from the command line or a file. */
export interface NodeDescription {
  readonly asic?: string;
  readonly cards?: string;
  /** Size of the HBM of a card, such as `96GiB`, or `min` for the smallest. */
  readonly hbm?: string;
  /** `full`, or `^` and the pairs of cards without a link: `^0-1,2-5`. */
  readonly links?: string;
  readonly dmaThreads?: string;
  /** Number of RDMA devices in each client. */
  readonly nics?: string;
  /** Seconds after which a submission times out, as the parameter timeout_locked of the driver. */
  readonly timeoutLocked?: string;
}

/** Paths of a node server, except its socket. */
export interface ServerFiles {
  /** An existing folder for the device nodes; none by default. */
  readonly devices?: string | undefined;
  /** File for the trace of ioctls, or `-` for standard output; none by default. */
  readonly trace?: string | undefined;
}

/** The fields of a description. */
export const NODE_FIELDS: readonly (keyof NodeDescription)[] = [
  'asic',
  'cards',
  'hbm',
  'links',
  'dmaThreads',
  'nics',
  'timeoutLocked',
];

/** The socket path of a program's node server: the one in UCX_GAUDI_DRIVER, else the default. */
export function nodeSocketPath(program: Program): string {
  const { DRIVER } = program.config.get(GAUDI_CONFIG_TABLE);
  return typeof DRIVER === 'object' ? DRIVER.socket : defaultSocketPath(program.env['XDG_RUNTIME_DIR']);
}

/**
 * Reads a description from a file: a JSON object with the fields of {@link NodeDescription}; numbers may be JSON numbers.
 * @throws UcxError ERR_INVALID_PARAM for an invalid description; the error of node:fs if the file does not exist
 */
export function readNodeDescription(file: string): NodeDescription {
  let value: unknown;
  try {
    value = JSON.parse(readText('config', file));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (typeof value !== 'object' || value === null)
    throw invalidParam('config', 'must be a file with a JSON object', file);
  const texts: Partial<Record<keyof NodeDescription, string>> = {};
  for (const [name, field] of Object.entries(value)) {
    const known = NODE_FIELDS.find((candidate) => candidate === name);
    const isScalar = typeof field === 'string' || typeof field === 'number';
    // The value in the message is the name of the file, so the rule contains the field.
    if (known === undefined) {
      const rule = `must not have the field ${JSON.stringify(name)}, only ${NODE_FIELDS.join(', ')}`;
      throw invalidParam('config', rule, file);
    }
    if (!isScalar) throw invalidParam('config', `must have a string or a number as ${known}`, file);
    texts[known] = String(field);
  }
  return texts;
}

/**
 * Starts a node server in this process. Omitted fields have the values of UCX_GAUDI_EMULATOR_*.
 * @throws UcxError ERR_INVALID_PARAM, ERR_NODE_RUNNING; SyscallError
 */
export function startNodeServer(
  program: Program,
  socketPath: string,
  description: NodeDescription,
  { devices, trace }: ServerFiles = {},
): NodeServer {
  const { asic, cards, hbm, links, dmaThreads, nics, timeoutLocked } = description;
  const node: EmulatedNodeOptions = {
    ...nodeOptions(program),
    ...(asic === undefined ? {} : { asic: asic as AsicName }),
    ...(cards === undefined ? {} : { cards: Number(cards) }),
    ...(hbm === undefined ? {} : { hbmBytes: hbm === 'min' ? hbm : sizeOf(hbm) }),
    ...(links === undefined ? {} : { absentLinks: parseLinks(links) }),
    ...(dmaThreads === undefined ? {} : { dmaThreads: Number(dmaThreads) }),
    ...(nics === undefined ? {} : { nics: Number(nics) }),
    ...(timeoutLocked === undefined ? {} : { csTimeoutSeconds: Number(timeoutLocked) }),
  };
  const names = {
    hbmBytes: hbm === undefined ? HBM_VARIABLE : 'hbm',
    absentLinks: 'links',
    csTimeoutSeconds: 'timeoutLocked',
  };
  const files = { ...(devices === undefined ? {} : { devices }), ...(trace === undefined ? {} : { trace }) };
  return withArgumentNames(names, () => new NodeServer({ node, socketPath, ...files }));
}

/** Creates the folder of the socket of a node server, for this user only. Throws SyscallError. */
export function prepareNodeFolder(socketPath: string): void {
  prepareFolder(socketPath);
}

/**
 * Connects to a node server for control.
 * @throws UcxError ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED
 */
export function connectNodeServer(socketPath: string): RemoteNode {
  return connectEmulatedNode(socketPath);
}

/** Parses a size in bytes; units are binary, with or without the i: 96G, 96GB and 96GiB are equal. */
function sizeOf(text: string): number {
  const bytes = memorySizeType.parse(text.replace(/iB$/i, 'B'));
  if (bytes === undefined) throw invalidParam('hbm', 'must be a size such as 96GiB, or min', text);
  return bytes;
}
