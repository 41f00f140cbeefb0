/**
 * A remote key at its endpoint: the unpacked parts, and the plans for every operation on this memory, made once.
 */

import type { RemoteKeyPart } from '../../api/contract/memory.ts';
import { REMOTE_ACCESS } from '../../api/contract/memory.ts';
import { OwnedRemoteKey } from '../../api/memory/owned.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UctEndpoint } from '../../uct/api/iface.ts';
import type { RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import type { MemoryPlace, Operation, Plan } from '../proto/selection.ts';
import type { RkeyFields } from './rkey-bytes.ts';

const OPERATIONS = 2;

/** How short puts or gets of host bytes reach the memory of a key. */
export interface ShortPath {
  /** Up to this many bytes. */
  readonly bytesMax: number;
  readonly endpoint: UctEndpoint;
  readonly part: UctRemoteKey;
  readonly activity: { busy: boolean };
}

/** An unpacked remote key. */
export class RemoteKey extends OwnedRemoteKey implements MemoryPlace {
  readonly sysDevice: number | undefined;
  /** The part of each memory domain, by its index; undefined where the key has none for it. */
  readonly parts: readonly (UctRemoteKey | undefined)[];
  /** Key by which the worker of the peer finds the memory; undefined if that worker cannot be asked. */
  readonly memoryKey: Uint8Array | undefined;
  /** Plans by operation and place of the local memory (MemoryHandle.placeIndex, stagedPlaceIndex). */
  readonly #plans: (Plan | undefined)[][] = Array.from({ length: OPERATIONS }, () => []);
  /** The path of short puts of host bytes, once a plan has set it: checked before anything else. */
  shortPut: ShortPath | undefined = undefined;
  /** The same for bytes of mapped memory, which may have another plan. */
  shortPutMapped: ShortPath | undefined = undefined;
  /** The same for gets that end in the call, of host bytes and of mapped memory. */
  shortGet: ShortPath | undefined = undefined;
  /** Index of the lane with atomic operations on words of 32 and of 64 bits, once it was chosen; -1 for none. */
  atomicLane32: number | undefined = undefined;
  atomicLane64: number | undefined = undefined;

  constructor(
    owner: object,
    fields: RkeyFields,
    parts: readonly (UctRemoteKey | undefined)[],
    memoryKey: Uint8Array | undefined,
  ) {
    super(owner, fields);
    this.sysDevice = fields.sysDevice;
    this.parts = parts;
    this.memoryKey = memoryKey;
  }

  /** The plan made before for this operation and place. */
  plan(operation: Operation, placeIndex: number): Plan | undefined {
    return this.#plans[operation]![placeIndex];
  }

  keepPlan(operation: Operation, placeIndex: number, plan: Plan): void {
    this.#plans[operation]![placeIndex] = plan;
  }

  /** False when a transport knows that the memory is gone. */
  get live(): boolean {
    return this.parts.every((part) => part?.live !== false);
  }

  /** The remote bytes, where a transport has mapped them into this process (ucp_rkey_ptr), and they may be read and written; undefined elsewhere. */
  get bytes(): Uint8Array | undefined {
    if ((this.access & REMOTE_ACCESS) !== REMOTE_ACCESS) return undefined;
    return this.parts.find((part) => part?.bytes !== undefined)?.bytes;
  }

  protected override describeParts(): readonly RemoteKeyPart[] {
    return this.parts.flatMap((part) => {
      if (part === undefined) return [];
      const { mdName: md, byteLength, live = true } = part;
      return [{ md, byteLength, live, source: part.describe?.() }];
    });
  }

  protected override releaseParts(): void {
    this.shortPut = undefined;
    this.shortPutMapped = undefined;
    this.shortGet = undefined;
    for (const part of this.parts) part?.release();
  }
}

/** The error for INVALID_ADDR of a transport: ranges were checked before, so the owner has released the memory. */
export function staleKeyError(): UcxError {
  return new UcxError({
    code: 'ERR_RKEY_STALE',
    status: Status.INVALID_ADDR,
    message: 'the memory at one of the two ends is gone: freed, unmapped or detached since it was mapped',
  });
}
