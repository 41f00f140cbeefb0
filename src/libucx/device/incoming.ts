/**
 * A message that is received into memory of cards, at least in part: the pieces that libucp delivers are gathered in fragments, which the cards copy
 * meanwhile. The receive ends when they have.
 */

import { memcpy } from '../../sys/index.ts';
import { eachPart, type Piece } from '../../ucp/api/local-bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import type { LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import { addressIn, isHost } from '../request/buffers.ts';
import type { UcpRequest } from '../request/request.ts';
import type { Staging } from './staging.ts';

/** The message. */
export class IncomingMessage {
  readonly byteLength: number;
  /** Why its bytes could not be written. */
  failure: Status = Status.OK;
  readonly #staging: Staging;
  readonly #pieces: readonly Piece<LocalMemory>[];
  /** What is gathered: a fragment, where its bytes belong, and how many they are. */
  #fragment: UcpMemory | undefined;
  #memory: UcpMemory | undefined;
  #offset = 0;
  #filled = 0;
  #outstanding = 0;
  /** Ended by libucp; its bytes are still being copied. */
  #ended: UcpRequest | undefined;
  #status: Status = Status.OK;

  constructor(staging: Staging, pieces: readonly Piece<LocalMemory>[], byteLength: number) {
    this.#staging = staging;
    this.#pieces = pieces;
    this.byteLength = byteLength;
  }

  /** Takes `[offset, offset + byteLength)` of the message from an address. */
  unpack(offset: number, address: number, byteLength: number): void {
    eachPart(this.#pieces, offset, byteLength, (memory, at, bytes, position) => {
      const from = address + position;
      if (isHost(memory)) memcpy(addressIn(memory, at), from, bytes);
      else if (this.failure === Status.OK) this.#write(memory as UcpMemory, at, bytes, from);
    });
  }

  /**
   * libucp has ended the receive.
   * @returns false when all bytes are where they belong; else the request is ended when they are
   */
  linger(request: UcpRequest, status: Status): boolean {
    this.#flush();
    if (this.#outstanding === 0) return false;
    this.#ended = request;
    this.#status = status;
    return true;
  }

  /** The receive has ended: releases the fragment that is being filled. */
  close(): void {
    if (this.#fragment !== undefined) this.#staging.release(this.#fragment);
    this.#fragment = undefined;
  }

  #copied(fragment: UcpMemory, status: Status): void {
    this.#staging.release(fragment);
    this.#outstanding -= 1;
    if (status < 0) this.failure = status;
    const request = this.#ended;
    if (this.#outstanding === 0 && request !== undefined) this.#staging.schedule(() => request.end(this.#status));
  }

  #write(memory: UcpMemory, offset: number, byteLength: number, address: number): void {
    for (let done = 0; done < byteLength; ) {
      if (!this.#continues(memory, offset + done)) {
        this.#flush();
        this.#begin(memory, offset + done);
      }
      const fragment = this.#fragment;
      if (fragment === undefined) {
        const status = this.#staging.copyNow(true, memory, offset + done, address + done, byteLength - done);
        if (status < 0) this.failure = status;
        return;
      }
      const bytes = Math.min(byteLength - done, fragment.byteLength - this.#filled);
      memcpy(fragment.ucpAddress + this.#filled, address + done, bytes);
      this.#filled += bytes;
      done += bytes;
      if (this.#filled === fragment.byteLength) this.#flush();
    }
  }

  /** The byte comes next behind what is gathered. */
  #continues(memory: UcpMemory, offset: number): boolean {
    return this.#fragment !== undefined && this.#memory === memory && this.#offset + this.#filled === offset;
  }

  #begin(memory: UcpMemory, offset: number): void {
    this.#fragment = this.#staging.fragments.tryAcquire();
    this.#memory = memory;
    this.#offset = offset;
    this.#filled = 0;
  }

  /** Has the card fetch what is gathered. */
  #flush(): void {
    const fragment = this.#fragment;
    if (fragment === undefined) return;
    this.#fragment = undefined;
    this.#outstanding += 1;
    const copy = {
      device: this.#memory!,
      offset: this.#offset,
      fragment,
      fragmentOffset: 0,
      byteLength: this.#filled,
    };
    this.#staging.startCopy(true, copy, (status) => this.#copied(fragment, status));
  }
}
