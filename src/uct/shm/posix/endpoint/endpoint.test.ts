/** Endpoints of posix and the sleep of their interface: bounds of remote memory, what is released, and what ends a sleep on a clock that stands still. */

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import { withoutDescriptors } from '../../../../../test/fixtures/processes/no-descriptors.ts';
import { createTestLog, type TestLog } from '../../../../../test/fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../../../../test/fixtures/transports/own-segments.ts';
import { loadConfig } from '../../../../ucs/config/config.ts';
import { MemoryType } from '../../../../ucs/memory/memory-type.ts';
import { ManualClock } from '../../../../ucs/sys/clock.ts';
import { Status } from '../../../../ucs/type/status.ts';
import { AtomicOperation, type UctEndpoint } from '../../../api/iface.ts';
import type { HostMemory } from '../../../base/host/memory.ts';
import { Segment } from '../../../base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../../base/key/segment-name.ts';
import { NODE_ADDRESS_BYTES } from '../../base/table-domain.ts';
import { POSIX_CONFIG_TABLE } from '../config.ts';
import type { PosixEndpoint, PosixKey } from '../endpoint.ts';
import type { PosixIface } from '../iface.ts';
import { Attention, DIRECTORY_BYTES, DirectoryWord, SLOTS, SlotWord, slotAt } from '../layout.ts';
import { PosixMd } from '../md.ts';
import { Peer } from '../peer.ts';
import { RingWriter } from '../ring.ts';

expectNoLeaks(SEGMENT_PROBES);
const SMALL = { POSIX_FIFO_SIZE: '2', POSIX_SEG_COUNT: '1', POSIX_SEG_SIZE: '64' };
const BYTES = Uint8Array.from({ length: 64 }, (_, i) => i + 1);

let log: TestLog;
let clock: ManualClock;
let md: PosixMd;
let sender: PosixIface;
let receiver: PosixIface;
let received = 0;

function open(overrides: Readonly<Record<string, string>> = {}): PosixMd {
  const config = loadConfig([POSIX_CONFIG_TABLE], { overrides: { ...SMALL, ...overrides } });
  return new PosixMd({ log: log.log, clock, config });
}

beforeEach(() => {
  log = createTestLog();
  clock = new ManualClock(1e9);
  md = open();
  [sender, receiver] = [0, 1].map(() => md.openIface(md.resources[0]!) as PosixIface) as [PosixIface, PosixIface];
  received = 0;
  for (const iface of [sender, receiver]) {
    iface.setAmHandler(() => {
      received += 1;
    });
  }
});
afterEach(() => {
  md.close();
  log.expectQuiet();
});

function connect(): PosixEndpoint {
  return sender.connect(receiver.address) as PosixEndpoint;
}

function send(endpoint: UctEndpoint): Status {
  return endpoint.amShort(1, Int32Array.of(1), 1, undefined, 0, 0);
}

function directoryOf({ address }: PosixIface): Segment {
  return Segment.attach(address.subarray(NODE_ADDRESS_BYTES), DIRECTORY_BYTES);
}

function attentionOf(iface: PosixIface): number {
  const seen = directoryOf(iface);
  const attention = seen.words[DirectoryWord.ATTENTION]!;
  seen.close();
  return attention;
}

/** Takes all slots but `free` of the receiver for another process. */
function takeSlots(free = 0): void {
  const seen = directoryOf(receiver);
  for (let slot = 0; slot < SLOTS - free; slot++) seen.words[slotAt(slot) + SlotWord.OWNER] = process.pid;
  seen.close();
}

function giveSlot(): void {
  const seen = directoryOf(receiver);
  seen.words[slotAt(5) + SlotWord.OWNER] = 0;
  seen.close();
}

function keyed(byteLength: number): { readonly memory: HostMemory; readonly key: PosixKey } {
  const memory = md.memAlloc(byteLength, { memoryType: MemoryType.HOST });
  return { memory, key: keyOf(memory) };
}

function keyOf(memory: HostMemory): PosixKey {
  const packed = new Uint8Array(md.attributes.rkeyPackedBytes);
  md.mkeyPack(memory, packed, 0);
  return md.rkeyUnpack(packed);
}

describe('a put and a get', () => {
  it('of a few bytes arrive at any byte, and not beyond the memory', () => {
    const { memory, key } = keyed(64);
    const endpoint = connect();
    for (let offset = 0; offset <= 8; offset++) {
      memory.bytes.fill(0);
      expect(endpoint.putShort(BYTES, 3, 11, offset, key)).toBe(Status.OK);
      const expected = Array.from({ length: 64 }, (_, i) => (i >= offset && i < offset + 11 ? i - offset + 4 : 0));
      expect([...memory.bytes]).toEqual(expected);
      const back = new Uint8Array(16);
      expect(endpoint.getShort(back, 2, 11, offset, key)).toBe(Status.OK);
      expect([...back]).toEqual([0, 0, ...BYTES.subarray(3, 14), 0, 0, 0]);
    }
    expect([endpoint.putShort(BYTES, 0, 64, 0, key), endpoint.putShort(BYTES, 0, 2, 62, key)]).toEqual([0, 0]);
    const beyond = [endpoint.putShort(BYTES, 0, 2, 63, key), endpoint.getShort(new Uint8Array(2), 0, 2, 63, key)];
    expect(beyond).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
    const local = [endpoint.putShort(BYTES, 63, 2, 0, key), endpoint.getShort(new Uint8Array(2), 1, 2, 0, key)];
    expect(local).toEqual([Status.INVALID_PARAM, Status.INVALID_PARAM]);
  });

  it('of several entries have them one behind the other', () => {
    const { memory, key } = keyed(64);
    const source = md.memReg(BYTES.slice());
    const target = md.memReg(new Uint8Array(64));
    const endpoint = connect();
    const entries = (local: HostMemory) => [
      { memory: local, offset: 5, byteLength: 3 },
      { memory: local, offset: 40, byteLength: 4 },
    ];
    expect(endpoint.putZcopy(entries(source), 57, key)).toBe(Status.OK);
    expect([...memory.bytes.subarray(56)]).toEqual([0, 6, 7, 8, 41, 42, 43, 44]);
    expect(endpoint.getZcopy(entries(target), 57, key)).toBe(Status.OK);
    expect([...target.bytes.subarray(5, 8), ...target.bytes.subarray(40, 44)]).toEqual([6, 7, 8, 41, 42, 43, 44]);
    const beyond = [endpoint.putZcopy(entries(source), 58, key), endpoint.getZcopy(entries(target), 58, key)];
    expect(beyond).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
    expect(sender.stats().counters).toMatchObject({ put: 1, get: 1, bytes_zcopy: 14 });
  });

  it('and an atomic operation need a key that is neither revoked nor released', () => {
    const { memory, key } = keyed(64);
    const other = keyOf(memory);
    const endpoint = connect();
    const call = { operation: AtomicOperation.ADD, wordBytes: 8, value64: 5n, compare64: 0n, result64: 0n } as never;
    const iov = [{ memory: md.memReg(new Uint8Array(8)), offset: 0, byteLength: 8 }];
    const all = (used: PosixKey): Status[] => [
      endpoint.putShort(BYTES, 0, 8, 0, used),
      endpoint.getShort(new Uint8Array(8), 0, 8, 0, used),
      endpoint.putZcopy(iov, 0, used),
      endpoint.getZcopy(iov, 0, used),
      endpoint.atomic(call, 0, used),
    ];
    expect(all(key)).toEqual(Array(5).fill(Status.OK));
    expect([57, 60, 4].map((offset) => endpoint.atomic(call, offset, key))).toEqual(Array(3).fill(Status.INVALID_ADDR));
    expect(sender.stats().counters).toMatchObject({ atomic: 1 });
    key.release();
    key.release();
    expect([all(key), key.live, other.live]).toEqual([Array(5).fill(Status.INVALID_ADDR), false, true]);
    md.memFree(memory);
    expect([all(other), other.live]).toEqual([Array(5).fill(Status.INVALID_ADDR), false]);
  });

  it('reach memory that is registered again, by its own key', () => {
    const { memory } = keyed(64);
    const again = md.memReg(memory);
    expect(connect().putShort(BYTES, 0, 4, 8, keyOf(again))).toBe(Status.OK);
    expect([...memory.bytes.subarray(8, 12)]).toEqual([1, 2, 3, 4]);
  });
});

describe('a message', () => {
  it('has at most the longest length, and is counted', () => {
    const endpoint = connect();
    expect(endpoint.amShort(1, Int32Array.of(1), 1, BYTES, 0, 61)).toBe(Status.INVALID_PARAM);
    expect(endpoint.amShort(1, Int32Array.of(1), 1, BYTES, 0, 60)).toBe(Status.OK);
    receiver.progress();
    receiver.progress();
    const pack = ({ bytes, offset }: { bytes: Uint8Array; offset: number }): number => {
      bytes.fill(3, offset, offset + 20);
      return 20;
    };
    expect(endpoint.amBcopy(2, { pack })).toBe(Status.OK);
    expect(endpoint.amBcopy(2, { pack })).toBe(Status.NO_RESOURCE);
    expect(sender.stats().counters).toMatchObject({ am: 2, bytes_short: 64, bytes_bcopy: 20, no_res: 1 });
  });

  it('without room finds that the receiver has closed', () => {
    const endpoint = connect();
    while (send(endpoint) === Status.OK);
    receiver.close();
    const statuses = Array.from({ length: 256 }, () => send(endpoint));
    expect(statuses.at(-1)).toBe(Status.CONNECTION_RESET);
    expect(statuses.filter((status) => status === Status.NO_RESOURCE).length).toBeGreaterThan(200);
    expect(endpoint.wantRoom()).toBe('room');
  });

  it('of a closed endpoint is cancelled, and its ring is left to the receiver', () => {
    const endpoint = connect();
    expect(send(endpoint)).toBe(Status.OK);
    endpoint.close();
    endpoint.close();
    expect([send(endpoint), endpoint.check()]).toEqual([Status.CANCELED, Status.CANCELED]);
    receiver.progress();
    expect(received).toBe(1);
  });

  it('of an endpoint that waits for a slot uses the ring that it has', () => {
    takeSlots(1);
    const endpoint = connect();
    expect(endpoint.openMessages()).toBeUndefined();
    const count = (): number => readdirSync(SEGMENT_FOLDER).filter((name) => name.includes(`.${process.pid}.`)).length;
    const before = count();
    expect(endpoint.openMessages()).toBeUndefined();
    const late = connect();
    for (let i = 0; i < 3; i++) expect(send(late)).toBe(Status.NO_RESOURCE);
    expect(count()).toBe(before + 1);
  });
});

describe('a folder without space', () => {
  it('is a reason, and one warning for all connections', () => {
    const folder = mkdtempSync(`${SEGMENT_FOLDER}/posix-endpoint-`);
    const other = open({ POSIX_DIR: folder });
    const iface = other.openIface(other.resources[0]!);
    const endpoints = [iface.connect(iface.address), iface.connect(iface.address)];
    const last = iface.connect(iface.address);
    rmSync(folder, { recursive: true });
    log.allow(/cannot send messages through posix/);
    expect(send(last)).toBeLessThan(0);
    for (const endpoint of endpoints) expect(endpoint.openMessages!()).toMatch(/no space for a ring .*ENOENT/);
    expect(log.records.filter(({ message }) => /cannot send messages/.test(message))).toHaveLength(1);
    other.close();
  });
});

describe('a sleep', () => {
  it('is shown to peers while it lasts', async () => {
    expect(attentionOf(receiver)).toBe(Attention.AWAKE);
    const slept = receiver.wait(60e9);
    expect([attentionOf(receiver), clock.nextDeadlineNs]).toEqual([Attention.SLEEPING, 61e9]);
    clock.advance(60e9);
    await slept;
    expect([attentionOf(receiver), clock.pendingTimers]).toEqual([Attention.AWAKE, 0]);
  });

  it('ends by a message of a peer, through its pipe', async () => {
    const endpoint = connect();
    const slept = receiver.wait(60e9);
    expect(send(endpoint)).toBe(Status.OK);
    await slept;
    expect(receiver.progress()).toBe(1);
  });

  it('does not begin with news, and these end that of another caller', async () => {
    const slept = receiver.wait(60e9);
    const endpoint = connect();
    send(endpoint);
    await receiver.wait(60e9);
    await slept;
    expect([attentionOf(receiver), clock.pendingTimers]).toEqual([Attention.AWAKE, 0]);
  });

  it('ends with messages that progress has delivered', async () => {
    send(connect());
    receiver.progress();
    receiver.progress();
    const endpoint = connect();
    const slept = receiver.wait(60e9);
    send(endpoint);
    receiver.progress();
    expect(clock.pendingTimers).toBe(0);
    await slept;
  });

  it('does not begin without a handler, or when the interface is closed, which ends it', async () => {
    const slept = receiver.wait(60e9);
    receiver.close();
    await slept;
    await receiver.wait(60e9);
    sender.setAmHandler(undefined);
    await sender.wait(60e9);
    expect(clock.pendingTimers).toBe(0);
  });

  it('of a sender without room ends when the receiver has made room', async () => {
    const endpoint = connect();
    while (send(endpoint) === Status.OK);
    expect(endpoint.blockedOnSend).toBe(true);
    const slept = sender.wait(60e9);
    expect(clock.nextDeadlineNs).toBe(61e9);
    while (receiver.progress() > 0);
    receiver.progress();
    await slept;
    // The room is there now.
    await sender.wait(60e9);
    expect([endpoint.blockedOnSend, clock.pendingTimers, attentionOf(sender)]).toEqual([false, 0, Attention.AWAKE]);
    // It does not wait for room any more, until it finds none.
    const idle = sender.wait(1e9);
    expect(clock.pendingTimers).toBe(1);
    clock.advance(1e9);
    await idle;
    while (send(endpoint) === Status.OK);
    expect(endpoint.blockedOnSend).toBe(true);
    void sender.wait(60e9);
    expect(clock.pendingTimers).toBe(1);
  });

  it('of a sender without room ends when the receiver closes', async () => {
    const endpoint = connect();
    while (send(endpoint) === Status.OK);
    receiver.progress();
    while (send(endpoint) === Status.OK);
    const slept = sender.wait(60e9);
    receiver.close();
    await slept;
    expect(endpoint.check()).toBe(Status.CONNECTION_RESET);
  });

  it('of a sender without a slot takes 5 ms', async () => {
    takeSlots();
    const endpoint = connect();
    for (let i = 0; i < 3; i++) expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    expect(endpoint.wantRoom()).toBe('unknown');
    const slept = sender.wait(60e9);
    expect(clock.nextDeadlineNs).toBe(1e9 + 5e6);
    giveSlot();
    clock.advance(5e6);
    await slept;
    expect(send(endpoint)).toBe(Status.OK);
    endpoint.close();
    void sender.wait(60e9);
    expect(clock.nextDeadlineNs).toBe(1e9 + 5e6 + 60e9);
  });

  it('is as short as the time until a sender can be attached', async () => {
    log.allow(/messages from process \d+ are delayed/);
    send(connect());
    await withoutDescriptors(() => {
      receiver.progress();
    });
    void receiver.wait(60e9);
    expect(clock.nextDeadlineNs).toBe(1e9 + 5e6);
  });

  it('looks for senders that have died', () => {
    const name = receiver.address.subarray(NODE_ADDRESS_BYTES);
    const peer = Peer.attach(name, SEGMENT_FOLDER);
    const geometry = { elements: 2, elementBytes: 64, segmentBytes: 64, segments: 1 };
    // Its pipe is gone.
    const ring = new RingWriter(geometry, { directoryName: name, wakeFd: 999_999 });
    peer.announce(ring.segment.packedName);
    const seen = directoryOf(receiver);
    receiver.progress();
    expect(seen.words[slotAt(0) + SlotWord.OWNER]).toBe(process.pid);
    void receiver.wait(60e9);
    receiver.progress();
    expect(seen.words[slotAt(0) + SlotWord.OWNER]).toBe(0);
    for (const each of [peer, ring.segment, seen]) each.close();
  });
});

describe('an interface', () => {
  it('that cannot have a pipe leaves nothing behind', async () => {
    for (const left of [1, 2, 3]) {
      await withoutDescriptors(() => {
        expect(() => md.openIface(md.resources[0]!)).toThrow('EMFILE');
      }, left);
    }
  });

  it('keeps nothing of a peer that it has checked, and connects to nothing once it is closed', () => {
    expect(sender.unreachableReason(receiver.address)).toBeUndefined();
    const { address } = receiver;
    receiver.close();
    expect(sender.unreachableReason(address)).toMatch(/the peer has ended/);
    sender.close();
    expect(() => sender.connect(address)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });

  it('closes its endpoints, and forgets those that were closed', () => {
    const [first, second] = [connect(), connect()];
    for (const endpoint of [first, second]) while (send(endpoint) === Status.OK);
    first.close();
    expect([send(first), second.check()]).toEqual([Status.CANCELED, Status.OK]);
    sender.close();
    expect(second.check()).toBe(Status.CANCELED);
  });
});
