/** The limits of a ring: what a hostile sender or receiver writes, the room for messages, and whom the receiver wakes. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import { SEGMENT_PROBES } from '../../../../../test/fixtures/transports/own-segments.ts';
import { Status } from '../../../../ucs/type/status.ts';
import { DeviceType, type IfaceResource } from '../../../api/iface.ts';
import { TransferCounters } from '../../../base/counters.ts';
import { identityText } from '../../../base/iface.ts';
import {
  ElementWord,
  IN_SEGMENT,
  RING_HEADER_BYTES,
  RING_VERSION,
  type RingGeometry,
  RingWord,
  readRingGeometry,
  ringBytes,
  ringDoorbell,
  SLOTS,
  senderOf,
  takeDoorbells,
} from '../layout.ts';
import { RingReader, RingWriter } from '../ring.ts';

expectNoLeaks(SEGMENT_PROBES);
const NAME = Uint8Array.from({ length: 32 }, (_, i) => i + 1);
const SENDER = { directoryName: NAME, wakeFd: 77 };
const EIGHT: RingGeometry = { elements: 8, elementBytes: 64, segmentBytes: 64, segments: 8 };
/** Longest message in an element of {@link EIGHT}. */
const INLINE_BYTES = 48;
const RESOURCE: IfaceResource = {
  transport: 'posix',
  aliases: [],
  device: 'memory',
  deviceType: DeviceType.SHM,
  sysDevice: undefined,
};
const NO_HEADER = new Int32Array(0);

let writer: RingWriter;
let reader: RingReader;
let counters: TransferCounters;
let received: { readonly id: number; readonly bytes: Uint8Array; readonly source: string }[] = [];

function open(geometry: RingGeometry): void {
  writer?.segment.close();
  counters = new TransferCounters();
  writer = new RingWriter(geometry, SENDER);
  reader = new RingReader(writer.segment, geometry, counters);
  received = [];
}

beforeEach(() => open(EIGHT));
afterEach(() => writer.segment.close());

/** Contents of the n-th message, with other bytes than any message near it. */
function contentOf(number: number, byteLength: number): Uint8Array {
  return Uint8Array.from({ length: byteLength }, (_, i) => (number * 37 + i * 3 + 1) & 0xff);
}

function push(number: number, byteLength: number): Status {
  return writer.push(3, NO_HEADER, 0, contentOf(number, byteLength), 0, byteLength);
}

/** One call of the receiver, with its result. */
function poll(): number {
  return reader.poll((id, { bytes, offset, byteLength, source }) => {
    received.push({ id, bytes: bytes.slice(offset, offset + byteLength), source });
  });
}

/** Words of the element with an index, in {@link EIGHT}. */
function elementWord(index: number, word: number): number {
  return RING_HEADER_BYTES / 4 + index * 16 + word;
}

describe('a sender', () => {
  it('has room for as many messages as there are elements', () => {
    const statuses = Array.from({ length: 9 }, (_, i) => push(i, 8));
    expect(statuses).toEqual([...Array(8).fill(Status.OK), Status.NO_RESOURCE]);
    writer.segment.words[RingWord.TAIL] = 1;
    expect([push(8, 8), push(9, 8)]).toEqual([Status.OK, Status.NO_RESOURCE]);
  });

  it('has no room while the receiver counts back', () => {
    for (let i = 0; i < 8; i++) push(i, 8);
    poll();
    expect(writer.wantRoom()).toBe(false);
    writer.segment.words[RingWord.TAIL] = 5;
    expect(writer.wantRoom()).toBe(true);
    writer.segment.words[RingWord.TAIL] = 8;
    expect(writer.wantRoom()).toBe(false);
  });

  it('sends nothing of a packer that returns an impossible length', () => {
    for (const length of [65, -1, 0.5, Number.NaN]) {
      const pack = (): number => length;
      expect(writer.pack(1, { pack })).toBe(Status.INVALID_PARAM);
    }
    expect(push(1, 8)).toBe(Status.OK);
    expect(poll()).toBe(1);
    expect(received.map(({ bytes }) => bytes)).toEqual([contentOf(1, 8)]);
  });

  it('counts segments that it leaves out at the end of the ring', () => {
    open({ elements: 32, elementBytes: 64, segmentBytes: 64, segments: 16 });
    const lengths = [...Array(15).fill(60), 128, 60, 60, 128];
    for (const [number, length] of lengths.entries()) {
      // 15 are processed: then two adjacent segments begin with the first of the ring, and the next message follows them.
      if (number === 15) while (poll() > 0);
      expect(push(number, length)).toBe(Status.OK);
    }
    while (poll() > 0);
    expect(received.map(({ bytes }) => bytes)).toEqual(lengths.map((length, number) => contentOf(number, length)));
  });

  it('asks for room, and is woken once', () => {
    for (let i = 0; i < 8; i++) push(i, 8);
    expect(writer.wantRoom()).toBe(true);
    expect(writer.segment.words[RingWord.WANT]).toBe(1);
    expect(poll()).toBe(-1 - 8);
    expect(writer.segment.words[RingWord.WANT]).toBe(0);
    for (let i = 0; i < 8; i++) expect(push(i, 8)).toBe(Status.OK);
    expect(poll()).toBe(8);
  });

  it('is not woken if nothing has changed', () => {
    expect(writer.wantRoom()).toBe(false);
    expect(poll()).toBe(0);
  });
});

describe('a receiver', () => {
  it('takes at most 32 messages in one call', () => {
    open({ elements: 64, elementBytes: 64, segmentBytes: 64, segments: 8 });
    for (let i = 0; i < 40; i++) expect(push(i, 8)).toBe(Status.OK);
    expect([poll(), poll(), poll()]).toEqual([32, 8, 0]);
  });

  it('releases a quarter of the elements at once, and fewer when there are no more', () => {
    const { words } = writer.segment;
    push(0, 8);
    expect([poll(), words[RingWord.TAIL]]).toEqual([1, 0]);
    expect([poll(), words[RingWord.TAIL]]).toEqual([0, 1]);
    for (let i = 0; i < 2; i++) push(i, 8);
    expect([poll(), words[RingWord.TAIL]]).toEqual([2, 3]);
    push(0, 8);
    expect([poll(), words[RingWord.TAIL]]).toEqual([1, 3]);
  });

  it('stops when it has used a quarter of the bytes in segments, and releases them', () => {
    open({ elements: 32, elementBytes: 64, segmentBytes: 64, segments: 16 });
    for (let i = 0; i < 16; i++) expect(push(i, 64)).toBe(Status.OK);
    const counts = Array.from({ length: 4 }, () => [poll(), writer.segment.words[RingWord.TAIL]]);
    expect(counts).toEqual([
      [4, 4],
      [4, 8],
      [4, 12],
      [4, 16],
    ]);
  });

  it('does not deliver a message again whose handler has thrown', () => {
    for (let i = 0; i < 2; i++) push(i, 8);
    const fail = (): never => {
      throw new Error('of the program');
    };
    expect(() => reader.poll(fail)).toThrow('of the program');
    expect(poll()).toBe(1);
    expect(received.map(({ bytes }) => bytes)).toEqual([contentOf(1, 8)]);
  });

  it('delivers nothing of a sender behind the message that is rejected', () => {
    for (let i = 0; i < 3; i++) push(i, 8);
    let count = 0;
    reader.poll((_, frame) => {
      count += 1;
      frame.reject!();
    });
    expect([count, reader.isRejected, reader.closing, reader.corrupt]).toEqual([1, true, true, false]);
  });

  it('counts messages and their bytes, and names the interface of the sender', () => {
    for (const length of [8, 40, 60]) push(1, length);
    while (poll() > 0);
    const { counters: values } = counters.node(RESOURCE);
    expect(values).toMatchObject({ rx_am: 3, rx_am_bytes: 108 });
    expect(new Set(received.map(({ source }) => source))).toEqual(new Set([identityText(NAME)]));
  });

  it('has ids of five bits only', () => {
    push(0, 8);
    writer.segment.words[elementWord(0, ElementWord.INFO)] = 0xff;
    poll();
    expect(received.map(({ id }) => id)).toEqual([31]);
  });

  it.each([
    ['is one byte longer than its element', { LENGTH: INLINE_BYTES + 1 }],
    ['has a negative length', { LENGTH: -1 }],
    ['is in the segment before the first', { INFO: IN_SEGMENT, SEGMENT: -1, LENGTH: 8 }],
    ['is in the segment behind the last', { INFO: IN_SEGMENT, SEGMENT: 8, LENGTH: 0 }],
    ['ends behind the last segment', { INFO: IN_SEGMENT, SEGMENT: 7, LENGTH: 65 }],
  ] as const)('does not read on if a message %s', (_what, words) => {
    push(0, 8);
    push(1, 8);
    for (const [name, value] of Object.entries(words)) {
      writer.segment.words[elementWord(0, ElementWord[name as keyof typeof ElementWord])] = value;
    }
    expect(poll()).toBe(0);
    expect([received.length, reader.corrupt, reader.closing]).toEqual([0, true, true]);
  });

  it('takes the longest message of an element and of the last segment', () => {
    push(0, INLINE_BYTES);
    push(1, 8);
    const { words } = writer.segment;
    words[elementWord(1, ElementWord.INFO)] = IN_SEGMENT | 5;
    words[elementWord(1, ElementWord.SEGMENT)] = 7;
    words[elementWord(1, ElementWord.LENGTH)] = 64;
    expect(poll()).toBe(2);
    expect(received.map(({ id, bytes }) => [id, bytes.byteLength])).toEqual([
      [3, INLINE_BYTES],
      [5, 64],
    ]);
  });
});

describe('the header of a ring', () => {
  const MEMORY = ringBytes(EIGHT);
  const good = (): Int32Array => {
    const words = new Int32Array(64);
    words[RingWord.VERSION] = RING_VERSION;
    words[RingWord.ELEMENTS] = 8;
    words[RingWord.ELEMENT_BYTES] = 64;
    words[RingWord.SEGMENTS] = 8;
    words[RingWord.SEGMENT_BYTES] = 64;
    return words;
  };

  it('is read if the ring fits exactly', () => {
    expect(readRingGeometry(good(), MEMORY)).toEqual(EIGHT);
    expect(readRingGeometry(good(), MEMORY - 1)).toBeUndefined();
  });

  it.each<readonly [string, Partial<Record<keyof typeof RingWord, number>>]>([
    ['another version', { VERSION: RING_VERSION + 1 }],
    ['more segments than elements', { ELEMENTS: 4 }],
    ['no elements and no segments', { ELEMENTS: 0, SEGMENTS: 0 }],
    ['negative numbers of elements', { ELEMENTS: -(2 ** 31), SEGMENTS: -(2 ** 31) }],
    ['three segments', { SEGMENTS: 3 }],
    ['elements without bytes', { ELEMENT_BYTES: 0 }],
    ['segments without bytes', { SEGMENT_BYTES: 0 }],
    ['segments of half a cache line', { SEGMENT_BYTES: 32 }],
  ])('is refused with %s', (_what, changes) => {
    const words = good();
    for (const [name, value] of Object.entries(changes)) words[RingWord[name as keyof typeof RingWord]] = value;
    expect(readRingGeometry(words, 2 ** 20)).toBeUndefined();
  });

  it('names the directory and the pipe of the sender', () => {
    const { words, bytes } = writer.segment;
    expect(senderOf(words, bytes)).toEqual(SENDER);
  });
});

describe('the doorbells', () => {
  const words = new Int32Array(2048);
  const taken = (): number[] => {
    const slots: number[] = [];
    takeDoorbells(words, (slot) => slots.push(slot));
    return slots;
  };

  it('of each slot ring for that slot, once', () => {
    for (let slot = 0; slot < SLOTS; slot++) {
      ringDoorbell(words, slot);
      expect(taken()).toEqual([slot]);
      expect(taken()).toEqual([]);
    }
  });

  it('of all slots ring together', () => {
    for (let slot = 0; slot < SLOTS; slot++) ringDoorbell(words, slot);
    expect(taken()).toEqual(Array.from({ length: SLOTS }, (_, slot) => slot));
  });
});
