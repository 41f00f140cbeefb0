/**
 * A message whose bytes are copied between libucp and memory of cards: its pieces, the fragments in use, and the request that ends with the last copy. The
 * directions are outgoing.ts and incoming.ts.
 */

import type { Piece } from '../../../ucp/api/memory/local-bytes.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { LocalMemory, UcpMemory } from '../../mem/memory-handle.ts';
import type { UcpRequest } from '../../request/request.ts';
import type { Staging } from './staging.ts';

/** The message. */
export abstract class CopiedMessage {
  readonly byteLength: number;
  /** The reason why its bytes could not be copied. */
  failure: Status = Status.OK;
  protected readonly staging: Staging;
  protected readonly pieces: readonly Piece<LocalMemory>[];
  /** Number of fragments that a card is copying, or that wait for it. */
  protected fragmentsInUse = 0;
  /** The request that libucp has ended while its bytes are still being copied. */
  #ended: UcpRequest | undefined;
  #status: Status = Status.OK;

  constructor(staging: Staging, pieces: readonly Piece<LocalMemory>[], byteLength: number) {
    this.staging = staging;
    this.pieces = pieces;
    this.byteLength = byteLength;
  }

  /**
   * Called when libucp has ended the message and requests no more bytes.
   * @returns false if no copies are in progress; else the request is ended after the last one
   */
  deferEnd(request: UcpRequest, status: Status): boolean {
    this.finish();
    if (this.fragmentsInUse === 0) return false;
    this.#ended = request;
    this.#status = status;
    return true;
  }

  /** Starts the last copies, or releases unused fragments. */
  protected abstract finish(): void;

  /** Releases a counted fragment, after its copy. */
  protected release(fragment: UcpMemory): void {
    this.staging.release(fragment);
    this.fragmentsInUse -= 1;
    const request = this.#ended;
    if (this.fragmentsInUse === 0 && request !== undefined) this.staging.schedule(() => request.end(this.#status));
  }
}
