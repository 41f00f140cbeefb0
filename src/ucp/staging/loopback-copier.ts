/** Copies between device memory and fragments over the connection of a worker to itself: lane selection finds the card that copies. Fragments are allocated elsewhere. */

import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection, Request } from '../base/request/request.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { Operation } from '../proto/selection.ts';
import { initTransfer } from '../rma/internal-rma.ts';
import type { CopyDone, DeviceCopier, DeviceCopy } from './device-copier.ts';

/** The copies of one worker. */
export class LoopbackCopier implements DeviceCopier<MemoryHandle> {
  readonly #host: ProtocolHost;
  /** Keys of local device memory for the connection to itself. */
  readonly #keys: WeakMap<MemoryHandle, RemoteKey> = new WeakMap();

  constructor(host: ProtocolHost) {
    this.#host = host;
  }

  copy(isToDevice: boolean, copy: DeviceCopy<MemoryHandle>, done: CopyDone): void {
    const { device, offset, fragment, fragmentOffset, byteLength } = copy;
    if (!device.mapped) {
      done(Status.INVALID_ADDR);
      return;
    }
    let loopback: Connection;
    let transfer: Request;
    try {
      ({ loopback } = this.#host);
      const rkey = this.#keyOf(device, loopback);
      const place = { local: fragment, localOffset: fragmentOffset, byteLength, rkey, remoteOffset: offset };
      transfer = initTransfer(this.#host, loopback, isToDevice ? Operation.PUT : Operation.GET, place, done);
    } catch (error) {
      // For example, no descriptors are left for the connection. A peer can ask for a copy too: the copy fails, and not the progress of this worker.
      if (!isUcxError(error)) throw error;
      done(error.status, error);
      return;
    }
    loopback.run(transfer);
  }

  #keyOf(device: MemoryHandle, loopback: Connection): RemoteKey {
    const known = this.#keys.get(device);
    if (known !== undefined) return known;
    const { context } = this.#host;
    const key = context.unpackRkey(context.packOwnRkey(device), loopback, { messages: false });
    this.#keys.set(device, key);
    return key;
  }
}
