/**
 * Detects whether libucp has freed an endpoint that it created for a sending peer. libucp owns its handle, and frees it without a callback when the
 * connection ends (ucp_ep_set_failed: "destroy endpoint which is not exposed to a user").
 */

import { viewAt } from '../../sys/index.ts';
import { joinWords } from '../../ucs/type/int64.ts';

/** The first field of struct ucp_ep is the worker, until the memory returns to libucp's pool, which stores its link to the next free element there. */
const FIELD_BYTES = 8;

/** A handle that libucp owns. */
export class BorrowedHandle {
  readonly #worker: number;
  readonly #field: Uint32Array;
  /** Whether this version of libucp has the worker in the first field. */
  readonly #isKnown: boolean;

  /** @param handle a handle in use @param worker its worker */
  constructor(handle: number, worker: number) {
    this.#worker = worker;
    this.#field = new Uint32Array(viewAt(handle, FIELD_BYTES));
    this.#isKnown = this.#value === worker;
  }

  /** True once libucp has freed it, unless the memory is already in use for another peer. */
  get isFreed(): boolean {
    return this.#isKnown && this.#value !== this.#worker;
  }

  get #value(): number {
    return joinWords(this.#field[0]!, this.#field[1]!);
  }
}
