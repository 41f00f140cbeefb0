/** Remote keys of local memory on the loopback connection of a worker: unpacked at first use, and kept until the memory is unmapped or the worker closes. */

import { OPEN } from '../../ucs/debug/diagnostics.ts';
import type { MemoryHandle, RevocableKey } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { Connection } from './connection.ts';
import type { ContextCore } from './context-core.ts';

/** The keys of one worker. They permit all accesses, whatever peers are allowed. */
export class OwnKeys {
  readonly #context: ContextCore;
  readonly #loopback: () => Connection;
  readonly #byMemory: Map<MemoryHandle, KeptKey> = new Map();

  /** @param loopback the connection of the worker to itself */
  constructor(context: ContextCore, loopback: () => Connection) {
    this.#context = context;
    this.#loopback = loopback;
  }

  /** @throws UcxError of the connection or the transport */
  keyOf(memory: MemoryHandle): RemoteKey {
    const known = this.#byMemory.get(memory);
    if (known !== undefined) return known.rkey;
    const context = this.#context;
    const rkey = context.unpackRkey(context.packOwnRkey(memory), this.#loopback(), { messages: false });
    this.#byMemory.set(memory, new KeptKey(rkey, memory, this.#byMemory));
    return rkey;
  }

  /** Releases the keys, which may hold attached memory. */
  close(): void {
    for (const key of [...this.#byMemory.values()]) key.revoke();
  }
}

class KeptKey implements RevocableKey {
  readonly rkey: RemoteKey;
  readonly #memory: MemoryHandle;
  readonly #all: Map<MemoryHandle, KeptKey>;

  /** @param all the keys of the worker, from which this one is removed when it is revoked */
  constructor(rkey: RemoteKey, memory: MemoryHandle, all: Map<MemoryHandle, KeptKey>) {
    this.rkey = rkey;
    this.#memory = memory;
    this.#all = all;
    memory.messageKeys.add(this);
    OPEN.keptKeys += 1;
  }

  revoke(): void {
    this.#memory.messageKeys.delete(this);
    this.#all.delete(this.#memory);
    OPEN.keptKeys -= 1;
    this.rkey.release();
  }
}
