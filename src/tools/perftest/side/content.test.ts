/** Contents of verified messages: every byte counts, and every message is another one. */

import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Content, type Part } from './traffic.ts';

const PARTS: readonly Part[] = [
  { offset: 0, byteLength: 5 },
  { offset: 16, byteLength: 300 },
];

function memory(): { readonly bytes: Uint8Array; readonly content: Content } {
  const bytes = new Uint8Array(320);
  const content = new Content(
    {
      write: (offset, source) => bytes.set(source, offset),
      read: (offset, target) => target.set(bytes.subarray(offset, offset + target.byteLength)),
    },
    PARTS,
  );
  return { bytes, content };
}

describe('Content', () => {
  it('finds every byte that is wrong', () => {
    const { bytes, content } = memory();
    content.fill(7);
    content.check(7);
    for (const [at, index] of [
      [0, 0],
      [4, 4],
      [16, 5],
      [315, 304],
    ] as const) {
      bytes[at]! ^= 1;
      expect(content.firstDifference(7)).toBe(index);
      expect(() => content.check(7)).toThrow(
        expect.objectContaining({ code: 'ERR_PERFTEST_DATA', message: expect.stringContaining(`byte ${index} `) }),
      );
      bytes[at]! ^= 1;
    }
    // The gaps contain no data.
    bytes[10] = 99;
    content.check(7);
  });

  it('tells messages apart', () => {
    const { content } = memory();
    content.fill(7);
    for (let sequence = 0; sequence <= 255; sequence++) {
      expect(content.firstDifference(sequence) < 0).toBe(sequence === 7);
    }
  });

  it('checks a range', () => {
    const { bytes, content } = memory();
    content.fill(0);
    bytes[2]! ^= 1;
    expect(content.firstDifference(0, { from: 3 })).toBe(-1);
    expect(content.firstDifference(0, { to: 2 })).toBe(-1);
    expect(content.firstDifference(0, { from: 2, to: 3 })).toBe(2);
  });

  it('waits for the bytes before the last one of a put, but not for ever', () => {
    const { bytes, content } = memory();
    const clock = new ManualClock();
    content.fill(3);
    const late = bytes[20]!;
    bytes[20] = late ^ 1;
    bytes[315] = 3;
    let polls = 0;
    content.checkPut(3, clock, {
      progress() {
        polls += 1;
        bytes[20] = late;
        return 0;
      },
    });
    expect(polls).toBe(1);
    bytes[20] = late ^ 1;
    const traffic = {
      progress(): number {
        clock.advance(1e9);
        return 0;
      },
    };
    expect(() => content.checkPut(3, clock, traffic)).toThrow(/byte 9 of put 3/);
  });
});
