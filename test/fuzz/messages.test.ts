/**
 * Malformed messages of ucp: headers of every message with hostile values, and frames of any id with random words and bytes, sent to a worker during
 * real traffic. An unauthenticated peer, which only has the address of the worker and the ids of its connections and requests, does not affect
 * connections of others. The peer of a connection can end the operations on it: no crash, no byte written outside of receive buffers, and the worker
 * stays usable.
 */

import { afterEach, describe, expect, it } from 'vitest';
import { MessageId } from '../../src/api/layout/message.ts';
import { writeAtp, writeData, writeRtr } from '../../src/api/layout/rendezvous.ts';
import { type Request, Status } from '../../src/index.ts';
import type { Connection } from '../../src/ucp/base/connection.ts';
import { identitiesOf } from '../../src/ucp/lane/lanes.ts';
import { unpackWorkerAddress } from '../../src/ucp/lane/worker-address.ts';
import { createRandom, type Random } from '../../src/ucs/sys/random.ts';
import type { UctEndpoint } from '../../src/uct/api/iface.ts';
import { openPosix, openTcp } from '../contract/uct/uct-implementations.ts';
import { catches } from '../fixtures/catches.ts';
import { extent, timeLimit } from '../fixtures/extent.ts';
import { nativeWorker } from '../fixtures/libucp/native-engine.ts';
import { type HostileValues, hostileHeader } from '../fixtures/messages/hostile-messages.ts';
import {
  connectionKind,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  type Side,
  usePairs,
} from '../fixtures/pair.ts';
import { createTestLog } from '../fixtures/test-log.ts';

const SEED = Number(process.env['GAUDI_UCX_FUZZ_SEED'] ?? 20_240);
const FRAMES = extent('GAUDI_UCX_FUZZ_FRAMES', 8000, 100_000);
const TIMEOUT_MS = timeLimit(FRAMES);
const IDS = 32;
const WORDS_MAX = 14;
const PAYLOAD_MAX = 600;
/** Tag of the real traffic, which no frame has. */
const TAG = 0x1357_9bdf_0246_8acen;
const SLOT = 40_000;
/** Turns in which the victim makes room for a frame. */
const SEND_TURNS_MAX = 1_000_000;

/** Frames of a run with a planted fault. */
const PLANTED_FRAMES = 200;

/** Plants a fault in memory of the victim. */
type OnProgress = (bytes: Uint8Array) => void;

/** A frame, kept for the message of a failure. */
interface Frame {
  readonly id: number;
  readonly words: Int32Array;
  readonly payload: Uint8Array;
}

/** Words with a meaning in some field: ids of connections and requests, lengths, flags. */
const WORDS = [
  0,
  1,
  2,
  3,
  4,
  5,
  8,
  16,
  24,
  255,
  4096,
  65_535,
  65_536,
  65_537,
  131_073,
  -1,
  -2,
  2 ** 31 - 1,
  -(2 ** 31),
];

/** Lengths and offsets: of transfers, just outside of memory, and those that no memory has. */
const LENGTHS = [
  0,
  1,
  8,
  10,
  4096,
  65_536,
  SLOT,
  3 * SLOT,
  3 * SLOT + 1,
  2 ** 31,
  2 ** 32 + 8,
  2 ** 53 - 1,
  2 ** 64 - 2048,
];

/** The words of a frame: half of them are a header of that id with hostile values, the others any words. */
function wordsOf(random: Random, id: number, to: number, waiting: readonly number[]): Int32Array {
  const word = (): number => (random.below(4) === 0 ? random.nextU32() | 0 : WORDS[random.below(WORDS.length)]!);
  const request = (): number =>
    waiting.length > 0 && random.below(2) === 0 ? waiting[random.below(waiting.length)]! : word();
  const values: HostileValues = {
    word,
    request,
    length: () => (random.below(4) === 0 ? word() : LENGTHS[random.below(LENGTHS.length)]!),
    payloadBytes: () => (random.below(2) === 0 ? random.below(PAYLOAD_MAX) : word()),
    operand: () => BigInt(word()) & 0xffff_ffff_ffff_ffffn,
  };
  const header = random.below(2) === 0 ? hostileHeader(id, to, values) : undefined;
  if (header !== undefined) return header;
  const words = Int32Array.from({ length: random.below(WORDS_MAX + 1) }, word);
  if (words.length > 0) words[0] = to;
  if (words.length > 1) words[1] = request();
  return words;
}

/** A frame for a connection that does not exist, or for one of `connections` and the requests that wait on it. */
function frameOf(random: Random, snippets: readonly Uint8Array[], connections: readonly Connection[]): Frame {
  // Rarely, because the end of a connection ends its test.
  const any = random.below(IDS);
  const id = any === MessageId.CLOSE && random.below(20) > 0 ? MessageId.REPLY : any;
  const connection = connections[random.below(connections.length + 1)];
  // Real connections have small generations.
  const to = connection?.id ?? (random.below(2) === 0 ? 0 : (0x4000_0000 + random.nextU32() / 8) | 0);
  const words = wordsOf(random, id, to, [...(connection?.waiting.keys() ?? [])]);
  const snippet = snippets[random.below(snippets.length)]!.slice();
  const choice = random.below(4);
  if (choice === 0) return { id, words, payload: new Uint8Array(0) };
  if (choice === 1) return { id, words, payload: random.bytes(random.below(PAYLOAD_MAX)) };
  if (choice === 2 && snippet.byteLength > 0) snippet[random.below(snippet.byteLength)]! ^= 1 << random.below(8);
  return { id, words, payload: snippet };
}

/** Ids of the messages that move long data, and candidates for lengths and offsets of windows. */
const WINDOW_IDS = [MessageId.RTR, MessageId.ATP, MessageId.DATA];
const WINDOW_WORDS = [0, 0, 0, 1, 8, 4096, SLOT - 1, SLOT, SLOT + 1, 65_536, -1];

/** A frame about a window of a transfer in progress: in order or not, inside the memory or not, with valid or invalid keys. */
function windowFrame(random: Random, snippets: readonly Uint8Array[], connections: readonly Connection[]): Frame {
  const connection = connections[random.below(connections.length)];
  const waiting = [...(connection?.waiting.keys() ?? [])];
  const pick = (): number => WINDOW_WORDS[random.below(WINDOW_WORDS.length)]!;
  const payload = snippets[random.below(snippets.length)]!.slice();
  if (random.below(4) === 0 && payload.byteLength > 0) payload[random.below(payload.byteLength)]! ^= 1;
  const id = WINDOW_IDS[random.below(WINDOW_IDS.length)]!;
  const to = connection?.id ?? 1;
  const request = waiting[random.below(waiting.length + 1)] ?? 1;
  const [from, byteLength] = [pick(), pick()];
  if (id === MessageId.DATA) return { id, words: writeData(to, request, from).slice(), payload };
  if (id === MessageId.ATP) {
    return { id, words: writeAtp(to, { request, from, byteLength, flags: pick() }).slice(), payload };
  }
  const targetBytes = [0, payload.byteLength, 24, -1][random.below(4)]!;
  const rtr = { request, peerRequest: pick(), targetBytes, from, byteLength, targetOffset: pick() };
  return { id, words: writeRtr(to, rtr).slice(), payload };
}

/** Sends frames to a worker, until the test has finished. */
interface Attacker {
  /** Sends a frame, and drives the victim when its ring is full. */
  send(frame: Frame, drive: () => void): Status;
  /** Why its connection has ended; OK while it has not. */
  readonly failure: Status;
}

/** An interface that has only the address of the worker. */
function unauthenticatedPeerOf(victim: Side, transport: 'posix' | 'tcp'): Attacker {
  const log = createTestLog();
  const { md } = transport === 'posix' ? openPosix(log) : openTcp(log);
  const { entries } = unpackWorkerAddress(victim.worker.address());
  const entry = entries.find((each) => each.transport === transport)!;
  const iface = md.openIface(md.resources.find(({ device }) => device === entry.device)!);
  const endpoint = iface.connect(entry.address);
  afterwards.push(() => {
    endpoint.close();
    md.close();
    log.expectQuiet();
  });
  return senderOver(endpoint, () => iface.progress(), undefined);
}

/** The other end of a connection of the worker. */
function peerOf({ one, two }: Pair): Attacker {
  const [source] = identitiesOf(nativeWorker(one.worker).openIfaces, unpackWorkerAddress(two.worker.address()).entries);
  const own = nativeWorker(one.worker).connections.all.find(
    ({ sources, failure }) => sources.includes(source!) && failure === Status.OK,
  );
  return senderOver(own!.am!, () => 0, own);
}

function senderOver(endpoint: UctEndpoint, progress: () => number, connection: Connection | undefined): Attacker {
  return {
    get failure() {
      return connection?.failure ?? Status.OK;
    },
    send: ({ id, words, payload }, drive) => {
      for (let turn = 0; turn < SEND_TURNS_MAX; turn++) {
        const status = endpoint.amShort(id, words, words.length, payload, 0, payload.byteLength);
        progress();
        if (status !== Status.NO_RESOURCE) return status;
        drive();
      }
      return expect.fail('the victim takes no frames');
    },
  };
}

/** Closes the attackers. */
const afterwards: (() => void)[] = [];

/** Bytes that frames may contain: addresses, keys, headers, nothing. */
function snippetsOf({ one, two }: Pair): Uint8Array[] {
  const foreign = mappedOf(one, 'allocated', 100);
  return [
    new Uint8Array(0),
    one.worker.address(),
    two.worker.address(),
    one.context.packRkey(foreign),
    one.context.packRkey(foreign).subarray(-60),
    new Uint8Array(24),
    new Uint8Array(40).fill(0xff),
  ];
}

/** Memory of the victim, with its expected contents. */
async function guarded(two: Side, kinds: readonly ('registered' | 'allocated' | 'gaudi')[]) {
  return Promise.all(
    kinds.map(async (kind, i) => {
      const memory = mappedOf(two, kind, 3 * SLOT);
      const bytes = pattern(3 * SLOT, i);
      await fill(two, memory, bytes);
      return { memory, bytes };
    }),
  );
}

describe.each(['posix', 'tcp', 'staging, cma and posix', 'all transports'])('frames of no ucp, over %s', (name) => {
  const fixture = usePairs();
  // Before the hooks of the fixture.
  afterEach(() => {
    for (const close of afterwards.splice(0)) close();
  });
  const kinds = connectionKind(name).hasGaudi
    ? (['registered', 'allocated', 'gaudi'] as const)
    : (['registered', 'allocated'] as const);

  /**
   * Sends frames during real traffic.
   * @param onProgress called after every progress of the victim, with memory of it: plants a fault
   */
  async function expectUnaffected(pair: Pair, frames: number, onProgress: OnProgress): Promise<void> {
    fixture.allow(/address|message|connect|left out/i);
    const { one, two, ab } = pair;
    const random = createRandom(SEED);
    const attacker = unauthenticatedPeerOf(two, name === 'tcp' ? 'tcp' : 'posix');
    const snippets = snippetsOf(pair);
    const memories = await guarded(two, kinds);
    const keys = memories.map(({ memory }) => keyFor(ab, two, memory));
    two.worker.setAmHandler(1, (message) => {
      if (message.isRendezvous) message.retain().release();
    });
    let received = 0;
    let sent = 0;
    const wrong: string[] = [];
    const receive = (): void => {
      const target = new Uint8Array(20_000).fill(0xcc);
      const number = received++;
      const byteLength = [10, 300, 9000, 19_000][number % 4]!;
      const result = two.worker.tagRecvNbx(target, 8, 19_900, TAG, undefined, {
        noImmediateCompletion: true,
        callback: (request, status) => {
          const expected = new Uint8Array(20_000).fill(0xcc);
          expected.set(pattern(byteLength, number), 8);
          if (status !== Status.OK || Buffer.compare(target, expected) !== 0)
            wrong.push(`message ${number}: ${status}`);
          request.free();
        },
      });
      if (typeof result === 'number' && result !== Status.OK) wrong.push(`receive: ${result}`);
    };
    const free = { callback: (request: Request): void => request.free() };
    let last: Frame | undefined;
    const drive = (): void => {
      try {
        two.worker.progress();
        one.worker.progress();
        onProgress(memories[0]!.memory.bytes!);
      } catch (error) {
        expect.fail(`${String(error)} at or before ${JSON.stringify(last)}`);
      }
    };
    for (let i = 0; i < frames; i++) {
      const { all } = nativeWorker(two.worker).connections;
      last = (random.below(6) === 0 ? windowFrame : frameOf)(random, snippets, all);
      expect(attacker.send(last, drive)).toBe(Status.OK);
      if (i % 8 === 0) {
        const byteLength = [10, 300, 9000, 19_000][sent % 4]!;
        const bytes = pattern(byteLength, sent);
        ab.tagSendNbx(bytes, 0, byteLength, TAG, free);
        const at = sent % memories.length;
        const put = pattern(1000, sent);
        ab.putNbx(put, 0, 1000, keys[at]!, SLOT + (sent % 30) * 1000, free);
        memories[at]!.bytes.set(put, SLOT + (sent % 30) * 1000);
        sent += 1;
        receive();
      }
      if (i % 4 === 0) drive();
      if (i % 256 === 255) await new Promise(setImmediate);
    }
    await driveUntil(pair, () => one.worker.requestsInUse + two.worker.requestsInUse === 0);
    const flush = ab.flushNbx({ noImmediateCompletion: true }) as Request;
    await driveUntil(pair, () => flush.isCompleted);
    expect(flush.status).toBe(Status.OK);
    flush.free();
    expect([pair.ab.status, pair.ba.status]).toEqual([Status.OK, Status.OK]);
    expect(wrong).toEqual([]);
    for (const [i, { memory, bytes }] of memories.entries()) await expectContents(two, memory, bytes, kinds[i]);
    for (const key of keys) key.release();
  }

  it('of an unauthenticated peer change nothing for the connections of others', { timeout: TIMEOUT_MS }, async () => {
    await expectUnaffected(await fixture.pair(connectionKind(name)), FRAMES, () => {});
  });

  /**
   * Sends frames over a connection with pending requests of every kind.
   * @param onProgress called after every progress of the victim, with its receive buffers: plants a fault
   */
  async function expectContained(pair: Pair, frames: number, onProgress: OnProgress): Promise<void> {
    fixture.allow(/address|message|connect|peer|left out/i);
    const { one, two } = pair;
    let { ab, ba } = pair;
    const random = createRandom(SEED + 1);
    let attacker = peerOf(pair);
    const snippets = snippetsOf(pair);
    const memories = await guarded(two, kinds);
    const target = new Uint8Array(3 * SLOT).fill(0xcc);
    let settledTwice = 0;
    const seen = new Set<unknown>();
    const receives = new Set<Request>();
    const params = () => ({
      noImmediateCompletion: true,
      userData: {},
      callback: (request: Request): void => {
        if (seen.has(request.userData)) settledTwice += 1;
        seen.add(request.userData);
        receives.delete(request);
        request.free();
      },
    });
    two.worker.setAmHandler(1, (message) => {
      if (!message.isRendezvous) return;
      const kept = message.retain();
      if (kept.byteLength <= SLOT) kept.receiveNbx(target, SLOT, SLOT, params());
      else kept.release();
    });
    let last: Frame | undefined;
    const drive = (): void => {
      try {
        two.worker.progress();
        one.worker.progress();
        onProgress(target);
      } catch (error) {
        expect.fail(`${(error as Error).stack} at or before ${JSON.stringify(last)}`);
      }
    };
    let started = 0;
    for (let i = 0; i < frames; i++) {
      const make = random.below(6) === 0 ? windowFrame : frameOf;
      last = make(random, snippets, nativeWorker(two.worker).connections.all);
      // Messages caused by the frames may end the connection while it waits for room.
      const status = attacker.send(last, drive);
      const failures = [ab.status, ba.status, attacker.failure].filter((failure) => failure !== Status.OK);
      if (failures.length === 0) expect(status).toBe(Status.OK);
      // Also if requests accumulate that no frame has answered.
      if (failures.length > 0 || two.worker.requestsInUse > 400) {
        await Promise.all([ab.close({ force: true }), ba.close({ force: true })]);
        // Receives that no message has matched belong to the worker and outlive the connections.
        for (const receive of receives) receive.cancel();
        ab = one.worker.endpoint(two.worker.address());
        ba = two.worker.endpoint(one.worker.address());
        attacker = peerOf(pair);
      }
      if (i % 16 === 0 && two.worker.requestsInUse < 500) {
        // Requests of every kind that frames may pretend to answer.
        const { memory } = memories[started % memories.length]!;
        const [tag, mask] = [BigInt(random.below(5)), BigInt(random.below(5))];
        const receive = two.worker.tagRecvNbx(target, SLOT, SLOT, tag, mask, params());
        if (typeof receive !== 'number') receives.add(receive);
        ab.tagSendNbx(memories[0]!.bytes, 0, 100, TAG + 7n, { callback: (request) => request.free() });
        ba.tagSendNbx(memory, SLOT, SLOT, TAG, params());
        ba.tagSendSyncNbx(memory, 0, 10, TAG, params());
        ba.amSendNbx(3, undefined, memory, SLOT, SLOT, params());
        ba.streamRecvNbx(target, SLOT, 100, params());
        started += 1;
      }
      if (i % 4 === 0) drive();
      if (i % 256 === 255) await new Promise(setImmediate);
    }
    expect([started > frames / 32, seen.size > started]).toEqual([true, true]);
    await driveIdle(pair, 100);
    // Only the receive buffers have been written.
    expectSame(target.subarray(0, SLOT), new Uint8Array(SLOT).fill(0xcc), 'before the room');
    expectSame(target.subarray(2 * SLOT), new Uint8Array(SLOT).fill(0xcc), 'behind the room');
    // Frames may have ended the connection of the worker to itself, too.
    const own = { ...two, endpoint: two.worker.endpoint(two.worker.address()) };
    for (const [i, { memory, bytes }] of memories.entries()) await expectContents(own, memory, bytes, kinds[i]);
    // The old connection may have been ended by a frame; a new one works.
    two.worker.setAmHandler(1, undefined);
    for (const receive of receives) receive.cancel();
    await ba.close({ force: true });
    await ab.close({ force: true });
    const [forth, back] = [one.worker.endpoint(two.worker.address()), two.worker.endpoint(one.worker.address())];
    const here = new Uint8Array(100_000);
    await Promise.all([
      forth.tagSend(pattern(100_000, 1), { tag: TAG + 1n }),
      two.worker.tagRecv(here, { tag: TAG + 1n }),
    ]);
    expectSame(here, pattern(100_000, 1));
    await Promise.all([back.tagSend(pattern(50, 1), { tag: TAG + 1n }), one.worker.tagRecv(here, { tag: TAG + 1n })]);
    const { staging } = nativeWorker(two.worker).protocols.rendezvous;
    await two.worker.close();
    expect([settledTwice, two.worker.requestsInUse, staging.inUse]).toEqual([0, 0, 0]);
  }

  it('of the peer, for any connection and request, do not corrupt memory and leave a usable worker', {
    timeout: TIMEOUT_MS,
  }, async () => {
    await expectContained(await fixture.pair(connectionKind(name)), FRAMES, () => {});
  });

  it('are noticed if they write a byte, or if progress fails', async () => {
    const write: OnProgress = (bytes) => bytes.fill(0x5a, 0, 1);
    const fail: OnProgress = () => {
      throw new RangeError('a planted failure');
    };
    const unaffected = async (onProgress: OnProgress): Promise<void> =>
      expectUnaffected(await fixture.pair(connectionKind(name)), PLANTED_FRAMES, onProgress);
    await catches(unaffected, write, /byte 0/);
    await catches(unaffected, fail, /RangeError: a planted failure at or before/);
    const contained = async (onProgress: OnProgress): Promise<void> =>
      expectContained(await fixture.pair(connectionKind(name)), PLANTED_FRAMES, onProgress);
    await catches(contained, write, /before the room/);
    await catches(contained, fail, /RangeError: a planted failure.* at or before/s);
  });
});
