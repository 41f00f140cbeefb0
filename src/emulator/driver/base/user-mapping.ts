/**
 * A mapping in the address space of a card, for INFO USER_MAPPINGS and fault records. A type only.
 */

/** One mapping of a context, as INFO USER_MAPPINGS lists it. */
export interface UserMapping {
  /** Device virtual address. */
  readonly address: bigint;
  /** Bytes. */
  readonly byteLength: number;
}
