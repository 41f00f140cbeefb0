/** The interface of posix: receives through a directory of rings, and connects to the directories of peers. */

import { ownIdentity, unpackIdentity } from '../../../sys/index.ts';
import { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import { Sleeper } from '../../../ucs/sys/sleeper.ts';
import { closedError, isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import {
  type AmHandler,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  type UctEndpoint,
} from '../../api/iface.ts';
import type { ComponentServices } from '../../api/memory-domain.ts';
import { checkAmHandler, checkTimeout } from '../../base/checks.ts';
import { TransferCounters } from '../../base/counters.ts';
import { hostIfaceAttributes } from '../../base/host/domain.ts';
import { type ClosableIface, identityText, unreachable } from '../../base/iface.ts';
import { isLackOfResources, PATH_REMEDY } from '../../base/key/segment.ts';
import { SEGMENT_NAME_BYTES } from '../../base/key/segment-name.ts';
import { hasSameFolder, NODE_ADDRESS_BYTES, otherNodeReason, packNode } from '../base/table-domain.ts';
import { POSIX_CONFIG_TABLE, type PosixConfig, ringGeometry, segmentOptions } from './config.ts';
import { Directory } from './directory.ts';
import { PosixEndpoint, PosixShared } from './endpoint.ts';
import { DirectoryWord, messageBytesMax, wakePath } from './layout.ts';
import { Peer, WakePipe } from './peer.ts';

/** First bytes of addresses of this version. */
const ADDRESS_KIND = 0x0178_6f70;
const ADDRESS_BYTES = NODE_ADDRESS_BYTES + SEGMENT_NAME_BYTES;
/** Sleep of a sender that waits for an event without notification: a free slot in the directory of the receiver. */
const RETRY_NS = 5e6;

export class PosixIface implements ClosableIface {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly outstanding = 0;
  readonly #shared: PosixShared;
  readonly #directory: Directory;
  readonly #pipe: WakePipe;
  readonly #sleeper: Sleeper;
  #handler: AmHandler | undefined = undefined;
  #closed = false;

  /**
   * Throws SyscallError if /dev/shm is full.
   * @param onShortage see {@link PosixShared}
   */
  constructor(
    resource: IfaceResource,
    services: Pick<ComponentServices, 'config' | 'clock' | 'log'>,
    onShortage: (error: UcxError) => string,
  ) {
    const config = services.config.get(POSIX_CONFIG_TABLE);
    const geometry = ringGeometry(config);
    const counters = new TransferCounters();
    const folder = config.DIR;
    this.attributes = attributesOf(resource, config, messageBytesMax(geometry));
    const { clock } = services;
    const log = new LimitedLog(services.log, clock);
    const directory = new Directory(log, clock, counters, segmentOptions(config));
    this.#directory = directory;
    this.#sleeper = new Sleeper(clock, { onEnd: () => directory.setSleeping(false) });
    this.#pipe = openPipe(directory, !config.USE_PROC_LINK, () => this.#sleeper.wake());
    const sender = { directoryName: directory.segment.packedName, wakeFd: this.#pipe.sharedFd };
    this.#shared = new PosixShared({ geometry, counters, sender, folder, onShortage });
    this.address = new Uint8Array(ADDRESS_BYTES);
    packNode(ADDRESS_KIND, this.address, folder);
    this.address.set(sender.directoryName, NODE_ADDRESS_BYTES);
  }

  get closed(): boolean {
    return this.#closed;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    const elsewhere = otherNodeReason(ADDRESS_KIND, ADDRESS_BYTES, address);
    if (elsewhere !== undefined) return elsewhere;
    const peer = this.#peerAt(address);
    if (typeof peer === 'string') return peer;
    peer.close();
    return undefined;
  }

  identityOf(address: Uint8Array): string | undefined {
    const isOne = otherNodeReason(ADDRESS_KIND, ADDRESS_BYTES, address) === undefined;
    return isOne ? identityText(address.subarray(NODE_ADDRESS_BYTES)) : undefined;
  }

  connect(address: Uint8Array): UctEndpoint {
    if (this.#closed) throw closedError('interface posix');
    const elsewhere = otherNodeReason(ADDRESS_KIND, ADDRESS_BYTES, address);
    if (elsewhere !== undefined) throw unreachable('posix', elsewhere);
    const peer = this.#peerAt(address);
    if (typeof peer === 'string') throw unreachable('posix', peer);
    return new PosixEndpoint(this.#shared, peer);
  }

  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
    this.#handler = handler;
  }

  progress(): number {
    const messages = this.#directory.deliver(this.#handler);
    if (messages > 0) this.#sleeper.wake();
    return messages;
  }

  errorOf(): undefined {
    return undefined;
  }

  stats(): StatsNode {
    return this.#shared.counters.node(this.attributes.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    if (this.#closed || this.#handler === undefined) return Promise.resolve();
    // Announced before the last check for messages, because a sender publishes before it checks whether the receiver sleeps.
    this.#directory.setSleeping(true);
    const limitNs = this.#roomWithin(timeoutNs);
    if (limitNs === 0 || this.#directory.hasNews) {
      this.#directory.setSleeping(false);
      this.#sleeper.wake();
      return Promise.resolve();
    }
    this.#directory.checkSome();
    return this.#sleeper.sleep(limitNs);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const endpoint of this.#shared.endpoints) endpoint.close();
    this.#sleeper.wake();
    this.#directory.close();
    this.#pipe.close();
  }

  /**
   * Attaches the interface with this address on this machine; returns the reason if it cannot be reached.
   * @throws SyscallError EMFILE, ENFILE, ENOMEM of this process
   */
  #peerAt(address: Uint8Array): Peer | string {
    const { folder, sender } = this.#shared;
    const name = address.subarray(NODE_ADDRESS_BYTES);
    // Rings have paths, so both ends need the same folder.
    if (!hasSameFolder(address, folder)) {
      return `the peer has another ${folder}: another mount namespace or container, or another UCX_POSIX_DIR`;
    }
    const { pidNamespace } = ownIdentity();
    if (sender.wakeFd !== 0 && unpackIdentity(name, 0).pidNamespace !== pidNamespace) {
      return `the peer is in another pid namespace (a container): ${PATH_REMEDY}`;
    }
    try {
      return Peer.attach(name, folder);
    } catch (error) {
      if (!isUcxError(error) || isLackOfResources(error)) throw error;
      return `the peer has ended, or belongs to another user (${error.message})`;
    }
  }

  /** Maximum sleep for blocked endpoints: 0 if one of them can send now. */
  #roomWithin(timeoutNs: number): number {
    let limitNs = Math.min(timeoutNs, this.#directory.retryNs);
    for (const endpoint of this.#shared.blocked) {
      const answer = endpoint.wantRoom();
      if (answer === 'unknown') limitNs = Math.min(limitNs, RETRY_NS);
      if (answer !== 'room') continue;
      this.#shared.unblock();
      return 0;
    }
    return limitNs;
  }
}

/** Creates the pipe of a directory. If that fails, closes the directory. */
function openPipe(directory: Directory, keepsPath: boolean, onWake: () => void): WakePipe {
  const { path, words } = directory.segment;
  try {
    const pipe = new WakePipe(wakePath(path), keepsPath, onWake);
    words[DirectoryWord.WAKE_FD] = pipe.sharedFd;
    return pipe;
  } catch (error) {
    directory.close();
    throw error;
  }
}

function attributesOf(resource: IfaceResource, config: PosixConfig, messageBytes: number): IfaceAttributes {
  return hostIfaceAttributes({
    resource,
    flags:
      IfaceFlag.PUT_SHORT |
      IfaceFlag.PUT_ZCOPY |
      IfaceFlag.GET_SHORT |
      IfaceFlag.GET_ZCOPY |
      IfaceFlag.AM_SHORT |
      IfaceFlag.AM_BCOPY |
      IfaceFlag.ATOMIC32 |
      IfaceFlag.ATOMIC64 |
      IfaceFlag.CPU_ACCESS |
      IfaceFlag.EP_CHECK |
      IfaceFlag.EVENT |
      IfaceFlag.CONNECT_TO_IFACE |
      IfaceFlag.ERRHANDLE_REMOTE_MEM,
    // Any length, as in UCX: the CPU copies, with or without a registration.
    shortBytesMax: Number.MAX_SAFE_INTEGER,
    am: { shortBytesMax: messageBytes, bcopyBytesMax: messageBytes },
    latencyNs: config.LATENCY,
    overheadNs: config.OVERHEAD,
    bandwidth: config.BW,
    ifaceAddressBytes: ADDRESS_BYTES,
    errorHandling: ['remote access', 'peer failure'],
  });
}
