/**
 * An endpoint of cma: copies between this process and one other; each copy is complete when its call returns. Also the unpacked remote key of cma: an address
 * in another process.
 */

import {
  close as closeFd,
  copyFromProcess,
  copyToProcess,
  Errno,
  PollEvent,
  type ProcessIdentity,
  pollNow,
} from '../../../sys/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { UctEndpoint } from '../../api/iface.ts';
import type { RemoteKey } from '../../api/memory.ts';
import { isInside } from '../../base/checks.ts';
import { Transfer, type TransferCounters } from '../../base/counters.ts';
import { checkIov, type HostIovEntry } from '../../base/host/memory.ts';
import { RmaOnlyEndpoint } from '../../base/iface.ts';
import type { PublishedKey } from '../../base/key/rkey-table-reader.ts';

/** Callbacks to the interface. */
interface CmaEvents {
  readonly onFailure: (pid: number, errno: number) => void;
  readonly onClose: (endpoint: CmaEndpoint) => void;
}

/** An endpoint. */
export class CmaEndpoint extends RmaOnlyEndpoint implements UctEndpoint {
  readonly #peer: ProcessIdentity;
  readonly #counters: TransferCounters;
  /** Called after a failure, so that the interface can describe it. */
  readonly #onFailure: (pid: number, errno: number) => void;
  readonly #onClose: (endpoint: CmaEndpoint) => void;
  /** Descriptor of the process, because its pid can be reused. */
  #pidfd: number;

  constructor(peer: ProcessIdentity, pidfd: number, counters: TransferCounters, { onFailure, onClose }: CmaEvents) {
    super();
    this.#peer = peer;
    this.#counters = counters;
    this.#pidfd = pidfd;
    this.#onFailure = onFailure;
    this.#onClose = onClose;
  }

  putShort(): Status {
    return Status.UNSUPPORTED;
  }

  getShort(): Status {
    return Status.UNSUPPORTED;
  }

  putZcopy(iov: readonly HostIovEntry[], remoteOffset: number, rkey: CmaKey): Status {
    return this.#copy(Transfer.PUT, iov, remoteOffset, rkey);
  }

  getZcopy(iov: readonly HostIovEntry[], remoteOffset: number, rkey: CmaKey): Status {
    return this.#copy(Transfer.GET, iov, remoteOffset, rkey);
  }

  flush(): Status {
    return this.#counters.flush(Status.OK);
  }

  fence(): Status {
    return this.#counters.fence(Status.OK);
  }

  override check(): Status {
    if (this.#pidfd < 0) return Status.ENDPOINT_TIMEOUT;
    return (pollNow(this.#pidfd, PollEvent.IN) & PollEvent.IN) === 0 ? Status.OK : Status.ENDPOINT_TIMEOUT;
  }

  close(): void {
    if (this.#pidfd < 0) return;
    closeFd(this.#pidfd);
    this.#pidfd = -1;
    this.#onClose(this);
  }

  #copy(transfer: Transfer, iov: readonly HostIovEntry[], remoteOffset: number, key: CmaKey): Status {
    const copy = transfer === Transfer.PUT ? copyToProcess : copyFromProcess;
    const total = checkIov(iov, CMA_NAME);
    if (!isInside(remoteOffset, total, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    const { pid, startTime } = this.#peer;
    if (key.owner.pid !== pid || key.owner.startTime !== startTime) return Status.INVALID_PARAM;
    if (this.check() !== Status.OK) return Status.ENDPOINT_TIMEOUT;
    let remote = key.location + remoteOffset;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      if (byteLength === 0) continue;
      const local = memory.location + offset;
      const moved = copy(pid, remote, local, byteLength);
      if (moved < 0) return this.#failureOf(moved);
      // A partial copy has reached an inaccessible page: copying the rest returns its error.
      if (moved < byteLength) return this.#failureOf(copy(pid, remote + moved, local + moved, byteLength - moved));
      remote += byteLength;
    }
    this.#counters.zcopy(transfer, total);
    return Status.OK;
  }

  /** @param result of a copy: a negative errno */
  #failureOf(result: number): Status {
    this.#onFailure(this.#peer.pid, -result);
    switch (-result) {
      case Errno.ESRCH:
        return Status.ENDPOINT_TIMEOUT;
      case Errno.EPERM:
        return Status.UNREACHABLE;
      case Errno.ENOMEM:
        return Status.NO_MEMORY;
      default:
        return Status.INVALID_ADDR;
    }
  }
}

/** Name of component, memory domain and transport. */
export const CMA_NAME = 'cma';

/** A remote key. */
export class CmaKey implements RemoteKey {
  readonly mdName: string = CMA_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly byteLength: number;
  /** Address in the process that owns the memory. */
  readonly location: number;
  readonly owner: ProcessIdentity;
  readonly #published: PublishedKey;
  #released = false;

  constructor(published: PublishedKey, location: number) {
    this.byteLength = published.byteLength;
    this.location = location;
    this.owner = published.owner;
    this.#published = published;
  }

  /** False once the owner has deregistered the memory, or the key was released. */
  get live(): boolean {
    return !this.#released && this.#published.live;
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#published.release();
  }
}
