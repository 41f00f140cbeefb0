/**
 * Base class of the memory domains of shared memory, which publish keys in rkey tables for peers on this host. Also the part of an interface address that
 * identifies the machine and its folder of shared memory; addresses from peers are validated.
 */

import { bootId, pathIdentity } from '../../../sys/index.ts';
import { HostDomain } from '../../base/host/domain.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import { RkeyTable } from '../../base/key/rkey-table.ts';
import { RkeyTableReader } from '../../base/key/rkey-table-reader.ts';
import type { SegmentOptions } from '../../base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../base/key/segment-name.ts';

export abstract class TableDomain extends HostDomain {
  protected readonly reader: RkeyTableReader;
  readonly #table: RkeyTable<HostMemory>;

  /**
   * @param isPackable whether registered memory can have keys
   * @param options how rkey tables are shared
   */
  constructor(name: string, isPackable: (bytes: Uint8Array) => boolean, options: SegmentOptions = {}) {
    super(name, isPackable);
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

/** Bytes of the part: kind, boot id, identity of the folder. */
export const NODE_ADDRESS_BYTES = 28;

const AT_BOOT = 4;
const BOOT_BYTES = 16;
const AT_FOLDER = 20;

/** Writes the host of this process to the start of `target`. @param folder folder of its shared memory */
export function packNode(kind: number, target: Uint8Array, folder: string = SEGMENT_FOLDER): void {
  const view = new DataView(target.buffer, target.byteOffset, NODE_ADDRESS_BYTES);
  view.setUint32(0, kind, true);
  target.set(bootId(), AT_BOOT);
  view.setBigUint64(AT_FOLDER, pathIdentity(folder) ?? 0n, true);
}

/**
 * The reason why an interface with this address is not on this machine; undefined if it is.
 * @param kind expected kind and version of the address
 * @param byteLength length of such an address
 */
export function otherNodeReason(kind: number, byteLength: number, address: Uint8Array): string | undefined {
  if (!(address instanceof Uint8Array) || address.byteLength !== byteLength) {
    return 'not an address of this transport';
  }
  const view = new DataView(address.buffer, address.byteOffset, byteLength);
  if (view.getUint32(0, true) !== kind) return 'not an address of this transport and version';
  const own = bootId();
  for (let i = 0; i < BOOT_BYTES; i++) {
    if (address[AT_BOOT + i] !== own[i]) return 'the peer is on another machine';
  }
  return undefined;
}

/** Whether the peer uses the same folder of shared memory. The address must have passed {@link otherNodeReason}. */
export function hasSameFolder(address: Uint8Array, folder: string): boolean {
  return (
    new DataView(address.buffer, address.byteOffset).getBigUint64(AT_FOLDER, true) === (pathIdentity(folder) ?? 0n)
  );
}
