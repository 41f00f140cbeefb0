/** Rings: messages of any length arrive whole and in order, in adjacent segments, and no memory that the receiver has not released is overwritten. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Status } from '../../../../ucs/type/status.ts';
import { TransferCounters } from '../../../base/counters.ts';
import { SEGMENT_NAME_BYTES } from '../../../base/key/segment-name.ts';
import { messageBytesMax, type RingGeometry, readRingGeometry } from '../layout.ts';
import { RingFrame, RingReader, RingWriter } from '../ring.ts';

const HEADER = new Int32Array([7, 8]);

const GEOMETRIES: readonly RingGeometry[] = [
  { elements: 8, elementBytes: 64, segmentBytes: 64, segments: 1 },
  { elements: 32, elementBytes: 64, segmentBytes: 64, segments: 16 },
  { elements: 64, elementBytes: 64, segmentBytes: 128, segments: 32 },
];

/** Contents of the n-th message. */
function contentOf(number: number, byteLength: number): Uint8Array {
  return Uint8Array.from({ length: byteLength }, (_, i) => (number * 31 + i) & 0xff);
}

/** Both ends of a new ring, and the messages between them. */
class Pair implements Disposable {
  readonly writer: RingWriter;
  readonly reader: RingReader;
  readonly sent: Uint8Array[] = [];
  readonly received: Uint8Array[] = [];

  constructor(geometry: RingGeometry) {
    this.writer = new RingWriter(geometry, { directoryName: new Uint8Array(SEGMENT_NAME_BYTES), wakeFd: 0 });
    const { segment } = this.writer;
    expect(readRingGeometry(segment.words, segment.bytes.byteLength)).toEqual(geometry);
    this.reader = new RingReader(segment, geometry, new TransferCounters());
  }

  /** Sends a message of a header and `byteLength` bytes: false if there is no room. */
  send(byteLength: number, isPacked: boolean): boolean {
    const payload = contentOf(this.sent.length, byteLength);
    const whole = new Uint8Array([...new Uint8Array(HEADER.buffer), ...payload]);
    if (isPacked) {
      const packer = {
        pack: ({ bytes, offset, byteLength: room }: { bytes: Uint8Array; offset: number; byteLength: number }) => {
          expect(room).toBeGreaterThanOrEqual(whole.byteLength);
          bytes.set(whole, offset);
          return whole.byteLength;
        },
      };
      if (this.writer.pack(1, packer) < 0) return false;
    } else if (this.writer.push(1, HEADER, HEADER.length, payload, 0, byteLength) !== Status.OK) return false;
    this.sent.push(whole);
    return true;
  }

  poll(): number {
    const count = this.reader.poll((id, frame) => {
      const { bytes, offset, byteLength } = frame;
      expect(id).toBe(1);
      const received = bytes.slice(offset, offset + byteLength);
      // Without the header and with it, so that messages of one slot ask for different parts.
      const skipped = this.received.length % 3 === 0 ? HEADER.byteLength : 0;
      expect(frame.part!(offset + skipped, byteLength - skipped)).toEqual(received.subarray(skipped));
      this.received.push(received);
    });
    return count < 0 ? -1 - count : count;
  }

  [Symbol.dispose](): void {
    this.writer.segment.close();
  }
}

it('gives the part of a message that is requested, whichever part was cached before', () => {
  const bytes = contentOf(1, 64);
  const frame = new RingFrame(bytes, new Int32Array(bytes.buffer), '');
  const places = [
    [0, 0, 16],
    [0, 16, 16],
    [0, 16, 24],
    [1, 16, 16],
    [0, 16, 24],
    [0, 0, 16],
  ] as const;
  for (const [slot, start, byteLength] of places) {
    frame.slot = slot;
    expect(frame.part(start, byteLength)).toEqual(bytes.subarray(start, start + byteLength));
  }
  const kept = frame.part(0, 16);
  expect(frame.part(0, 16)).toBe(kept);
});

describe.each(GEOMETRIES)('a ring of $elements elements and $segments segments of $segmentBytes bytes', (geometry) => {
  const payloadMax = messageBytesMax(geometry) - HEADER.byteLength;

  it('carries messages of every length in order', () => {
    const step = fc.oneof(
      fc.record({ byteLength: fc.integer({ min: 0, max: payloadMax }), isPacked: fc.boolean() }),
      fc.constant(undefined),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        using pair = new Pair(geometry);
        for (const message of steps) {
          if (message === undefined) pair.poll();
          else if (!pair.send(message.byteLength, message.isPacked)) {
            // A refused message has room once the receiver has taken and released everything.
            while (pair.poll() > 0);
            expect(pair.send(message.byteLength, message.isPacked)).toBe(true);
          }
        }
        while (pair.poll() > 0);
        expect(pair.received).toEqual(pair.sent);
      }),
      { numRuns: 50 },
    );
  });

  it('refuses messages while it is full, and takes the longest again after that', () => {
    using pair = new Pair(geometry);
    for (let round = 0; round < 5; round++) {
      while (pair.send(payloadMax, round % 2 === 0));
      expect(pair.writer.wantRoom()).toBe(true);
      while (pair.poll() > 0);
      expect(pair.writer.wantRoom()).toBe(false);
    }
    expect(pair.received).toEqual(pair.sent);
  });

  it('refuses an element whose message would end behind the last segment', () => {
    using pair = new Pair(geometry);
    expect(pair.send(payloadMax, false)).toBe(true);
    const { words } = pair.writer.segment;
    const element = 256 / 4;
    words[element + 3] = geometry.segments - 1;
    words[element + 2] = geometry.segmentBytes + 1;
    expect(pair.poll()).toBe(0);
    expect(pair.reader.corrupt).toBe(true);
  });
});
