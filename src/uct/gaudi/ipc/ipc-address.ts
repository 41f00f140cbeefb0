/**
 * Addresses of gaudi_ipc interfaces: machine, node and process, by which a peer determines whether it can reach the memory, or why not. They contain no
 * descriptors or pointers.
 */

import { createHash } from 'node:crypto';
import type { DriverNode } from '../../../hlthunk/index.ts';
import { bootId, folderIdentity } from '../../../sys/index.ts';
import {
  hasEnded,
  isOwn,
  ownIdentity,
  type ProcessIdentity,
  packIdentity,
  unpackIdentity,
} from '../../base/key/process-identity.ts';
import { SEGMENT_FOLDER } from '../../base/key/segment-name.ts';

/** Bytes of an address: version, digests of the machine and of the node, the folder of shared files, the process. */
export const IPC_ADDRESS_BYTES = 48;

const VERSION = 1;
const DIGEST_BYTES = 8;
const AT_VERSION = 0;
const AT_MACHINE = 8;
const AT_NODE = 16;
const AT_FOLDER = 24;
const AT_PROCESS = 32;

/** The address of interfaces of this process on a node. */
export function ipcAddress(node: DriverNode): Uint8Array {
  const address = new Uint8Array(IPC_ADDRESS_BYTES);
  const view = new DataView(address.buffer);
  view.setUint32(AT_VERSION, VERSION, true);
  address.set(bootId().subarray(0, DIGEST_BYTES), AT_MACHINE);
  address.set(nodeDigest(node), AT_NODE);
  view.setBigUint64(AT_FOLDER, folderIdentity(SEGMENT_FOLDER) ?? 0n, true);
  packIdentity(ownIdentity(), address, AT_PROCESS);
  return address;
}

/** The process of an address that {@link unreachableReasonOf} has accepted. */
export function processOf(address: Uint8Array): ProcessIdentity {
  return unpackIdentity(address, AT_PROCESS);
}

/** The reason why `own` cannot reach the interfaces at `address`; undefined if it can. Never throws. */
export function unreachableReasonOf(own: Uint8Array, address: Uint8Array): string | undefined {
  if (
    !(address instanceof Uint8Array) ||
    address.byteLength !== IPC_ADDRESS_BYTES ||
    !same(own, address, AT_VERSION, 4)
  ) {
    return 'has no address of this version of gaudi_ipc';
  }
  if (!same(own, address, AT_MACHINE, DIGEST_BYTES)) return 'is on another machine';
  if (!same(own, address, AT_NODE, DIGEST_BYTES)) {
    return 'has cards of another node: emulated nodes are shared through a node server only';
  }
  const identity = processOf(address);
  if (isOwn(identity)) return undefined;
  const { pidNamespace } = ownIdentity();
  if (identity.pidNamespace !== pidNamespace) {
    return `is in pid namespace ${identity.pidNamespace}, not ${pidNamespace}: start both containers with a common one`;
  }
  if (!same(own, address, AT_FOLDER, 8)) {
    return `has another ${SEGMENT_FOLDER}: start both containers with a common ipc namespace`;
  }
  return hasEnded(identity) ? `is process ${identity.pid}, which has ended` : undefined;
}

function nodeDigest(node: DriverNode): Uint8Array {
  const identity = `${node.kind}:${node.identity ?? `none of process ${process.pid}`}`;
  return createHash('sha256').update(identity).digest().subarray(0, DIGEST_BYTES);
}

function same(left: Uint8Array, right: Uint8Array, at: number, byteLength: number): boolean {
  for (let i = at; i < at + byteLength; i++) if (left[i] !== right[i]) return false;
  return true;
}
