/** The ids of the messages of ucp, and how long each is at least. Their contents are in the modules beside this one. */

import { AM_BYTES, AM_RTS_BYTES } from './am.ts';
import { ATOMIC_BYTES } from './atomic.ts';
import { CREDIT_BYTES } from './credit.ts';
import { REPLY_BYTES } from './reply.ts';
import { GET_READY_BYTES, RMA_BYTES } from './rma.ts';
import { RTR_BYTES } from './rtr.ts';
import { STREAM_BYTES } from './stream.ts';
import { TAG_BYTES, TAG_RTS_BYTES } from './tag.ts';
import { ATP_BYTES, DATA_BYTES } from './window.ts';
import { CLOSE_BYTES, WIREUP_BYTES } from './wireup.ts';
import { WITHDRAW_BYTES } from './withdraw.ts';

/** Ids of active messages. A change in their meaning is a new version of the worker address. */
export const MessageId = {
  WIREUP: 0,
  TAG: 1,
  TAG_SYNC: 2,
  TAG_RTS: 3,
  RTR: 4,
  DATA: 5,
  REPLY: 6,
  AM: 7,
  AM_RTS: 8,
  STREAM: 9,
  PUT: 10,
  GET: 11,
  GET_READY: 12,
  ATOMIC: 13,
  CLOSE: 14,
  ATP: 15,
  CREDIT: 16,
  /** An AM behind puts that have failed: it only uses its credit. */
  AM_VOID: 17,
  WITHDRAW: 18,
} as const;

/** Bytes of the header of each id: shorter messages are invalid. */
export const HEADER_BYTES: readonly number[] = [
  WIREUP_BYTES,
  TAG_BYTES,
  TAG_BYTES,
  TAG_RTS_BYTES,
  RTR_BYTES,
  DATA_BYTES,
  REPLY_BYTES,
  AM_BYTES,
  AM_RTS_BYTES,
  STREAM_BYTES,
  RMA_BYTES,
  RMA_BYTES,
  GET_READY_BYTES,
  ATOMIC_BYTES,
  CLOSE_BYTES,
  ATP_BYTES,
  CREDIT_BYTES,
  AM_BYTES,
  WITHDRAW_BYTES,
];
