/** Local memory of operations in the form that libucp needs: an address and a length, a list of these, or a datatype that copies from and to cards. */

import {
  bytesOf,
  checkLocal,
  checkPieceFields,
  cut,
  type GivenMemory,
  isList,
  type LocalRange,
  type Piece,
  type PieceOf,
  piecesOf,
} from '../../api/memory/local.ts';
import { OwnedMemory } from '../../api/memory/owned.ts';
import { addressOf, allocateScratch } from '../../sys/index.ts';
import { isBytes, isResizable } from '../../ucs/memory/bytes.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_DATATYPE, UCP_DT_IOV } from '../c/abi.ts';
import type { DeviceAccess, LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import { MessageRegistrations, type RegistrationOwner } from './message-registrations.ts';
import { RequestKind, TRANSPORT, type UcpRequest } from './request.ts';
import type { Requests } from './requests.ts';

const LOCAL = MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE;

type InitDatatype = (request: UcpRequest, pieces: readonly Piece<LocalMemory>[], byteLength: number) => number;

/** The context that the memory must belong to. */
export interface BuffersOwner extends RegistrationOwner {
  readonly access: DeviceAccess;
}

/** The local side of the operations of one worker, prepared one at a time. */
export class LocalRanges {
  readonly #owner: BuffersOwner;
  readonly #requests: Requests;
  readonly #initDatatype: InitDatatype;
  readonly #registrations: MessageRegistrations;

  /**
   * @param owner the context that the memory must belong to
   * @param initDatatype sets the datatype of a request with device memory, or its start failure if a card cannot read the memory; returns the value to
   * pass as the address
   */
  constructor(owner: BuffersOwner, requests: Requests, initDatatype: InitDatatype) {
    this.#owner = owner;
    this.#requests = requests;
    this.#initDatatype = initDatatype;
    this.#registrations = new MessageRegistrations(owner);
  }

  /**
   * Checks and pins local memory until the request has ended, and makes a request with parameters, address and count; undefined at the limit.
   * @param access access for which the memory must be mapped: bits of MemAccess
   * @throws UcxError ERR_INVALID_PARAM
   */
  begin(kind: RequestKind, protocol: string, given: GivenMemory<LocalMemory>, access: number): UcpRequest | undefined {
    const request = this.#begin(kind, protocol);
    if (request === undefined) return undefined;
    try {
      this.#init(request, given, access);
    } catch (error) {
      this.#requests.discard(request);
      throw error;
    }
    return request;
  }

  /** Like {@link begin}, for a put or get whose range was checked and whose memory libucp knows. */
  beginKnown(protocol: string, local: LocalMemory, offset: number, byteLength: number): UcpRequest | undefined {
    checkKept(local);
    const request = this.#begin(RequestKind.SEND, protocol);
    if (request !== undefined) this.#initKnown(request, local, offset, byteLength);
    return request;
  }

  #begin(kind: RequestKind, protocol: string): UcpRequest | undefined {
    const request = this.#requests.begin(kind, protocol);
    if (request !== undefined) request.transport = TRANSPORT;
    return request;
  }

  #init(request: UcpRequest, given: GivenMemory<LocalMemory>, access: number): void {
    const { local, localOffset, byteLength } = given;
    if (!isList(local)) {
      checkLocal(this.#owner, given as LocalRange<LocalMemory>, access);
      if (isKnown(local)) {
        checkKept(local);
        this.#initKnown(request, local, localOffset, byteLength);
        if (this.#needsHandle(local, byteLength)) this.#register(request);
        return;
      }
    }
    const pieces = piecesOf<LocalMemory>(this.#owner, given, access);
    for (const { memory } of pieces) checkKept(memory);
    const bytes = bytesOf(pieces);
    this.#take(request, local, bytes);
    if (bytes === 0) return;
    if (pieces.every(({ memory }) => isHost(memory))) {
      this.#initList(request, pieces);
    } else {
      request.count = 1;
      request.address = this.#initDatatype(request, pieces, bytes);
    }
  }

  #initKnown(request: UcpRequest, local: LocalMemory, offset: number, byteLength: number): void {
    this.#take(request, local, byteLength);
    if (!(local instanceof Uint8Array)) this.#requests.parameters.setMemh(local.operationMemh);
    if (!isHost(local)) this.#requests.parameters.setMemoryType(this.#owner.access.memoryType);
    request.address = addressIn(local, offset);
    request.count = byteLength;
  }

  #needsHandle(local: LocalMemory, byteLength: number): boolean {
    const isMapped = !(local instanceof Uint8Array) && local.operationMemh !== 0;
    return !isMapped && isHost(local) && this.#registrations.needs(byteLength);
  }

  #register(request: UcpRequest): void {
    const registration = this.#registrations.register(request.address, request.count);
    if (registration === undefined) return;
    this.#requests.parameters.setMemh(registration.memh);
    request.registration = registration;
  }

  /**
   * The address of contiguous host memory; -1 for other memory, for a message that needs a memory handle, and for invalid memory, whose error {@link
   * begin} throws.
   */
  plainAddress(local: LocalBuffer, offset: number, byteLength: number): number {
    const isRange = Number.isSafeInteger(offset) && Number.isSafeInteger(byteLength) && offset >= 0 && byteLength >= 0;
    if (!isRange) return -1;
    if (isBytes(local)) {
      if (this.#registrations.needs(byteLength)) return -1;
      if (offset + byteLength > local.length || isResizable(local.buffer)) return -1;
      return local.length === 0 ? 0 : addressOf(local) + offset;
    }
    if (!OwnedMemory.isGenuine(local)) return -1;
    const isPlain = local.mapped && local.bytes?.length === local.byteLength && (local.access & LOCAL) === LOCAL;
    const isUsable = local.owner === this.#owner && isPlain;
    if (!isUsable || this.#needsHandle(local, byteLength)) return -1;
    return offset + byteLength <= local.byteLength ? local.ucpAddress + offset : -1;
  }

  /** Checks local memory for an operation that ends without using it. @throws UcxError ERR_INVALID_PARAM */
  check(given: GivenMemory<LocalMemory>, access: number): void {
    piecesOf<LocalMemory>(this.#owner, given, access);
  }

  #take(request: UcpRequest, local: LocalBuffer, byteLength: number): void {
    request.pin(local, byteLength);
  }

  /** The list exists as long as the request. */
  #initList(request: UcpRequest, pieces: readonly Piece<LocalMemory>[]): void {
    const used = pieces.filter(({ byteLength }) => byteLength > 0);
    const list = allocateScratch(used.length * UCP_DT_IOV.size);
    for (const [index, { memory, offset, byteLength }] of used.entries()) {
      const at = index * UCP_DT_IOV.size;
      list.view.setBigUint64(at + UCP_DT_IOV.at.buffer, BigInt(addressIn(memory, offset)), true);
      list.view.setBigUint64(at + UCP_DT_IOV.at.length, BigInt(byteLength), true);
    }
    request.scratch = list;
    this.#requests.parameters.setDatatype(UCP_DATATYPE.IOV);
    request.address = list.address;
    request.count = used.length;
  }
}

/**
 * Checks that memory cannot shrink: V8 unmaps the pages of a buffer that shrinks, even during a write.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkKept(local: LocalMemory): void {
  if (local instanceof Uint8Array && isResizable(local.buffer)) {
    throw invalidParam('local', 'must not be in a resizable ArrayBuffer, which can shrink during the operation', local);
  }
}

/** True for memory that a CPU can access. */
export function isHost(local: LocalMemory): boolean {
  return local instanceof Uint8Array || local.bytes !== undefined;
}

/** True for memory that libucp can access by its address. */
export function isKnown(local: LocalMemory): boolean {
  return local instanceof Uint8Array || local.bytes !== undefined || local.memh !== 0;
}

/** The address of a byte of memory that libucp knows; 0 if the memory is empty. */
export function addressIn(local: LocalMemory, offset: number): number {
  if (!(local instanceof Uint8Array)) return local.ucpAddress + offset;
  return local.length === 0 ? 0 : addressOf(local) + offset;
}

/** Cuts a list to the length of the message. */
export function cutList(list: readonly PieceOf<LocalMemory>[], byteLength: number): readonly PieceOf<LocalMemory>[] {
  let start = 0;
  const pieces = list.map((piece, index) => {
    checkPieceFields(piece, index);
    const { memory, offset = 0 } = piece;
    const bytes = piece.byteLength ?? memory.byteLength - offset;
    const placed = { memory, offset, byteLength: bytes, start };
    start += bytes;
    return placed;
  });
  return cut(pieces, byteLength).map((piece) => ({
    memory: piece.memory,
    offset: piece.offset,
    byteLength: piece.byteLength,
  }));
}
