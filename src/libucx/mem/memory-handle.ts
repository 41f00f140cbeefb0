/** Mapped memory of the engine over libucp: the handle of libucp and that of the transports of the node. Mapping is in memory-map.ts. */

import type { MemoryHandle } from '../../api/contract/memory.ts';
import { isList, type PieceOf } from '../../api/memory/local.ts';
import { type NativeMemory, OwnedMemory } from '../../api/memory/owned.ts';
import type { ForeignMemory } from '../../sys/index.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';

/** Mapped memory. */
export class UcpMemory extends OwnedMemory {
  /** The handle of libucp; 0 for device memory that is unknown to it. */
  readonly memh: number;
  /**
   * The handle of libucp for operations of this process; 0 for none, and for memory that peers may not put to and get from: libucp would give the peer of a
   * message a key of it.
   */
  readonly operationMemh: number;
  /** The handle of the same memory for the transports of the node. */
  readonly node: MemoryHandle;
  /** Its allocation by libucp, if any. */
  readonly allocation: ForeignMemory | undefined;
  /** Address of the first byte for libucp; 0 for device memory that is unknown to it. */
  readonly ucpAddress: number;
  /** Id of device memory in messages of peers; 0 for host memory. */
  readonly exportId: number;
  /** The packed remote key, created at its first use. */
  packed: Uint8Array | undefined = undefined;
  /** Number of operations in flight that use it. */
  inFlight = 0;

  constructor(
    owner: object,
    node: MemoryHandle,
    parts: Pick<UcpMemory, 'memh' | 'allocation' | 'exportId' | 'access'>,
  ) {
    super(owner, node, parts.allocation?.u8 ?? node.bytes, parts.access);
    this.memh = parts.memh;
    this.operationMemh = parts.access === MemAccess.ALL ? parts.memh : 0;
    this.node = node;
    this.allocation = parts.allocation;
    this.exportId = parts.exportId;
    this.ucpAddress = this.memh === 0 ? 0 : Number(node.address);
  }

  /** False also for memory that its card has lost, as the transports of the node notice. */
  override get mapped(): boolean {
    return super.mapped && this.node.mapped;
  }

  override unmappedError(name?: string): UcxError {
    return super.mapped ? this.native.unmappedError(name) : super.unmappedError(name);
  }

  protected override get native(): NativeMemory {
    return this.node as NativeMemory;
  }
}

/** Memory on the local side of an operation, after the check that it belongs to this engine. */
export type LocalMemory = UcpMemory | Uint8Array;

/** Local memory of a message, after the same check. */
export type LocalBuffer = LocalMemory | readonly PieceOf<LocalMemory>[];

/** Keeps memory mapped for an operation until {@link unpin}. */
export function pin(local: LocalBuffer): void {
  if (local instanceof OwnedMemory) local.inFlight += 1;
  else if (isList(local)) for (const { memory } of local) pin(memory);
}

export function unpin(local: LocalBuffer): void {
  if (local instanceof OwnedMemory) local.inFlight -= 1;
  else if (isList(local)) for (const { memory } of local) unpin(memory);
}
