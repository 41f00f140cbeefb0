/**
 * A message that is received into memory of cards, at least in part: the pieces delivered by libucp are gathered in fragments, which the cards copy
 * meanwhile. The receive ends with the last copy.
 */

import { eachPart } from '../../../api/memory/local.ts';
import { memcpy } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { LocalMemory, UcpMemory } from '../../mem/memory-handle.ts';
import { isHost } from '../../request/buffers.ts';
import type { UcpRequest } from '../../request/request.ts';
import { CopiedMessage } from './copied-message.ts';

/** Contiguous bytes that are gathered in a fragment, and where they belong. */
interface Gathered {
  readonly fragment: UcpMemory;
  readonly memory: UcpMemory;
  readonly offset: number;
  byteLength: number;
}

/** The message. */
export class IncomingMessage extends CopiedMessage {
  #gathered: Gathered | undefined;

  /** Receives `[offset, offset + byteLength)` of the message from an address. */
  unpack(offset: number, address: number, byteLength: number): void {
    eachPart(this.pieces, offset, byteLength, (memory, at, bytes, position) => {
      const from = address + position;
      if (isHost(memory)) this.#writeHost(memory, at, bytes, from);
      else if (this.failure === Status.OK) this.#write(memory as UcpMemory, at, bytes, from);
    });
  }

  override settle(_request: UcpRequest, status: Status): Status {
    if (this.#gathered !== undefined) this.staging.release(this.#gathered.fragment);
    this.#gathered = undefined;
    return status >= 0 && this.failure < 0 ? this.failure : status;
  }

  /** Starts the copy of the gathered bytes to the card. */
  protected override finish(): void {
    if (this.#gathered === undefined) return;
    const { fragment, memory, offset, byteLength } = this.#gathered;
    this.#gathered = undefined;
    this.count += 1;
    const copy = { device: memory.node, offset, host: fragment.node, hostOffset: 0, byteLength };
    this.staging.startCopy(true, copy, (status) => this.release(fragment, status));
  }

  #writeHost(memory: LocalMemory, offset: number, byteLength: number, address: number): void {
    const to = this.hostAddress(memory, offset, byteLength);
    if (to !== undefined) memcpy(to, address, byteLength);
  }

  #write(memory: UcpMemory, offset: number, byteLength: number, address: number): void {
    for (let done = 0; done < byteLength; ) {
      const gathered = this.#gatheredAt(memory, offset + done);
      if (gathered === undefined) {
        const status = this.staging.copyNow(true, memory.node, offset + done, address + done, byteLength - done);
        if (status < 0) this.failure = status;
        return;
      }
      const { fragment } = gathered;
      const bytes = Math.min(byteLength - done, fragment.byteLength - gathered.byteLength);
      memcpy(fragment.ucpAddress + gathered.byteLength, address + done, bytes);
      gathered.byteLength += bytes;
      done += bytes;
      if (gathered.byteLength === fragment.byteLength) this.finish();
    }
  }

  /** The gathered bytes that a byte follows, or new ones; undefined if no fragment is available. */
  #gatheredAt(memory: UcpMemory, offset: number): Gathered | undefined {
    const current = this.#gathered;
    if (current?.memory === memory && current.offset + current.byteLength === offset) return current;
    this.finish();
    const fragment = this.staging.fragments.tryAcquire();
    this.#gathered = fragment && { fragment, memory, offset, byteLength: 0 };
    return this.#gathered;
  }
}
