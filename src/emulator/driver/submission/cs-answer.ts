/**
 * Results of the CS ioctl. All results except EAGAIN clear the argument block first.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { HL_CS_ARGS } from '../../../uapi/index.ts';
import { highOf } from '../../../ucs/type/int64.ts';

const OUT = HL_CS_ARGS.out.words;
const ARGS_WORDS: number = HL_CS_ARGS.size / 4;
const ALL_ONES = 0xffff_ffff;

/** Accepts a submission: returns the sequence number to wait for. */
export function accept(block: ArgumentBlock, seq: number): number {
  clear(block);
  block.words[OUT.seq] = seq;
  block.words[OUT.seq + 1] = highOf(seq);
  return 0;
}

/** Success without a submission: the sequence number is all ones. */
export function acceptNothing(block: ArgumentBlock): number {
  clear(block);
  block.words[OUT.seq] = ALL_ONES;
  block.words[OUT.seq + 1] = ALL_ONES;
  return 0;
}

/** Rejects a reservation of signals: the block is cleared, the status is the errno. */
export function refuseReservation(block: ArgumentBlock, errno: number): number {
  clear(block);
  block.words[OUT.status] = -errno;
  return -errno;
}

/** Rejects a submission: the block is cleared, the sequence number is all ones, the status is the errno. */
export function refuse(block: ArgumentBlock, errno: number): number {
  acceptNothing(block);
  block.words[OUT.status] = -errno;
  return -errno;
}

function clear(block: ArgumentBlock): void {
  const { words } = block;
  for (let i = 0; i < ARGS_WORDS; i++) words[i] = 0;
}
