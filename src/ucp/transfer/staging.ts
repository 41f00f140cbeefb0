/** Staging of one worker of the native engine: its fragments, and copies between fragments and host or device memory of messages. */

import { areHost, areMapped, eachPart, holdsBytes, hostBytes, scatter } from '../../api/memory/local.ts';
import { Operation } from '../../api/operation/call.ts';
import { Parts } from '../../api/operation/completion.ts';
import type { CopyDone, DeviceCopier, DeviceCopy } from '../../api/staging/device-copier.ts';
import { FragmentPool, fragmentBytesOf } from '../../api/staging/fragment-pool.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import type { Request } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import type { LocalMemory, LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import { initTransfer } from './transfer.ts';

/** Maximum number of windows in flight of one message, even if there are more fragments. */
const WINDOWS_MAX = 64;

/** A copy between handles of the native engine. */
interface NativeCopy extends DeviceCopy {
  readonly device: MemoryHandle;
  readonly host: LocalMemory;
}

/** The range `[from, from + byteLength)` of a message. */
export interface MessagePart {
  readonly pieces: readonly LocalPiece[];
  readonly from: number;
  readonly byteLength: number;
}

/** Bytes of a received message, whose memory is reused after the call. */
interface ReceivedBytes {
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly byteLength: number;
}

export class Staging extends FragmentPool<MemoryHandle> implements DeviceCopier {
  readonly #host: WorkerCore;

  constructor(host: WorkerCore) {
    const { context, frameBytesMax } = host;
    const free = (fragment: MemoryHandle): void => {
      if (fragment.mapped) context.memory.unmap(fragment);
    };
    // A fragment can hold the longest message of any transport.
    const fragmentBytes = Math.max(context.fragmentBytes, frameBytesMax);
    super((byteLength) => context.allocateHost(byteLength), free, { fragmentBytes, countMax: context.fragmentCount });
    this.#host = host;
  }

  /** Number of windows of one message that are worth requesting at the same time. */
  get windowsMax(): number {
    return Math.min(WINDOWS_MAX, Math.max(2, this.receivingMax));
  }

  /** Copies bytes of a fragment into a range of a message. */
  write(part: MessagePart, fragment: MemoryHandle, done: CopyDone): void {
    this.#copyParts(true, part, fragment, done);
  }

  /** Copies `[start, start + byteLength)` of received bytes, at most a fragment, into any memory; into device memory through the next free fragment. */
  deliver(pieces: readonly LocalPiece[], { bytes, start, byteLength }: ReceivedBytes, done: CopyDone): void {
    if (!areMapped(pieces)) {
      done(Status.INVALID_ADDR);
      return;
    }
    if (areHost(pieces)) {
      scatter(pieces, 0, byteLength, bytes, start);
      done(Status.OK);
      return;
    }
    // The frame is reused before a fragment may be free.
    const copy = bytes.slice(start, start + byteLength);
    this.acquire((fragment, failure) => {
      if (fragment === undefined) {
        done(failure);
        return;
      }
      fragmentBytesOf(fragment).set(copy);
      this.write({ pieces, from: 0, byteLength }, fragment, (status) => {
        this.release(fragment);
        done(status);
      });
    });
  }

  /** Copies a range of a message into a fragment, or other host memory. */
  read(part: MessagePart, into: LocalMemory, done: CopyDone): void {
    this.#copyParts(false, part, into, done);
  }

  copy(isToDevice: boolean, copy: NativeCopy, done: CopyDone): void {
    const { device, offset, host, hostOffset, byteLength } = copy;
    if (!device.mapped) {
      done(Status.INVALID_ADDR);
      return;
    }
    let loopback: Connection;
    let transfer: Request;
    try {
      ({ loopback } = this.#host);
      // On the loopback connection, lane selection finds the card that copies.
      const rkey = this.#host.ownKeys.keyOf(device);
      const operation = isToDevice ? Operation.PUT : Operation.GET;
      const local = { local: host, localOffset: hostOffset, byteLength };
      const copied = { operation, connection: loopback, ...local, rkey, remoteOffset: offset };
      transfer = initTransfer(this.#host, copied, done);
    } catch (error) {
      // For example, no descriptors are left for the connection. As a peer may have requested the copy, the copy fails and progress continues.
      if (!isUcxError(error)) throw error;
      done(error.status, error);
      return;
    }
    loopback.run(transfer);
  }

  #copyParts(isWrite: boolean, { pieces, from, byteLength }: MessagePart, other: LocalMemory, done: CopyDone): void {
    const otherBytes = hostBytes(other)!;
    const parts = new Parts(done);
    eachPart(pieces, from, byteLength, (memory, offset, bytes, at) => {
      const ended = parts.add();
      const host = hostBytes(memory);
      if (host === undefined) {
        const device = memory as MemoryHandle;
        this.copy(isWrite, { device, offset, host: other, hostOffset: at, byteLength: bytes }, ended);
      } else if (!holdsBytes(host, offset, bytes)) ended(Status.INVALID_ADDR);
      else {
        if (isWrite) host.set(otherBytes.subarray(at, at + bytes), offset);
        else otherBytes.set(host.subarray(offset, offset + bytes), at);
        ended(Status.OK);
      }
    });
    parts.complete(Status.OK);
  }
}
