/**
 * Layout of a directory: where the senders to one interface announce their rings. The receiver's side is directory.ts, a sender's side sender-slot.ts.
 *
 * A sender claims a slot by storing its pid in OWNER, writes the name of its ring and sets STATE to READY; when it closes, to CLOSED. Only the receiver
 * frees slots. It marks a ring that it cannot read as REFUSED until the sender closes. Every change increments CHANGES, which the receiver polls.
 */

/** Maximum number of senders to one interface at a time; further ones get NO_RESOURCE until a slot is free. */
export const SLOTS = 1024;
const SLOT_WORDS = 16;
const HEADER_WORDS = 64;
/** Bytes of a directory. */
export const DIRECTORY_BYTES: number = (HEADER_WORDS + SLOTS * SLOT_WORDS) * 4;
export const DIRECTORY_VERSION = 1;

/** Words of the header, in cache lines by writer. SCARCE: 1 if a sender found no free slot. */
export const DirectoryWord = { VERSION: 0, CHANGES: 16, SCARCE: 17, ATTENTION: 32 } as const;

/** Values of ATTENTION, for senders. */
export const Attention = { AWAKE: 0, SLEEPING: 1, CLOSED: 2 } as const;

/** Words of a slot; NAME is the packed name of the ring. */
export const SlotWord = { OWNER: 0, STATE: 1, NAME: 4 } as const;

/** States of a slot. */
export const SlotState = { EMPTY: 0, READY: 1, CLOSED: 2, REFUSED: 3 } as const;

/** Index of the first word of a slot. */
export function slotAt(slot: number): number {
  return HEADER_WORDS + slot * SLOT_WORDS;
}

/** Path of the pipe that wakes the owner of a directory. */
export function wakePath(directoryPath: string): string {
  return `${directoryPath}.wake`;
}
