/** Base class of the memory domains of shared memory: they publish keys in rkey tables, which peers on this node read. */

import { HostDomain } from '../../base/host/host-domain.ts';
import type { HostMemory } from '../../base/host/host-memory.ts';
import { RkeyTable } from '../../base/key/rkey-table.ts';
import { RkeyTableReader } from '../../base/key/rkey-table-reader.ts';
import type { SegmentOptions } from '../../base/key/segment.ts';

/** Base of such a memory domain. */
export abstract class TableDomain extends HostDomain {
  protected readonly reader: RkeyTableReader;
  readonly #table: RkeyTable<HostMemory>;

  /**
   * @param registersPackable whether registered memory can have keys
   * @param options how rkey tables are shared
   */
  constructor(name: string, registersPackable: boolean, options: SegmentOptions = {}) {
    super(name, registersPackable);
    this.#table = new RkeyTable(name, options);
    this.reader = new RkeyTableReader(name, options.folder);
  }

  /** The payload of `memory` in the slot of its key. */
  protected abstract payloadOf(memory: HostMemory): Int32Array;

  override close(): void {
    super.close();
    this.#table.close();
    this.reader.close();
  }

  protected packKey(memory: HostMemory, target: Uint8Array, offset: number): void {
    if (!this.#table.has(memory)) this.#table.publish(memory, this.payloadOf(memory));
    this.#table.pack(memory, target, offset);
  }

  protected revokeKey(memory: HostMemory): void {
    this.#table.revoke(memory);
  }
}
