/**
 * The bytes of a directory: where the senders to one interface announce their rings. Layout only: the receiver's side is directory.ts,
 * a sender's side sender-slot.ts.
 *
 * A sender claims a slot by putting its pid into OWNER, writes the name of its ring and sets STATE to READY; when it closes, to CLOSED.
 * The receiver alone frees slots; a ring that it cannot read it marks REFUSED until the sender closes. Every change is counted in CHANGES,
 * which the receiver polls.
 */

/** Senders that one interface takes at one time; further ones get NO_RESOURCE until one has gone. */
export const SLOTS = 1024;
const SLOT_WORDS = 16;
const HEADER_WORDS = 64;
/** Bytes of a directory. */
export const DIRECTORY_BYTES: number = (HEADER_WORDS + SLOTS * SLOT_WORDS) * 4;
export const DIRECTORY_VERSION = 1;

/** Words of the header, in cache lines by who writes them. SCARCE: 1 when a sender found no slot. */
export const DirectoryWord = { VERSION: 0, CHANGES: 16, SCARCE: 17, ATTENTION: 32 } as const;

/** What ATTENTION tells those who send. */
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
