/** The results of CS and WAIT_CS in their argument blocks, and the units of time-outs. */

import { describe, expect, it } from 'vitest';
import { HL_CS_ARGS, HL_CS_FLAGS, HL_WAIT_CS_ARGS, HL_WAIT_CS_STATUS_FLAG } from '../../../uapi/index.ts';
import type { CardState } from '../card-state.ts';
import {
  accept,
  acceptNothing,
  latchedFlags,
  reject,
  rejectReservation,
  timeoutOf,
  timeoutSecondsOf,
  writeStatus,
  writeTimestamp,
} from './answers.ts';

/** A block full of ones, longer than the arguments. */
const blockOf = () => ({ address: 0, words: new Uint32Array(32).fill(0xffff_fff7) });
const csOf = ({ words }: ReturnType<typeof blockOf>) => HL_CS_ARGS.out.decode(new DataView(words.buffer));
const waitOf = ({ words }: ReturnType<typeof blockOf>) => HL_WAIT_CS_ARGS.out.decode(new DataView(words.buffer));

describe('an answer of CS', () => {
  const ALL_ONES = 2n ** 64n - 1n;

  it('has the number of the submission, of 64 bits, and nothing of the arguments', () => {
    const block = blockOf();
    expect(accept(block, 2 ** 33 + 5)).toBe(0);
    expect(csOf(block)).toMatchObject({ seq: 2n ** 33n + 5n, status: 0 });
    const words = HL_CS_ARGS.size / 4;
    expect([...block.words.subarray(2, words)].every((word) => word === 0)).toBe(true);
    // What is behind them in the block is of the caller.
    expect(block.words[words]).toBe(0xffff_fff7);
  });

  it('that refuses has the errno as its status, and all ones as the number', () => {
    const block = blockOf();
    expect(reject(block, 22)).toBe(-22);
    expect(csOf(block)).toMatchObject({ seq: ALL_ONES, status: 2 ** 32 - 22 });
    expect(acceptNothing(block)).toBe(0);
    expect(csOf(block)).toMatchObject({ seq: ALL_ONES, status: 0 });
  });

  it('that refuses a reservation has no number', () => {
    const block = blockOf();
    expect(rejectReservation(block, 12)).toBe(-12);
    expect(csOf(block)).toMatchObject({ seq: 0n, status: 2 ** 32 - 12 });
  });
});

describe('an answer of WAIT_CS', () => {
  it('has the status, and a timestamp only if there is one', () => {
    const block = blockOf();
    expect(writeStatus(block, -110, 2)).toBe(-110);
    expect(waitOf(block)).toMatchObject({ status: 2, flags: 0, timestamp_nsec: 0n });
    writeTimestamp(block, 0);
    expect(waitOf(block).flags).toBe(0);
    writeTimestamp(block, 2 ** 40 + 3);
    expect(waitOf(block)).toMatchObject({
      status: 2,
      flags: HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD,
      timestamp_nsec: 2n ** 40n + 3n,
    });
  });

  it('comes after a time-out of microseconds, which is 64 bits and has a limit', () => {
    expect(timeoutOf(Uint32Array.of(0, 1500, 0), 1)).toBe(1_500_000);
    expect(timeoutOf(Uint32Array.of(0, 7, 1), 1)).toBe((2 ** 32 + 7) * 1000);
    expect(timeoutOf(Uint32Array.of(0xffff_ffff, 0xffff_ffff), 0)).toBe(2 ** 50);
  });
});

describe('the time-out of a submission', () => {
  const card = (csTimeoutSeconds: number, skipResetOnTimeout = false) =>
    ({ csTimeoutSeconds, skipResetOnTimeout }) as unknown as CardState;
  const words = new Uint32Array(32);
  words[HL_CS_ARGS.in.words.timeout] = 7;
  const { CUSTOM_TIMEOUT, SKIP_RESET_ON_TIMEOUT, TIMESTAMP } = HL_CS_FLAGS;

  it('is that of the driver, or the custom one if the driver has any', () => {
    expect(timeoutSecondsOf(card(30), words, TIMESTAMP)).toBe(30);
    expect(timeoutSecondsOf(card(30), words, CUSTOM_TIMEOUT | TIMESTAMP)).toBe(7);
    expect(timeoutSecondsOf(card(Number.POSITIVE_INFINITY), words, CUSTOM_TIMEOUT)).toBe(Number.POSITIVE_INFINITY);
  });

  it('resets the card unless the card or the submission forbids it', () => {
    expect(latchedFlags(card(30), TIMESTAMP)).toBe(TIMESTAMP);
    expect(latchedFlags(card(30, true), TIMESTAMP)).toBe(TIMESTAMP | SKIP_RESET_ON_TIMEOUT);
    expect(latchedFlags(card(30), SKIP_RESET_ON_TIMEOUT)).toBe(SKIP_RESET_ON_TIMEOUT);
  });
});
