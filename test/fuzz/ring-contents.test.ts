/** Rings of shared memory with arbitrary contents: the reader returns frames inside the ring or none, and refuses an inconsistent geometry. */

import { describe, expect, it } from 'vitest';
import { createRandom, type Random } from '../../src/ucs/sys/random.ts';
import { TransferCounters } from '../../src/uct/base/counters.ts';
import type { Segment } from '../../src/uct/base/key/segment.ts';
import {
  ELEMENT_HEADER_BYTES,
  ElementWord,
  RING_HEADER_BYTES,
  type RingGeometry,
  RingWord,
  readRingGeometry,
  ringBytes,
  segmentsAt,
  writeRingHeader,
} from '../../src/uct/shm/posix/layout.ts';
import { RingReader } from '../../src/uct/shm/posix/ring.ts';
import { catches } from '../fixtures/catches.ts';
import { extent, timeLimit } from '../fixtures/extent.ts';

const SEED = Number(process.env['GAUDI_UCX_FUZZ_SEED'] ?? 20_240);
const ROUNDS = extent('GAUDI_UCX_FUZZ_ROUNDS', 3000, 100_000);
const TIMEOUT_MS = timeLimit(ROUNDS);
const GEOMETRY: RingGeometry = { elements: 8, elementBytes: 64, segments: 4, segmentBytes: 128 };
const MESSAGES_PER_POLL = 32;

/** Numbers that are invalid in many ways, and some valid ones. */
function word(random: Random): number {
  switch (random.below(5)) {
    case 0:
      return random.below(16);
    case 1:
      return random.below(300) - 150;
    case 2:
      return 1 << random.below(32);
    case 3:
      return 0x7fff_ffff - random.below(3);
    default:
      return random.nextU32() | 0;
  }
}

/** A ring as a conforming sender leaves it: some short messages and some in segments. */
function ring(random: Random): { readonly words: Int32Array; readonly bytes: Uint8Array } {
  const words = new Int32Array(ringBytes(GEOMETRY) / 4);
  const bytes = new Uint8Array(words.buffer);
  writeRingHeader(words, bytes, GEOMETRY, { directoryName: new Uint8Array(16), wakeFd: 0 });
  const sent = random.below(GEOMETRY.elements + 1);
  for (let i = 0; i < sent; i++) {
    const at = (RING_HEADER_BYTES + i * GEOMETRY.elementBytes) / 4;
    const inSegment = random.below(2) * 0x100;
    words[at + ElementWord.INFO] = random.below(32) | inSegment;
    words[at + ElementWord.LENGTH] = random.below(inSegment === 0 ? GEOMETRY.elementBytes - ELEMENT_HEADER_BYTES : 128);
    words[at + ElementWord.SEGMENT] = random.below(GEOMETRY.segments);
    words[at + ElementWord.SEQUENCE] = i + 1;
  }
  return { words, bytes };
}

describe('any contents of a ring', () => {
  function checkFrames(Reader: typeof RingReader): void {
    const random = createRandom(SEED);
    const outcomes = { frames: 0, corrupt: 0 };
    for (let round = 0; round < ROUNDS; round++) {
      const { words, bytes } = ring(random);
      const reader = new Reader({ words, bytes } as Segment, GEOMETRY, new TransferCounters());
      for (let change = random.below(4); change > 0; change--) {
        words[RING_HEADER_BYTES / 4 + random.below(words.length - RING_HEADER_BYTES / 4)] = word(random);
      }
      for (let poll = 0; poll < 4; poll++) {
        let handed = 0;
        const count = reader.poll((id, { offset, byteLength }) => {
          handed += 1;
          const isInside = offset >= RING_HEADER_BYTES && byteLength >= 0 && offset + byteLength <= bytes.byteLength;
          if (!isInside || id < 0 || id > 31) expect.fail(`round ${round}: id ${id}, ${byteLength} bytes at ${offset}`);
          // The sender continues to write while a message is handled.
          words[random.below(words.length)] = word(random);
        });
        outcomes.frames += handed;
        if (handed > MESSAGES_PER_POLL || (count < 0 ? -1 - count : count) !== handed) {
          expect.fail(`round ${round}: ${handed} messages, ${count} told`);
        }
        if (reader.corrupt) break;
      }
      if (reader.corrupt) outcomes.corrupt += 1;
    }
    expect(outcomes.frames).toBeGreaterThan(ROUNDS);
    expect(outcomes.corrupt).toBeGreaterThan(ROUNDS / 100);
  }

  function checkGeometries(read: typeof readRingGeometry): void {
    const random = createRandom(SEED);
    let good = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const { words, bytes } = ring(random);
      for (let change = 1 + random.below(2); change > 0; change--) {
        words[RingWord.VERSION + random.below(6)] = word(random);
      }
      const geometry = read(words, bytes.byteLength);
      if (geometry === undefined) continue;
      good += 1;
      const isSane = geometry.segments <= geometry.elements && segmentsAt(geometry) < bytes.byteLength;
      if (!isSane || ringBytes(geometry) > bytes.byteLength) expect.fail(`round ${round}: ${JSON.stringify(geometry)}`);
    }
    expect(good).toBeGreaterThan(0);
  }

  it('give frames inside it, or end it', { timeout: TIMEOUT_MS }, () => checkFrames(RingReader));

  it('give a consistent geometry, or none', { timeout: TIMEOUT_MS }, () => checkGeometries(readRingGeometry));

  it('are noticed if a reader hands out bytes behind it, or believes any geometry', async () => {
    class ReaderBeyondEnd extends RingReader {
      override poll(handler: Parameters<RingReader['poll']>[0]): number {
        return super.poll((id, message) => handler(id, { ...message, offset: ringBytes(GEOMETRY) }));
      }
    }
    await catches(checkFrames, ReaderBeyondEnd, /round \d+: id \d+, \d+ bytes at/);
    await catches(checkGeometries, () => ({ ...GEOMETRY, elements: 1 << 20 }), /round \d+: \{"elements"/);
  });
});
