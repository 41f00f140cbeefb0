/**
 * Mapped memory of the libucx engine: the libucp handle and the native handle. Also decides, from data, whether device addresses are passed to libucp or
 * device memory is staged in host fragments, and why.
 */

import type { MemoryHandle } from '../../api/contract/memory.ts';
import { isList, type PieceOf } from '../../api/memory/local.ts';
import { type NativeMemory, OwnedMemory } from '../../api/memory/owned.ts';
import type { ForeignMemory } from '../../sys/index.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';

export class UcpMemory extends OwnedMemory {
  /** The libucp handle; 0 for device memory that libucp does not know. */
  readonly memh: number;
  /**
   * The libucp handle for operations of this process; 0 for none, and for memory that peers may not access: libucp would send a remote key of it to the
   * peer of a message.
   */
  readonly operationMemh: number;
  /** The native handle of the same memory. */
  readonly nativeHandle: MemoryHandle;
  /** The memory, if libucp allocated it. */
  readonly allocation: ForeignMemory | undefined;
  /** Address of the first byte for libucp; 0 for device memory that libucp does not know. */
  readonly ucpAddress: number;
  /** Id of device memory in messages of peers; 0 for host memory. */
  readonly exportId: number;
  /** The packed remote key, once it was requested. */
  packed: Uint8Array | undefined = undefined;
  /** Number of operations in flight that use it. */
  inFlight = 0;

  constructor(
    owner: object,
    native: MemoryHandle,
    parts: Pick<UcpMemory, 'memh' | 'allocation' | 'exportId' | 'access'>,
  ) {
    super(owner, native, parts.allocation?.u8 ?? native.bytes, parts.access);
    this.memh = parts.memh;
    this.operationMemh = parts.access === MemAccess.ALL ? parts.memh : 0;
    this.nativeHandle = native;
    this.allocation = parts.allocation;
    this.exportId = parts.exportId;
    this.ucpAddress = this.memh === 0 ? 0 : Number(native.address);
  }

  /** Also false if the native transports have noticed that the card lost the memory. */
  override get mapped(): boolean {
    return super.mapped && this.nativeHandle.mapped;
  }

  override unmappedError(name?: string): UcxError {
    return super.mapped ? this.native.unmappedError(name) : super.unmappedError(name);
  }

  protected override get native(): NativeMemory {
    return this.nativeHandle as NativeMemory;
  }
}

/** Memory on the local side of an operation, known to belong to this engine. */
export type LocalMemory = UcpMemory | Uint8Array;

/** Local memory of a message, known to belong to this engine. */
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

export interface DeviceAccessInput {
  /** Version of libucp, such as `1.13.1`. */
  readonly version: string;
  /** Names of its memory types; the index of a name is the number of the type. */
  readonly memoryTypes: readonly string[];
  /** Bits of the types that its context supports on this machine (ucp_context_attr_t.memory_types). */
  readonly usableTypes: bigint;
  readonly emulated: boolean;
}

/** Result of {@link deviceAccess}. */
export interface DeviceAccess {
  /** Whether device addresses are passed to libucp. */
  readonly isDirect: boolean;
  /** Number of the memory type; 0 (host memory) if they are not. */
  readonly memoryType: number;
  readonly reason: string;
}

/** The decision after libucp was probed on memory of a card. @param failure reason why probeDevice failed; undefined if it succeeded */
export function accessAfterProbe(access: DeviceAccess, failure: string | undefined): DeviceAccess {
  if (failure === undefined) return { ...access, reason: `${access.reason}, and reaches a card of this program` };
  const reason = `${access.reason}, but does not reach a card of this program: ${failure}`;
  return { isDirect: false, memoryType: 0, reason };
}

/** Decides from the properties that libucp reports. */
export function deviceAccess({ version, memoryTypes, usableTypes, emulated }: DeviceAccessInput): DeviceAccess {
  const memoryType = memoryTypes.indexOf(GAUDI);
  const staged = (reason: string): DeviceAccess => ({ isDirect: false, memoryType: 0, reason });
  if (memoryType < 0) return staged(`UCX ${version} does not know memory type ${GAUDI}: 1.21 and newer do`);
  if ((usableTypes & (1n << BigInt(memoryType))) === 0n) {
    return staged(
      `no memory domain of UCX ${version} supports memory type ${GAUDI} on this machine: its Gaudi module is missing or finds no card`,
    );
  }
  if (emulated) return staged('the cards are emulated: libucp cannot use their addresses');
  return { isDirect: true, memoryType, reason: `UCX ${version} knows memory type ${GAUDI}` };
}
