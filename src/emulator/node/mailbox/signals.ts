/**
 * The words by which client and server of a mailbox notify each other: sequence numbers of slot 0, rings of the other slots, flags of a side that sleeps. What
 * they announce is in request.ts and answer.ts, and must be written before.
 */

import {
  ASYNC_SLOTS,
  answerWord,
  CLIENT_SLEEPING,
  POSTED,
  POSTED_RING,
  requestWord,
  SERVER_SLEEPING,
  SETTLED,
  SETTLED_RING,
} from './layout.ts';

const REQUESTED: number = requestWord(0);
const ANSWERED: number = answerWord(0);

/** Offset in bytes of the word on which a client sleeps: the sequence number of the answer in slot 0. */
export const ANSWERED_OFFSET: number = ANSWERED * 4;

/** Makes the request in slot 0 visible to the server. */
export function announceRequest(mailbox: Int32Array, sequence: number): void {
  Atomics.store(mailbox, REQUESTED, sequence);
}

/** Sequence number of the last request in slot 0. */
export function requestedSequence(mailbox: Int32Array): number {
  return Atomics.load(mailbox, REQUESTED);
}

/** Makes the answer in slot 0 visible to the client. */
export function announceAnswer(mailbox: Int32Array, sequence: number): void {
  Atomics.store(mailbox, ANSWERED, sequence);
}

/** Sequence number of the last answer in slot 0. */
export function answeredSequence(mailbox: Int32Array): number {
  return Atomics.load(mailbox, ANSWERED);
}

/** Makes the request in another slot visible to the server. @returns the number of posted requests, `posted` of which were before it */
export function postSlot(mailbox: Int32Array, posted: number, slot: number): number {
  mailbox[POSTED_RING + (posted & (ASYNC_SLOTS - 1))] = slot;
  const count = (posted + 1) | 0;
  Atomics.store(mailbox, POSTED, count);
  return count;
}

/** Number of posted requests; wraps. */
export function postedCount(mailbox: Int32Array): number {
  return Atomics.load(mailbox, POSTED);
}

/** Slot of the nth posted request. */
export function postedSlot(mailbox: Int32Array, n: number): number {
  return mailbox[POSTED_RING + (n & (ASYNC_SLOTS - 1))]!;
}

/** Makes the answer in another slot visible to the client. @returns the number of settled requests, `settled` of which were before it */
export function settleSlot(mailbox: Int32Array, settled: number, slot: number): number {
  mailbox[SETTLED_RING + (settled & (ASYNC_SLOTS - 1))] = slot;
  const count = (settled + 1) | 0;
  Atomics.store(mailbox, SETTLED, count);
  return count;
}

/** Number of settled requests; wraps. */
export function settledCount(mailbox: Int32Array): number {
  return Atomics.load(mailbox, SETTLED);
}

/** Slot of the nth settled request. */
export function settledSlot(mailbox: Int32Array, n: number): number {
  return mailbox[SETTLED_RING + (n & (ASYNC_SLOTS - 1))]!;
}

/** Sets the flag that requires the client to ring the doorbell. */
export function setServerSleeping(mailbox: Int32Array, sleeping: boolean): void {
  Atomics.store(mailbox, SERVER_SLEEPING, sleeping ? 1 : 0);
}

/** Whether the server has to be woken. */
export function isServerSleeping(mailbox: Int32Array): boolean {
  return Atomics.load(mailbox, SERVER_SLEEPING) !== 0;
}

/** Sets the flag that requires the server to wake the client after an answer in slot 0. */
export function setClientSleeping(mailbox: Int32Array, sleeping: boolean): void {
  Atomics.store(mailbox, CLIENT_SLEEPING, sleeping ? 1 : 0);
}

/** Whether the client has to be woken. */
export function isClientSleeping(mailbox: Int32Array): boolean {
  return Atomics.load(mailbox, CLIENT_SLEEPING) !== 0;
}
