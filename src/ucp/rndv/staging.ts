/**
 * Staging: host fragments through which device memory meets messages. A bounded pool; who finds it empty waits in order. Device memory is moved by
 * the worker's connection to itself, with whatever lane selection finds for it.
 */

import { Status } from '../../ucs/status.ts';
import type { ProtocolHost } from '../core/protocol-host.ts';
import { eachPart, hostBytes, type Piece } from '../mem/local-bytes.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { Operation } from '../proto/selection.ts';
import { type CopyDone, canMove, describeTransfer } from './internal-rma.ts';

/** Takes a fragment. */
export type FragmentUser = (fragment: MemoryHandle) => void;

/** The fragments of one worker. */
export class Staging {
  readonly #host: ProtocolHost;
  readonly #free: MemoryHandle[] = [];
  readonly #all: MemoryHandle[] = [];
  readonly #waiters: FragmentUser[] = [];
  /** Waiters that will hold their fragment until the peer has filled it. */
  readonly #receivers: FragmentUser[] = [];
  #isServing = false;
  /** Fragments that peers are to fill. */
  #receiving = 0;
  /** Keys of local device memory, for the connection to itself. */
  readonly #keys: WeakMap<MemoryHandle, RemoteKey> = new WeakMap();

  constructor(host: ProtocolHost) {
    this.#host = host;
  }

  /** Bytes of a fragment: as configured, but no message of a transport is longer. */
  get fragmentBytes(): number {
    return Math.max(this.#host.context.fragmentBytes, this.#host.frameBytesMax);
  }

  /** Fragments in use. */
  get inUse(): number {
    return this.#all.length - this.#free.length;
  }

  /** Calls `run` with a fragment, now or when one is given back. The fragment must be given back without help of a peer. */
  acquire(run: FragmentUser): void {
    const fragment = this.#free.pop() ?? this.#grow();
    if (fragment === undefined) this.#waiters.push(run);
    else run(fragment);
  }

  release(fragment: MemoryHandle): void {
    this.#free.push(fragment);
    // Who gets a fragment may give it back at once: served here, and not one inside the other.
    if (this.#isServing) return;
    this.#isServing = true;
    while (this.#waiters.length > 0 && this.#free.length > 0) this.#waiters.shift()!(this.#free.pop()!);
    this.#isServing = false;
    this.#serveReceivers();
  }

  /**
   * Like {@link acquire}, for a fragment that a peer fills: at most half of them at a time, so that what this worker sends always finds one, and two
   * workers that send to each other never wait for each other's fragments.
   */
  acquireToReceive(run: FragmentUser): void {
    this.#receivers.push(run);
    this.#serveReceivers();
  }

  /** Gives back what {@link acquireToReceive} gave. */
  releaseReceived(fragment: MemoryHandle): void {
    this.#receiving -= 1;
    this.release(fragment);
    this.#serveReceivers();
  }

  /** Copies bytes of a fragment into `[to, to + byteLength)` of a message of any pieces. */
  write(pieces: readonly Piece[], to: number, fragment: MemoryHandle, byteLength: number, done: CopyDone): void {
    this.#copy(Operation.PUT, pieces, to, fragment, byteLength, done);
  }

  /** Copies bytes, at most a fragment, to the beginning of a message of any pieces, through the next fragment that is free. */
  writeBytes(pieces: readonly Piece[], bytes: Uint8Array, done: CopyDone): void {
    this.acquire((fragment) => {
      fragment.bytes!.set(bytes);
      this.write(pieces, 0, fragment, bytes.byteLength, (status) => {
        this.release(fragment);
        done(status);
      });
    });
  }

  /** Copies `[from, from + byteLength)` of a message of any pieces into a fragment. */
  read(pieces: readonly Piece[], from: number, fragment: MemoryHandle, byteLength: number, done: CopyDone): void {
    this.#copy(Operation.GET, pieces, from, fragment, byteLength, done);
  }

  /** Gives the memory of all fragments back; none is in use any more. */
  close(): void {
    for (const fragment of this.#all) if (fragment.mapped) this.#host.context.memUnmap(fragment);
    this.#all.length = 0;
    this.#free.length = 0;
  }

  #serveReceivers(): void {
    const limit = this.#host.context.fragmentCount >> 1;
    while (this.#receivers.length > 0 && this.#receiving < limit) {
      const fragment = this.#free.pop() ?? this.#grow();
      if (fragment === undefined) return;
      this.#receiving += 1;
      this.#receivers.shift()!(fragment);
    }
  }

  #grow(): MemoryHandle | undefined {
    if (this.#all.length >= this.#host.context.fragmentCount) return undefined;
    const fragment = this.#host.context.allocateHost(this.fragmentBytes);
    this.#all.push(fragment);
    return fragment;
  }

  #copy(
    operation: Operation,
    pieces: readonly Piece[],
    from: number,
    fragment: MemoryHandle,
    byteLength: number,
    done: CopyDone,
  ): void {
    // One for the loop itself, so that copies that end at once do not end the whole early.
    let left = 1;
    let failure: Status = Status.OK;
    const ended = (status: Status): void => {
      if (status < 0 && failure === Status.OK) failure = status;
      left -= 1;
      if (left === 0) done(failure);
    };
    eachPart(pieces, from, byteLength, (memory, offset, bytes, at) => {
      left += 1;
      const host = hostBytes(memory);
      if (host === undefined) this.#move(operation, memory as MemoryHandle, offset, fragment, at, bytes, ended);
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
    const { loopback } = this.#host;
    const place = { local: fragment, localOffset: at, byteLength, rkey: this.#keyOf(device), remoteOffset: offset };
    // Where the driver of a card takes no transfers. Peers ask for copies too: that is their failure, and none of the progress of this worker.
    if (!canMove(loopback, operation, place)) done(Status.UNREACHABLE);
    else loopback.run(describeTransfer(this.#host, loopback, operation, place, done));
  }

  #keyOf(device: MemoryHandle): RemoteKey {
    const known = this.#keys.get(device);
    if (known !== undefined) return known;
    const { context, loopback } = this.#host;
    const key = context.unpackRkey(context.packRkey(device), loopback, { messages: false });
    this.#keys.set(device, key);
    return key;
  }
}
