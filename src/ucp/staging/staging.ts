/**
 * Staging: host fragments through which device memory meets the transports that do not reach it. A bounded pool; who finds it empty waits in order.
 * Device memory is moved by the worker's connection to itself, with whatever lane selection finds for it.
 */

import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { eachPart, holdsBytes, hostBytes } from '../api/local-bytes.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection, Request } from '../base/request.ts';
import type { LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { Operation } from '../proto/selection.ts';
import { type CopyDone, initTransfer } from '../rma/internal-rma.ts';

/** Takes a fragment; undefined where not even one can be allocated, and `status` says why. */
export type FragmentUser = (fragment: MemoryHandle | undefined, status: Status) => void;

/** Windows of one message that are under way at the same time at most, however many fragments there are. */
const WINDOWS_MAX = 64;

/** The fragments of one worker. */
export class Staging {
  readonly #host: ProtocolHost;
  readonly #free: MemoryHandle[] = [];
  readonly #all: Set<MemoryHandle> = new Set();
  readonly #waiters: FragmentUser[] = [];
  /** Waiters that will hold their fragment until the peer has filled it. */
  readonly #receivers: FragmentUser[] = [];
  #isServing = false;
  /** Fragments that peers are to fill. */
  #receiving = 0;
  /** Fragments that peers may still write to, and that could not be unmapped at once. */
  readonly #retired: MemoryHandle[] = [];
  /** Keys of local device memory, for the connection to itself. */
  readonly #keys: WeakMap<MemoryHandle, RemoteKey> = new WeakMap();
  /** Keys of fragments, for peers. */
  readonly #packed: WeakMap<MemoryHandle, Uint8Array> = new WeakMap();

  constructor(host: ProtocolHost) {
    this.#host = host;
  }

  /** Bytes of a fragment: as configured, but no message of a transport is longer. */
  get fragmentBytes(): number {
    return Math.max(this.#host.context.fragmentBytes, this.#host.frameBytesMax);
  }

  /** Fragments in use. */
  get inUse(): number {
    return this.#all.size - this.#free.length;
  }

  /** Windows of one message that are worth asking for at the same time. */
  get windowsMax(): number {
    return Math.min(WINDOWS_MAX, Math.max(2, this.#receivingMax));
  }

  /** At most half of the fragments, and the other half for what this worker sends: two that send to each other never wait for each other. */
  get #receivingMax(): number {
    return this.#host.context.fragmentCount >> 1;
  }

  /** Calls `run` with a fragment, now or when one is given back, in order. The fragment must be given back without help of a peer. */
  acquire(run: FragmentUser): void {
    this.#waiters.push(run);
    this.#serve();
  }

  release(fragment: MemoryHandle): void {
    this.#free.push(fragment);
    this.#serve();
  }

  /** Like {@link acquire}, for a fragment that a peer fills: at most half of them at a time, but before those that this worker sends out of. */
  acquireToReceive(run: FragmentUser): void {
    this.#receivers.push(run);
    this.#serve();
  }

  /** Gives back what {@link acquireToReceive} gave, and nobody writes to any more. */
  releaseReceived(fragment: MemoryHandle): void {
    this.#receiving -= 1;
    this.release(fragment);
  }

  /** Takes a fragment out of use that a peer may still write to: its key is revoked, and another one takes its place. */
  retireReceived(fragment: MemoryHandle): void {
    this.#receiving -= 1;
    this.#all.delete(fragment);
    try {
      this.#host.context.memUnmap(fragment);
    } catch {
      // A transport is still at it: it is unmapped with the others when the worker closes.
      this.#retired.push(fragment);
    }
    this.#serve();
  }

  /** The remote key of a fragment, packed once. */
  packedKeyOf(fragment: MemoryHandle): Uint8Array {
    let packed = this.#packed.get(fragment);
    if (packed === undefined) {
      packed = this.#host.context.packRkey(fragment);
      this.#packed.set(fragment, packed);
    }
    return packed;
  }

  /** Copies bytes of a fragment into `[to, to + byteLength)` of a message of any pieces. */
  write(pieces: readonly LocalPiece[], to: number, fragment: MemoryHandle, byteLength: number, done: CopyDone): void {
    this.#copy(Operation.PUT, pieces, to, fragment, byteLength, done);
  }

  /** Copies bytes, at most a fragment, to the beginning of a message of any pieces, through the next fragment that is free. */
  writeBytes(pieces: readonly LocalPiece[], bytes: Uint8Array, done: CopyDone): void {
    this.acquire((fragment, refusal) => {
      if (fragment === undefined) {
        done(refusal);
        return;
      }
      fragment.bytes!.set(bytes);
      this.write(pieces, 0, fragment, bytes.byteLength, (status) => {
        this.release(fragment);
        done(status);
      });
    });
  }

  /** Copies `[from, from + byteLength)` of a message of any pieces into a fragment. */
  read(pieces: readonly LocalPiece[], from: number, fragment: MemoryHandle, byteLength: number, done: CopyDone): void {
    this.#copy(Operation.GET, pieces, from, fragment, byteLength, done);
  }

  /** Gives the memory of all fragments back; none is in use any more. */
  close(): void {
    for (const fragment of [...this.#all, ...this.#retired]) {
      if (fragment.mapped) this.#host.context.memUnmap(fragment);
    }
    this.#all.clear();
    this.#free.length = 0;
    this.#retired.length = 0;
  }

  /** Serves who waits, as far as there are fragments. Who gets one may give it back at once: served here, and not one inside the other. */
  #serve(): void {
    if (this.#isServing) return;
    this.#isServing = true;
    try {
      for (;;) {
        const isReceiver = this.#receivers.length > 0 && this.#receiving < this.#receivingMax;
        const users = isReceiver ? this.#receivers : this.#waiters;
        if (users.length === 0) return;
        const fragment = this.#free.pop() ?? this.#grow();
        if (fragment === Status.NO_RESOURCE) return;
        const user = users.shift()!;
        if (typeof fragment === 'number') {
          user(undefined, fragment);
          continue;
        }
        if (isReceiver) this.#receiving += 1;
        user(fragment, Status.OK);
      }
    } finally {
      this.#isServing = false;
    }
  }

  /** One more fragment. NO_RESOURCE at the bound, and where there is no memory for more than there are; the failure where there is none for the first. */
  #grow(): MemoryHandle | Status {
    if (this.#all.size >= this.#host.context.fragmentCount) return Status.NO_RESOURCE;
    try {
      const fragment = this.#host.context.allocateHost(this.fragmentBytes);
      this.#all.add(fragment);
      return fragment;
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return this.#all.size > 0 ? Status.NO_RESOURCE : error.status;
    }
  }

  #copy(
    operation: Operation,
    pieces: readonly LocalPiece[],
    from: number,
    fragment: MemoryHandle,
    byteLength: number,
    done: CopyDone,
  ): void {
    // One for the loop itself, so that copies that end at once do not end the whole early.
    let left = 1;
    let failure: Status = Status.OK;
    let cause: unknown;
    const ended: CopyDone = (status, error) => {
      if (status < 0 && failure === Status.OK) {
        failure = status;
        cause = error;
      }
      left -= 1;
      if (left === 0) done(failure, cause);
    };
    eachPart(pieces, from, byteLength, (memory, offset, bytes, at) => {
      left += 1;
      const host = hostBytes(memory);
      if (host === undefined) this.#move(operation, memory as MemoryHandle, offset, fragment, at, bytes, ended);
      else if (!holdsBytes(host, offset, bytes)) ended(Status.INVALID_ADDR);
      else {
        if (operation === Operation.PUT) host.set(fragment.bytes!.subarray(at, at + bytes), offset);
        else fragment.bytes!.set(host.subarray(offset, offset + bytes), at);
        ended(Status.OK);
      }
    });
    ended(Status.OK);
  }

  #move(
    operation: Operation,
    device: MemoryHandle,
    offset: number,
    fragment: MemoryHandle,
    at: number,
    byteLength: number,
    done: CopyDone,
  ): void {
    if (!device.mapped) {
      done(Status.INVALID_ADDR);
      return;
    }
    let loopback: Connection;
    let transfer: Request;
    try {
      ({ loopback } = this.#host);
      const rkey = this.#keyOf(device, loopback);
      const place = { local: fragment, localOffset: at, byteLength, rkey, remoteOffset: offset };
      transfer = initTransfer(this.#host, loopback, operation, place, done);
    } catch (error) {
      // Such as no descriptors for the connection. Peers ask for copies too: it is the copy that fails, not the progress of this worker.
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
    const key = context.unpackRkey(context.packRkey(device), loopback, { messages: false });
    this.#keys.set(device, key);
    return key;
  }
}
