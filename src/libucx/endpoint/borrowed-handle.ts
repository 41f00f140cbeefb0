/**
 * The handle of an endpoint that libucp has created for a sending peer. libucp owns it, and frees it without a callback when the connection to the peer
 * ends (ucp_ep_set_failed: "destroy endpoint which is not exposed to a user").
 */

import { viewAt } from '../../sys/index.ts';
import { joinWords } from '../../ucs/type/int64.ts';

/** Its first field is the worker (struct ucp_ep), until the memory returns to libucp's pool, which links free elements there and belongs to the worker. */
const FIELD_BYTES = 8;

/** Whether a handle is still that of an endpoint. */
export class BorrowedHandle {
  readonly #worker: number;
  readonly #field: Uint32Array;
  /** Whether this version of libucp has the field. */
  readonly #isKnown: boolean;

  /** @param handle in use @param worker its worker */
  constructor(handle: number, worker: number) {
    this.#worker = worker;
    this.#field = new Uint32Array(viewAt(handle, FIELD_BYTES));
    this.#isKnown = this.#value === worker;
  }

  /** True once libucp has freed it, unless it serves another peer by now. */
  get isFreed(): boolean {
    return this.#isKnown && this.#value !== this.#worker;
  }

  get #value(): number {
    return joinWords(this.#field[0]!, this.#field[1]!);
  }
}
