/**
 * The state of a posted work request until it has ended. Posting it is the task of the connection. The new value of a word under an atomic operation
 * that the device executes as compare and swap.
 */

import { type AtomicCall, AtomicOperation, type Completion, type IovEntry } from '../../api/iface.ts';
import type { IbKey } from '../base/key.ts';
import type { IbMemory } from '../base/memory.ts';

/** A posted work request. Objects are reused. */
export class TxEntry {
  isSignaled = false;
  /** Slot of the copied bytes; -1 for none. */
  slot = -1;
  completion: Completion | undefined = undefined;
  /** Local memory in use: the caller can change its list. */
  readonly memories: IbMemory[] = [];
  key: IbKey | undefined = undefined;
  /** Destination of the bytes of a short get. */
  target: Uint8Array | undefined = undefined;
  targetOffset = 0;
  targetBytes = 0;
  /** An atomic operation, and its place. */
  call: AtomicCall | undefined = undefined;
  remoteOffset = 0;
  /** The word that a compare and swap of another operation has assumed. */
  assumed = 0n;
  /** Flushes that end with it. */
  flushes: Completion[] | undefined = undefined;

  /** Starts the use of local memory, and of remote memory if there is any. */
  hold(iov: readonly IovEntry[], key: IbKey | undefined): void {
    this.key = key;
    // Remote memory of this memory domain is held too, so that it is not deregistered during the operation.
    if (key?.memory !== undefined) key.memory.inFlight += 1;
    for (let i = 0; i < iov.length; i++) {
      const memory = iov[i]!.memory as IbMemory;
      memory.inFlight += 1;
      this.memories.push(memory);
    }
  }

  /** Ends the use of local memory. Returns false if memory was detached meanwhile. */
  release(): boolean {
    const { memories, key } = this;
    const remote = key?.memory;
    let isAttached = remote?.isDetached !== true;
    remote?.unuse();
    for (let i = 0; i < memories.length; i++) {
      const memory = memories[i]!;
      if (memory.isDetached) isAttached = false;
      memory.unuse();
    }
    memories.length = 0;
    this.key = undefined;
    return isAttached;
  }

  clear(): void {
    this.isSignaled = false;
    this.slot = -1;
    this.completion = undefined;
    this.target = undefined;
    this.call = undefined;
    this.flushes = undefined;
  }
}

/** The word after the operation, if it was `before`. */
export function newWord({ operation, value64 }: AtomicCall, before: bigint): bigint {
  switch (operation) {
    case AtomicOperation.AND:
      return before & value64;
    case AtomicOperation.OR:
      return before | value64;
    case AtomicOperation.XOR:
      return before ^ value64;
    default:
      return value64;
  }
}

/** Whether a device has the operation itself, so that one attempt is enough. */
export function isNative(operation: AtomicOperation): boolean {
  return operation === AtomicOperation.ADD || operation === AtomicOperation.CSWAP;
}
