/**
 * RTR: the receiver of a rendezvous asks its sender for a window of the message. Senders handle it in rndv/rendezvous.ts.
 *
 *   0     endpoint
 *   1     request of the sender
 *   2     request of the receiver
 *   3     bytes of the key of the target
 *   4, 5  first byte of the window
 *   6, 7  bytes of the window
 *   8, 9  byte of the target at which the message begins; KEY_LIST for a key list
 *         payload: key or key list of the target, the memory that is received into, or nothing; key of the fragment that takes the window, or nothing
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { payloadIn } from './frame.ts';

export const RTR_BYTES = 40;
const RTR = new Int32Array(RTR_BYTES / 4);

/** The fields of an RTR. */
export interface RtrFields {
  readonly request: number;
  readonly peerRequest: number;
  readonly targetBytes: number;
  readonly from: number;
  readonly byteLength: number;
  readonly targetOffset: number;
}

/** Writes the header of an RTR: valid until the next one. */
export function writeRtr(to: number, rtr: RtrFields): Int32Array {
  RTR[0] = to;
  RTR[1] = rtr.request;
  RTR[2] = rtr.peerRequest;
  RTR[3] = rtr.targetBytes;
  RTR[4] = rtr.from | 0;
  RTR[5] = highOf(rtr.from);
  RTR[6] = rtr.byteLength | 0;
  RTR[7] = highOf(rtr.byteLength);
  RTR[8] = rtr.targetOffset | 0;
  RTR[9] = highOf(rtr.targetOffset);
  return RTR;
}

/** Reads an RTR; its keys, behind each other, are valid as long as the frame. */
export function readRtr(frame: AmFrame): RtrFields & { readonly keys: Uint8Array | undefined } {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    peerRequest: words[at + 2]!,
    targetBytes: words[at + 3]!,
    from: joinWords(words[at + 4]!, words[at + 5]!),
    byteLength: joinWords(words[at + 6]!, words[at + 7]!),
    targetOffset: joinWords(words[at + 8]!, words[at + 9]!),
    keys: payloadIn(frame, RTR_BYTES),
  };
}
