/**
 * A message whose bytes are copied between libucp and memory of cards: its pieces, and the request that ends with the last copy. The directions are
 * outgoing.ts and incoming.ts.
 */

import { holdsBytes, hostBytes, type Piece } from '../../../api/memory/local.ts';
import { CountedCompletion } from '../../../api/operation/completion.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { LocalMemory, UcpMemory } from '../../mem/memory-handle.ts';
import { addressIn } from '../../request/buffers.ts';
import type { UcpRequest } from '../../request/request.ts';
import type { Staging } from './staging.ts';

/** The message. Its parts are the fragments that a card is copying, or that wait for it; its failure is the reason why bytes could not be copied. */
export abstract class CopiedMessage extends CountedCompletion {
  /** One part is libucp, until it has ended the message. */
  override count = 1;
  readonly byteLength: number;
  protected readonly staging: Staging;
  protected readonly pieces: readonly Piece<LocalMemory>[];
  /** The request that libucp has ended while its bytes are still being copied. */
  #ended: UcpRequest | undefined;
  #status: Status = Status.OK;

  constructor(staging: Staging, pieces: readonly Piece<LocalMemory>[], byteLength: number) {
    super();
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
    if (this.count === 1) return false;
    this.#ended = request;
    this.#status = status;
    this.complete(Status.OK);
    return true;
  }

  onComplete(): void {
    const request = this.#ended;
    if (request !== undefined) this.staging.schedule(() => request.end(this.#status));
  }

  /** The final status of a request that ends with one. */
  abstract settle(request: UcpRequest, status: Status): Status;

  /** Starts the last copies, or releases unused fragments. */
  protected abstract finish(): void;

  /** The address of host bytes of the message; undefined, which fails it, if their ArrayBuffer was detached: they have no address any more. */
  protected hostAddress(memory: LocalMemory, offset: number, byteLength: number): number | undefined {
    if (holdsBytes(hostBytes(memory), offset, byteLength)) return addressIn(memory, offset);
    if (this.failure === Status.OK) this.failure = Status.INVALID_ADDR;
    return undefined;
  }

  /** Releases a counted fragment, after its copy. */
  protected release(fragment: UcpMemory, status: Status): void {
    this.staging.release(fragment);
    this.complete(status);
  }
}
