/**
 * Layout of a directory: where the senders to one interface announce their rings. The receiver's side is directory.ts, a sender's side peer.ts.
 *
 * A sender claims a slot by storing its pid in OWNER, writes the name of its ring and sets STATE to READY; when it closes, to CLOSED. Only the receiver
 * frees slots. It marks a ring that it cannot read as REFUSED until the sender closes. Every change increments CHANGES, which the receiver polls.
 *
 * The receiver polls the rings of few senders, the active ones, and sets POLLED in their slots. Any other sender sets its bit in DOORBELLS after it has published
 * a message, then the bit of that word in DOORBELL_SUMMARY, the one word that the receiver polls for all of them.
 */

import { unpackIdentity } from '../../base/key/process-identity.ts';
import { type SharedFile, segmentPath } from '../../base/key/segment-name.ts';

/** Maximum number of senders to one interface at a time; further ones get NO_RESOURCE until a slot is free. */
export const SLOTS = 1024;
const SLOT_WORDS = 16;
const HEADER_WORDS = 96;
/** Bytes of a directory. */
export const DIRECTORY_BYTES: number = (HEADER_WORDS + SLOTS * SLOT_WORDS) * 4;
export const DIRECTORY_VERSION = 3;

/** Words of the header, in cache lines by writer. WAKE_FD: descriptor of the wake-up pipe; 0 if it has a path. SCARCE: 1 if a sender found no free slot. */
export const DirectoryWord = {
  VERSION: 0,
  WAKE_FD: 1,
  CHANGES: 16,
  SCARCE: 17,
  ATTENTION: 32,
  DOORBELL_SUMMARY: 48,
  DOORBELLS: 64,
} as const;

/** Values of ATTENTION, for senders. */
export const Attention = { AWAKE: 0, SLEEPING: 1, CLOSED: 2 } as const;

/** Words of a slot. POLLED: 1 while the receiver polls the ring, and no doorbell is needed. NAME: the packed name of the ring. */
export const SlotWord = { OWNER: 0, STATE: 1, POLLED: 2, NAME: 4 } as const;

/** States of a slot. */
export const SlotState = { EMPTY: 0, READY: 1, CLOSED: 2, REFUSED: 3 } as const;

/** Index of the first word of a slot. */
export function slotAt(slot: number): number {
  return HEADER_WORDS + slot * SLOT_WORDS;
}

/** Rings the doorbell of a slot. */
export function ringDoorbell(words: Int32Array, slot: number): void {
  const group = slot >> 5;
  Atomics.or(words, DirectoryWord.DOORBELLS + group, 1 << (slot & 31));
  Atomics.or(words, DirectoryWord.DOORBELL_SUMMARY, 1 << group);
}

/** Takes the doorbells that have rung, and calls `each` with their slots. */
export function takeDoorbells(words: Int32Array, each: (slot: number) => void): void {
  let groups = Atomics.exchange(words, DirectoryWord.DOORBELL_SUMMARY, 0);
  for (; groups !== 0; groups &= groups - 1) {
    const group = lowestBit(groups);
    let slots = Atomics.exchange(words, DirectoryWord.DOORBELLS + group, 0);
    for (; slots !== 0; slots &= slots - 1) each(group * 32 + lowestBit(slots));
  }
}

function lowestBit(bits: number): number {
  return 31 - Math.clz32(bits & -bits);
}

/**
 * The pipe that wakes the owner of a directory.
 * @param folder folder of the directory
 * @param fd see WAKE_FD
 */
export function wakeFile(directoryName: Uint8Array, folder: string, fd: number): SharedFile {
  return { path: wakePath(segmentPath(directoryName, folder)), pid: unpackIdentity(directoryName, 0).pid, fd };
}

/** Path of the pipe beside a directory. */
export function wakePath(directoryPath: string): string {
  return `${directoryPath}.wake`;
}
