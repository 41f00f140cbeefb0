/** Staging of one worker of the native engine: its fragments, and copies between them and messages of host and device memory. */

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

/** Windows in flight of one message, however many fragments there are. */
const WINDOWS_MAX = 64;

/** A copy: handles are those of the native engine. */
interface NativeCopy extends DeviceCopy {
  readonly device: MemoryHandle;
  readonly host: LocalMemory;
}

/** `[from, from + byteLength)` of a message of any pieces. */
export interface MessagePart {
  readonly pieces: readonly LocalPiece[];
  readonly from: number;
  readonly byteLength: number;
}

/** Bytes that have come in a message, which is reused after the call. */
interface ReceivedBytes {
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly byteLength: number;
}

/** The fragments of one worker, and copies to and from them. */
export class Staging extends FragmentPool<MemoryHandle> implements DeviceCopier {
  readonly #host: WorkerCore;

  constructor(host: WorkerCore) {
    const { context, frameBytesMax } = host;
    const free = (fragment: MemoryHandle): void => {
      if (fragment.mapped) context.memory.unmap(fragment);
    };
    // A fragment takes the longest message of any transport.
    const fragmentBytes = Math.max(context.fragmentBytes, frameBytesMax);
    super((byteLength) => context.allocateHost(byteLength), free, { fragmentBytes, countMax: context.fragmentCount });
    this.#host = host;
  }

  /** Windows of one message that are worth asking for at the same time. */
  get windowsMax(): number {
    return Math.min(WINDOWS_MAX, Math.max(2, this.receivingMax));
  }

  /** Copies bytes of a fragment into a part of a message. */
  write(part: MessagePart, fragment: MemoryHandle, done: CopyDone): void {
    this.#copyParts(true, part, fragment, done);
  }

  /**
   * Copies `[start, start + byteLength)` of received bytes, at most a fragment, into pieces of any memory; into device memory through the next free
   * fragment.
   */
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
    this.acquire((fragment, refusal) => {
      if (fragment === undefined) {
        done(refusal);
        return;
      }
      fragmentBytesOf(fragment).set(copy);
      this.write({ pieces, from: 0, byteLength }, fragment, (status) => {
        this.release(fragment);
        done(status);
      });
    });
  }

  /** Copies a part of a message into a fragment, or other host memory. */
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
      // Over the connection of the worker to itself, lane selection finds the card that copies.
      const rkey = this.#host.ownKeys.keyOf(device);
      const operation = isToDevice ? Operation.PUT : Operation.GET;
      const local = { local: host, localOffset: hostOffset, byteLength };
      const copied = { operation, connection: loopback, ...local, rkey, remoteOffset: offset };
      transfer = initTransfer(this.#host, copied, done);
    } catch (error) {
      // For example, no descriptors are left for the connection. A peer can ask for a copy too: the copy fails, and not the progress of this worker.
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
