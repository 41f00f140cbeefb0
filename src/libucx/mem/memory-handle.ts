/**
 * Mapped memory of the engine over libucp: the handle of libucp and that of the transports of the node. Decides, from data, whether libucp accepts
 * addresses of cards or needs host fragments, and why.
 */

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

/** Name of the memory type in UCX. */
const GAUDI = 'gaudi';

/** Inputs of the decision. */
export interface DeviceAccessInput {
  /** Version of libucp, such as `1.13.1`. */
  readonly version: string;
  /** The names of its memory types; the index of a name is the number of the type. */
  readonly memoryTypes: readonly string[];
  /** Bits of the types that its context supports on this machine (ucp_context_attr_t.memory_types). */
  readonly usableTypes: bigint;
  /** Whether the cards are emulated. */
  readonly emulated: boolean;
}

/** The decision. */
export interface DeviceAccess {
  /** Whether device addresses are passed to libucp. */
  readonly isDirect: boolean;
  /** The number of the memory type; 0, host memory, if they are not. */
  readonly memoryType: number;
  readonly reason: string;
}

/** The decision after libucp was probed on memory of a card. @param refusal reason of probeDevice why it does not reach it; undefined if it does */
export function accessAfterProbe(access: DeviceAccess, refusal: string | undefined): DeviceAccess {
  if (refusal === undefined) return { ...access, reason: `${access.reason}, and reaches a card of this program` };
  const reason = `${access.reason}, but does not reach a card of this program: ${refusal}`;
  return { isDirect: false, memoryType: 0, reason };
}

/** Decides from the properties that libucp reports. */
export function deviceAccess({ version, memoryTypes, usableTypes, emulated }: DeviceAccessInput): DeviceAccess {
  const memoryType = memoryTypes.indexOf(GAUDI);
  const staged = (reason: string): DeviceAccess => ({ isDirect: false, memoryType: 0, reason });
  if (memoryType < 0) return staged(`UCX ${version} does not know memory type ${GAUDI}: 1.21 and newer do`);
  if ((usableTypes & (1n << BigInt(memoryType))) === 0n) {
    return staged(
      `no memory domain of UCX ${version} serves memory type ${GAUDI} here: its module for it is missing, or finds no card`,
    );
  }
  if (emulated) return staged('the cards are emulated: their addresses mean nothing to libucp');
  return { isDirect: true, memoryType, reason: `UCX ${version} knows memory type ${GAUDI}` };
}
