/**
 * The interface of cma: connects to processes of this machine and pid namespace whose memory this process may access. For others it determines which privilege
 * is missing.
 */

import { readFileSync, statSync } from 'node:fs';
import {
  allocateScratch,
  close as closeFd,
  copyFromProcess,
  Errno,
  errnoName,
  errnoText,
  hasEnded,
  isSyscallError,
  ownIdentity,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
  pidfdOpen,
  unpackIdentity,
} from '../../../sys/index.ts';
import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import { effectiveUserId } from '../../../ucs/sys/user-id.ts';
import { closedError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import {
  type AmHandler,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  NO_ACTIVE_MESSAGES,
  type UctEndpoint,
} from '../../api/iface.ts';
import type { ComponentServices } from '../../api/memory-domain.ts';
import { checkAmHandler, checkTimeout } from '../../base/checks.ts';
import { TransferCounters } from '../../base/counters.ts';
import { hostIfaceAttributes } from '../../base/host/domain.ts';
import { type ClosableIface, unreachable } from '../../base/iface.ts';
import { NODE_ADDRESS_BYTES, otherNodeReason, packNode } from '../base/table-domain.ts';
import { CMA_CONFIG_TABLE, type CmaConfig } from './config.ts';
import { CMA_NAME, CmaEndpoint } from './endpoint.ts';

/** First bytes of addresses of this version. */
const ADDRESS_KIND = 0x0161_6d63;
const ADDRESS_BYTES = NODE_ADDRESS_BYTES + PROCESS_IDENTITY_BYTES;

/** The interface. */
export class CmaIface implements ClosableIface {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly outstanding = 0;
  readonly #endpoints: Set<CmaEndpoint> = new Set();
  readonly #counters: TransferCounters = new TransferCounters();
  /** The last failure of a copy, with its description. */
  #failure: { readonly status: Status; readonly message: string } | undefined = undefined;
  #closed = false;

  constructor(resource: IfaceResource, services: Pick<ComponentServices, 'config'>) {
    this.attributes = attributesOf(resource, services.config.get(CMA_CONFIG_TABLE));
    this.address = new Uint8Array(ADDRESS_BYTES);
    packNode(ADDRESS_KIND, this.address);
    packIdentity(ownIdentity(), this.address, NODE_ADDRESS_BYTES);
  }

  get closed(): boolean {
    return this.#closed;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    const elsewhere = otherNodeReason(ADDRESS_KIND, ADDRESS_BYTES, address);
    if (elsewhere !== undefined) return elsewhere;
    const peer = unpackIdentity(address, NODE_ADDRESS_BYTES);
    if (peer.pidNamespace !== ownIdentity().pidNamespace) {
      return 'the peer is in another pid namespace (a container), so its pid is not valid here';
    }
    return hasEnded(peer) ? 'the process of the peer has ended' : (otherUser(peer.pid) ?? accessRefusal(peer.pid));
  }

  connect(address: Uint8Array): UctEndpoint {
    if (this.#closed) throw closedError('interface cma');
    const reason = this.unreachableReason(address);
    if (reason !== undefined) throw unreachable(CMA_NAME, reason);
    const peer = unpackIdentity(address, NODE_ADDRESS_BYTES);
    const endpoint = new CmaEndpoint(peer, openPidfd(peer), this.#counters, {
      onFailure: (pid, errno) => this.#noteFailure(pid, errno),
      onClose: (closed) => this.#endpoints.delete(closed),
    });
    this.#endpoints.add(endpoint);
    return endpoint;
  }

  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
  }

  progress(): number {
    return 0;
  }

  errorOf(status: Status): UcxError | undefined {
    const failure = this.#failure;
    if (failure === undefined || failure.status !== status) return undefined;
    return new UcxError({ code: 'ERR_CMA_COPY', status, message: failure.message });
  }

  stats(): StatsNode {
    return this.#counters.node(this.attributes.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    return Promise.resolve();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const endpoint of this.#endpoints) endpoint.close();
  }

  #noteFailure(pid: number, errno: number): void {
    const text = `${errnoName(errno)} (${errnoText(errno)})`;
    switch (errno) {
      case Errno.EPERM:
        this.#failure = { status: Status.UNREACHABLE, message: missingPrivilege(pid) };
        break;
      case Errno.ESRCH:
        this.#failure = { status: Status.ENDPOINT_TIMEOUT, message: `process ${pid} has ended` };
        break;
      default:
        this.#failure = {
          status: Status.INVALID_ADDR,
          message: `copying from or to process ${pid} failed: ${text}`,
        };
    }
  }
}

/**
 * Meaning of error numbers for a pid that is not that of a process: it is not in use, or it is that of a thread, for which Linux 6.18 returns another errno
 * than older versions.
 */
const NO_PROCESS: Readonly<Record<number, string>> = {
  [Errno.ESRCH]: 'the process of the peer has ended',
  [Errno.EINVAL]: 'the pid of the peer is that of a thread',
  [Errno.ENOENT]: 'the pid of the peer is that of a thread',
};

/** Opens a descriptor of exactly this process. */
function openPidfd(peer: ProcessIdentity): number {
  let fd: number;
  try {
    fd = pidfdOpen(peer.pid);
  } catch (error) {
    const reason = isSyscallError(error) ? NO_PROCESS[error.errno] : undefined;
    if (reason !== undefined) throw unreachable(CMA_NAME, reason);
    throw error;
  }
  // Checked after the descriptor was opened, because the pid may have been reused before.
  if (!hasEnded(peer)) return fd;
  closeFd(fd);
  throw unreachable(CMA_NAME, 'the process of the peer has ended');
}

function attributesOf(resource: IfaceResource, config: CmaConfig): IfaceAttributes {
  return hostIfaceAttributes({
    resource,
    flags:
      IfaceFlag.PUT_ZCOPY |
      IfaceFlag.GET_ZCOPY |
      IfaceFlag.EP_CHECK |
      IfaceFlag.CONNECT_TO_IFACE |
      IfaceFlag.ERRHANDLE_REMOTE_MEM,
    shortBytesMax: 0,
    am: NO_ACTIVE_MESSAGES,
    latencyNs: config.LATENCY,
    overheadNs: config.OVERHEAD,
    bandwidth: config.BW,
    ifaceAddressBytes: ADDRESS_BYTES,
    errorHandling: ['remote access', 'peer failure'],
  });
}

const YAMA_SCOPE = '/proc/sys/kernel/yama/ptrace_scope';
/** Page 0 is never mapped: the kernel checks the permission, then fails because there is nothing to copy. */
const UNMAPPED_ADDRESS = 8;

/** The reason why the memory of a process is not accessible, as text for users; undefined if it is. */
export function accessRefusal(pid: number): string | undefined {
  const block = allocateScratch(8);
  const result = copyFromProcess(pid, UNMAPPED_ADDRESS, block.address, 8);
  block.free();
  switch (-result) {
    case 0:
    case Errno.EFAULT:
      return undefined;
    case Errno.ESRCH:
      return 'the process of the peer has ended';
    case Errno.ENOSYS:
      return 'this kernel has no process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH)';
    case Errno.EPERM:
      return missingPrivilege(pid);
    default:
      return `process_vm_readv fails with ${errnoName(-result)}`;
  }
}

/**
 * The reason why keys of a process cannot be read if it belongs to another user: they are in shared memory of that user, which is not trusted, even if this
 * process may read all memory.
 */
function otherUser(pid: number): string | undefined {
  const { uid } = statSync(`/proc/${pid}`, { throwIfNoEntry: false }) ?? {};
  return uid === undefined || uid === effectiveUserId() ? undefined : `process ${pid} belongs to another user`;
}

/** The meaning of EPERM for access to this process. */
export function missingPrivilege(pid: number): string {
  const scope = yamaScope();
  const ofScope: Readonly<Record<string, string>> = {
    '1': 'kernel.yama.ptrace_scope is 1, which allows it for child processes only: set it to 0, or grant CAP_SYS_PTRACE',
    '2': 'kernel.yama.ptrace_scope is 2, which needs CAP_SYS_PTRACE',
    '3': 'kernel.yama.ptrace_scope is 3, which forbids it to all processes until the next boot',
  };
  const reason =
    ofScope[scope] ??
    'it belongs to another user, is not dumpable, or a container forbids it: run both as one user, or grant CAP_SYS_PTRACE';
  return `no permission for the memory of process ${pid}: ${reason}`;
}

function yamaScope(): string {
  try {
    return readFileSync(YAMA_SCOPE, 'latin1').trim();
  } catch {
    return ''; // A kernel without Yama.
  }
}
