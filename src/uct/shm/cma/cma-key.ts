/** A remote key of cma after unpacking: the address of memory in another process. */

import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { RemoteKey } from '../../api/memory.ts';
import type { ProcessIdentity } from '../../base/key/process-identity.ts';
import type { PublishedKey } from '../../base/key/rkey-table-reader.ts';

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
