/**
 * A message that is received into memory of cards, at least in part: the pieces delivered by libucp are gathered in fragments, which the cards copy
 * meanwhile. The receive ends with the last copy.
 */

import { memcpy } from '../../sys/index.ts';
import { eachPart } from '../../ucp/api/memory/local-bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { addressIn, isHost } from '../request/buffers.ts';
import { CopiedMessage } from './staged/copied-message.ts';

/** The message. */
export class IncomingMessage extends CopiedMessage {
  /** The current fragment, the destination of its bytes, and their number. */
  #fragment: UcpMemory | undefined;
  #memory: UcpMemory | undefined;
  #offset = 0;
  #filled = 0;

  /** Receives `[offset, offset + byteLength)` of the message from an address. */
  unpack(offset: number, address: number, byteLength: number): void {
    eachPart(this.pieces, offset, byteLength, (memory, at, bytes, position) => {
      const from = address + position;
      if (isHost(memory)) memcpy(addressIn(memory, at), from, bytes);
      else if (this.failure === Status.OK) this.#write(memory as UcpMemory, at, bytes, from);
    });
  }

  /** The receive has ended: releases the fragment that is being filled. */
  close(): void {
    if (this.#fragment !== undefined) this.staging.release(this.#fragment);
    this.#fragment = undefined;
  }

  protected override finish(): void {
    this.#flush();
  }

  #write(memory: UcpMemory, offset: number, byteLength: number, address: number): void {
    for (let done = 0; done < byteLength; ) {
      if (!this.#continues(memory, offset + done)) {
        this.#flush();
        this.#begin(memory, offset + done);
      }
      const fragment = this.#fragment;
      if (fragment === undefined) {
        const status = this.staging.copyNow(true, memory.node, offset + done, address + done, byteLength - done);
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

  /** Whether the byte follows the gathered ones. */
  #continues(memory: UcpMemory, offset: number): boolean {
    return this.#fragment !== undefined && this.#memory === memory && this.#offset + this.#filled === offset;
  }

  #begin(memory: UcpMemory, offset: number): void {
    this.#fragment = this.staging.fragments.tryAcquire();
    this.#memory = memory;
    this.#offset = offset;
    this.#filled = 0;
  }

  /** Starts the copy of the gathered bytes to the card. */
  #flush(): void {
    const fragment = this.#fragment;
    if (fragment === undefined) return;
    this.#fragment = undefined;
    this.fragmentsInUse += 1;
    const copy = {
      device: this.#memory!.node,
      offset: this.#offset,
      host: fragment.node,
      hostOffset: 0,
      byteLength: this.#filled,
    };
    this.staging.startCopy(true, copy, (status) => {
      if (status < 0) this.failure = status;
      this.release(fragment);
    });
  }
}
