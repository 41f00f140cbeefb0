import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog, type TestLog } from '../../../../test/fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../../../test/fixtures/transports/own-segments.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { WARNINGS_MAX } from '../../../ucs/debug/limited-log.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Iface, UctEndpoint } from '../../api/iface.ts';
import { Segment } from '../../base/key/segment.ts';
import { NODE_ADDRESS_BYTES } from '../base/table-domain.ts';
import { POSIX_CONFIG_TABLE } from './config.ts';
import {
  DIRECTORY_BYTES,
  DirectoryWord,
  ElementWord,
  RING_HEADER_BYTES,
  RingWord,
  SLOTS,
  SlotState,
  SlotWord,
  slotAt,
} from './layout.ts';
import { PosixMd } from './md.ts';

expectNoLeaks(SEGMENT_PROBES);
const SMALL = { POSIX_FIFO_SIZE: '2', POSIX_SEG_COUNT: '1', POSIX_SEG_SIZE: '64' };
let log: TestLog = createTestLog();
let md: PosixMd;
let receiver: Iface;
let received = 0;

function open(overrides: Readonly<Record<string, string>>): PosixMd {
  return new PosixMd({ log: log.log, clock: systemClock, config: loadConfig([POSIX_CONFIG_TABLE], { overrides }) });
}

beforeEach(() => {
  log = createTestLog();
  md = open(SMALL);
  receiver = md.openIface(md.resources[0]!);
  received = 0;
  receiver.setAmHandler(() => {
    received += 1;
  });
});
afterEach(() => {
  md.close();
  log.expectQuiet();
});

function send(endpoint: UctEndpoint): Status {
  return endpoint.amShort(1, Int32Array.of(1, 2), 2, undefined, 0, 0);
}

/** The directory of the receiver, as a peer attaches it. */
function directory(): Segment {
  return Segment.attach(receiver.address.subarray(NODE_ADDRESS_BYTES), DIRECTORY_BYTES);
}

/** The ring that the sender in slot 0 has announced and the receiver has not attached. */
function firstRing(): Segment {
  const seen = directory();
  const at = (slotAt(0) + SlotWord.NAME) * 4;
  const ring = Segment.attach(seen.bytes.slice(at, at + 32));
  seen.close();
  return ring;
}

describe('an interface', () => {
  it('accepts a limited number of senders, and another one when one of them has closed', () => {
    const endpoints = Array.from({ length: SLOTS }, () => receiver.connect(receiver.address));
    for (const endpoint of endpoints) expect(send(endpoint)).toBe(Status.OK);
    const late = receiver.connect(receiver.address);
    expect(send(late)).toBe(Status.NO_RESOURCE);
    while (receiver.progress() > 0);
    expect(received).toBe(SLOTS);
    expect(send(late)).toBe(Status.NO_RESOURCE);
    endpoints[500]!.close();
    receiver.progress();
    expect(send(late)).toBe(Status.OK);
    receiver.progress();
    expect(received).toBe(SLOTS + 1);
  });

  it('has no messages for more senders than it can have, until one of them closes', () => {
    const endpoints = Array.from({ length: SLOTS }, () => receiver.connect(receiver.address));
    for (const endpoint of endpoints) expect(endpoint.openMessages!()).toBeUndefined();
    const late = receiver.connect(receiver.address);
    expect(late.openMessages!()).toBe('the peer has 1024 senders over posix, which is the maximum');
    // One that has not announced its ring gives its slot back at once, one that has when the receiver has seen it.
    endpoints[500]!.close();
    expect(late.openMessages!()).toBeUndefined();
    expect(send(endpoints[7]!)).toBe(Status.OK);
    receiver.progress();
    endpoints[7]!.close();
    const later = receiver.connect(receiver.address);
    expect(later.openMessages!()).toBeUndefined();
    receiver.progress();
    expect(send(later)).toBe(Status.OK);
  });

  it('frees a slot whose process died before it announced its ring, when slots are scarce', () => {
    const seen = directory();
    for (let slot = 0; slot < SLOTS; slot++) seen.words[slotAt(slot) + SlotWord.OWNER] = 2 ** 30;
    const endpoint = receiver.connect(receiver.address);
    expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    receiver.progress();
    expect(send(endpoint)).toBe(Status.OK);
    seen.close();
  });

  it.each([
    ['a length beyond the element', (words: Int32Array, at: number) => (words[at + ElementWord.LENGTH] = 2 ** 20)],
    ['a negative length', (words: Int32Array, at: number) => (words[at + ElementWord.LENGTH] = -1)],
    [
      'a segment that does not exist',
      (words: Int32Array, at: number) => {
        words[at + ElementWord.INFO] = 0x100;
        words[at + ElementWord.SEGMENT] = 77;
      },
    ],
  ])('rejects a message with %s, and notifies its sender', (_what, spoil) => {
    log.allow(/not read/);
    const endpoint = receiver.connect(receiver.address);
    expect(send(endpoint)).toBe(Status.OK);
    const ring = firstRing();
    spoil(ring.words, RING_HEADER_BYTES / 4);
    while (receiver.progress() > 0);
    receiver.progress();
    expect(received).toBe(0);
    expect(endpoint.check()).toBe(Status.CONNECTION_RESET);
    expect(send(endpoint)).toBe(Status.CONNECTION_RESET);
    endpoint.close();
    receiver.progress();
    const seen = directory();
    expect(seen.words[slotAt(0) + SlotWord.STATE]).toBe(SlotState.EMPTY);
    expect(seen.words[slotAt(0) + SlotWord.OWNER]).toBe(0);
    seen.close();
    ring.close();
  });

  it('does not read a ring of another version', () => {
    log.allow(/not a ring of this version/);
    const endpoint = receiver.connect(receiver.address);
    expect(send(endpoint)).toBe(Status.OK);
    const ring = firstRing();
    ring.words[RingWord.VERSION] = 9;
    receiver.progress();
    expect(endpoint.check()).toBe(Status.CONNECTION_RESET);
    ring.close();
  });

  it('logs warnings for a limited number of the rings that it does not read', () => {
    log.allow(/not a ring of this version|90 more warnings/);
    for (let i = 0; i < 100; i++) {
      const endpoint = receiver.connect(receiver.address);
      expect(send(endpoint)).toBe(Status.OK);
      const ring = firstRing();
      ring.words[RingWord.VERSION] = 9;
      receiver.progress();
      endpoint.close();
      ring.close();
      receiver.progress();
    }
    receiver.close();
    expect(log.records.filter(({ message }) => /not a ring/.test(message))).toHaveLength(WARNINGS_MAX);
  });

  it('ignores the count of a receiver that exceeds the number of sent messages', () => {
    const endpoint = receiver.connect(receiver.address);
    for (let i = 0; i < 2; i++) expect(send(endpoint)).toBe(Status.OK);
    const ring = firstRing();
    for (const tail of [3, -1, 2 ** 31 - 1]) {
      ring.words[RingWord.TAIL] = tail;
      expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    }
    ring.close();
  });

  it('ends the endpoint of a sender that its handler rejects, after its message, and no other', () => {
    const [first, second] = [receiver.connect(receiver.address), receiver.connect(receiver.address)];
    expect([send(first), send(first), send(second)]).toEqual([Status.OK, Status.OK, Status.OK]);
    let rejected = 0;
    receiver.setAmHandler((_, frame) => {
      received += 1;
      if (received > 1) return;
      frame.reject!();
      rejected += 1;
    });
    while (receiver.progress() > 0);
    expect([received, rejected]).toEqual([2, 1]);
    expect([first.check(), second.check()].sort()).toEqual([Status.CONNECTION_RESET, Status.OK]);
    first.close();
    second.close();
    receiver.progress();
    const third = receiver.connect(receiver.address);
    expect(send(third)).toBe(Status.OK);
    while (receiver.progress() > 0);
    expect(received).toBe(3);
  });

  it('does nothing if progress is called by a handler', () => {
    const inner: number[] = [];
    receiver.setAmHandler(() => inner.push(receiver.progress()));
    const endpoint = receiver.connect(receiver.address);
    for (let i = 0; i < 2; i++) expect(send(endpoint)).toBe(Status.OK);
    expect(receiver.progress()).toBe(2);
    expect(inner).toEqual([0, 0]);
  });

  it('removes rings that it has not attached when it closes', () => {
    const other = md.openIface(md.resources[0]!);
    const endpoint = other.connect(receiver.address);
    expect(send(endpoint)).toBe(Status.OK);
    endpoint.close();
    receiver.close();
    receiver.close();
    expect(() => receiver.connect(other.address)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });
});

describe('an interface with more senders than it polls', () => {
  const SENDERS = 40;
  /** Calls of progress after which every sender was reviewed twice. */
  const REVIEWS = SENDERS * 16 * 2;
  let endpoints: UctEndpoint[] = [];

  beforeEach(() => {
    endpoints = Array.from({ length: SENDERS }, () => receiver.connect(receiver.address));
    for (const endpoint of endpoints) expect(send(endpoint)).toBe(Status.OK);
    for (let i = 0; i < REVIEWS; i++) receiver.progress();
    expect(received).toBe(SENDERS);
    received = 0;
  });

  function polled(): number[] {
    const seen = directory();
    const slots = Array.from({ length: SENDERS }, (_, slot) => slot);
    const found = slots.filter((slot) => seen.words[slotAt(slot) + SlotWord.POLLED] === 1);
    seen.close();
    return found;
  }

  it('polls few of the idle ones, and all that have sent since', () => {
    const before = polled();
    expect(before).toHaveLength(8);
    for (const endpoint of endpoints) expect(send(endpoint)).toBe(Status.OK);
    receiver.progress();
    expect(received).toBe(SENDERS);
    expect(polled()).toHaveLength(SENDERS);
    for (let i = 0; i < REVIEWS; i++) receiver.progress();
    expect(polled()).toHaveLength(8);
  });

  it('delivers the messages of each in order', () => {
    const next = new Int32Array(SENDERS);
    const sent = new Int32Array(SENDERS);
    receiver.setAmHandler((_id, frame) => {
      const [sender, sequence] = [frame.words[frame.offset / 4]!, frame.words[frame.offset / 4 + 1]!];
      expect(sequence).toBe(next[sender]);
      next[sender]! += 1;
    });
    let state = 1;
    const random = (end: number): number => {
      state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
      return (state >> 8) % end;
    };
    for (let i = 0; i < 100_000; i++) {
      const sender = random(SENDERS);
      const header = Int32Array.of(sender, sent[sender]!);
      const burst = random(3) > 0;
      if (burst && endpoints[sender]!.amShort(1, header, 2, undefined, 0, 0) === Status.OK) sent[sender]! += 1;
      else receiver.progress();
    }
    while (receiver.progress() > 0);
    expect(next).toEqual(sent);
  });

  it('finds a message whose doorbell was lost', () => {
    const silent = Array.from({ length: SENDERS }, (_, slot) => slot).find((slot) => !polled().includes(slot))!;
    expect(send(endpoints[silent]!)).toBe(Status.OK);
    const seen = directory();
    seen.words[DirectoryWord.DOORBELL_SUMMARY] = 0;
    seen.close();
    for (let i = 0; i < REVIEWS; i++) receiver.progress();
    expect(received).toBe(1);
  });

  it('ignores the doorbells of slots without a ring', () => {
    const seen = directory();
    seen.words.fill(-1, DirectoryWord.DOORBELLS, DirectoryWord.DOORBELLS + SLOTS / 32);
    seen.words[DirectoryWord.DOORBELL_SUMMARY] = -1;
    seen.close();
    expect(receiver.progress()).toBe(0);
    expect(polled()).toHaveLength(SENDERS);
  });

  it('wakes up by the message of one that is not polled', async () => {
    const silent = Array.from({ length: SENDERS }, (_, slot) => slot).find((slot) => !polled().includes(slot))!;
    const woken = receiver.wait(60e9);
    expect(send(endpoints[silent]!)).toBe(Status.OK);
    await woken;
    receiver.progress();
    expect(received).toBe(1);
    expect(send(endpoints[silent]!)).toBe(Status.OK);
    await receiver.wait(60e9);
    receiver.progress();
    expect(received).toBe(2);
  });

  it('releases those that have closed while they were not polled', () => {
    for (const endpoint of endpoints) {
      expect(send(endpoint)).toBe(Status.OK);
      endpoint.close();
    }
    while (receiver.progress() > 0);
    receiver.progress();
    expect(received).toBe(SENDERS);
    const seen = directory();
    for (let slot = 0; slot < SENDERS; slot++) expect(seen.words[slotAt(slot) + SlotWord.OWNER]).toBe(0);
    seen.close();
  });
});

describe('the configuration', () => {
  it.each([
    ['FIFO_SIZE', '100'],
    ['FIFO_SIZE', '1'],
    ['FIFO_ELEM_SIZE', '100'],
    ['SEG_SIZE', '0'],
    ['SEG_SIZE', '2m'],
    ['SEG_COUNT', '512'],
    ['SEG_COUNT', '3'],
  ])('rejects %s=%s, and the error names the field', (field, value) => {
    const call = (): PosixMd => open({ [`POSIX_${field}`]: value });
    expect(call).toThrow(expect.objectContaining({ code: 'ERR_CONFIG_VALUE' }));
    expect(call).toThrow(new RegExp(`UCX_POSIX_${field}`));
  });
});
