/**
 * How the two ends of a connection by socket address recognise each other as ends of this engine, which tell each other when they close: libucp reports a
 * peer that closes and one that is killed alike, and a connection request has no private data of the program.
 *
 * Worker ids that the program has not chosen are marked, and a client sends its marked id. The listener's end then greets it by a message of the engine, and
 * is greeted back. Other UCX programs are sent no such message: they have no marked id.
 */

import type { WorkerOptions } from '../../api/contract/worker.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';

/** Multiplier of the mark: the upper half of a marked id is the lower half times this, modulo 2^32. An odd number, so that all ids differ. */
const MARK = 0x6755_4359;
const HALF_BITS = 32n;

/** The header of messages with the id of close messages, which have none. */
export const Notice = {
  /** The sender is of this engine. */
  GREETING: 1,
  /** The sender has consumed the close message. */
  ACKNOWLEDGEMENT: 2,
} as const;
export type Notice = (typeof Notice)[keyof typeof Notice];

/** A random client id that listeners of this engine recognise. */
export function markedClientId(): bigint {
  return markedWith(new DataView(systemRandomBytes(4).buffer).getUint32(0, true));
}

/** The options of a worker with a marked id, unless the program has chosen one; what is not an object is refused later. */
export function withMarkedId(options: WorkerOptions): WorkerOptions {
  if (typeof options !== 'object' || options === null || options.clientId !== undefined) return options;
  return { ...options, clientId: markedClientId() };
}

/** Whether a client id is marked. Of the random ids of other programs, one in 2^32 is. */
export function isMarked(clientId: bigint): boolean {
  return clientId !== 0n && markedWith(Number(clientId & 0xffff_ffffn)) === clientId;
}

function markedWith(low: number): bigint {
  return (BigInt(Math.imul(low, MARK) >>> 0) << HALF_BITS) | BigInt(low);
}
