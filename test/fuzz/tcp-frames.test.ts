/**
 * Peers that violate the protocol of tcp, byte by byte against a live interface: the connection is closed with a logged reason, the process
 * and other connections continue, and no memory is written without permission.
 */

import * as fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { LogLevel } from '../../src/ucs/debug/log.ts';
import { ManualClock } from '../../src/ucs/sys/clock.ts';
import { Status } from '../../src/ucs/type/status.ts';
import type { UctEndpoint } from '../../src/uct/api/iface.ts';
import type { HostMemory } from '../../src/uct/base/host/memory.ts';
import { Identity, PEER_HELLO_BYTES, unpackHello } from '../../src/uct/tcp/connect/hello.ts';
import { FRAME_BODY_BYTES_MAX, FrameType, GETS_MAX, PUT_HEADER_BYTES, PUT_RUN_MAX } from '../../src/uct/tcp/layout.ts';
import { catches } from '../fixtures/catches.ts';
import { extent, timeLimit } from '../fixtures/extent.ts';
import { amFrame, framesOfEachType, getFrame, putFrame, signalFrame } from '../fixtures/transports/tcp-frames.ts';
import { helloTo, keyOf, type RawPeer, TcpInterfaces, type TcpSide } from '../fixtures/transports/tcp-interfaces.ts';

const CANARY = 0xa5;
const NAMED_BYTES = 4096;
const MARGIN_BYTES = 4096;
const HEADER = Int32Array.of(1, 2);
const VIOLATION = /protocol violation by the peer/;
/** The warning for a peer that does not use the protocol. */
const STRANGE = /closed a connection from .*: it/;

/** The resources of a hostile peer: a key, with canaries around its memory. */
interface Target {
  readonly side: TcpSide;
  readonly whole: Uint8Array;
  readonly memory: HostMemory;
  readonly words: readonly number[];
}

function targetOf(side: TcpSide): Target {
  const whole = new Uint8Array(new ArrayBuffer(NAMED_BYTES + 2 * MARGIN_BYTES)).fill(CANARY);
  const memory = side.md.memReg(whole.subarray(MARGIN_BYTES, MARGIN_BYTES + NAMED_BYTES));
  return { side, whole, memory, words: [...keyOf(side.md, memory).words] };
}

/** Nothing outside of the named memory has changed. */
function expectCanaries({ whole }: Target): void {
  const around = [whole.subarray(0, MARGIN_BYTES), whole.subarray(MARGIN_BYTES + NAMED_BYTES)];
  for (const margin of around) expect(margin.every((byte) => byte === CANARY)).toBe(true);
}

/** A run of these headers of puts, followed by what may be their bodies. */
function run(...frames: readonly Uint8Array[]): Uint8Array {
  const count = frames.filter((bytes) => bytes.byteLength === PUT_HEADER_BYTES).length;
  return Buffer.concat([signalFrame(FrameType.PUT_RUN, Math.max(1, count)), ...frames]);
}

function header(bytes: Uint8Array): Uint8Array {
  return bytes.subarray(0, PUT_HEADER_BYTES);
}

/** Puts that these answers are for. */
function total(found: readonly [number, number][]): number {
  return found.reduce((sum, [type, value]) => sum + (type === FrameType.ACK ? value : 1), 0);
}

/** Connections with random bytes. */
const RUNS = extent('GAUDI_UCX_FUZZ_CONNECTIONS', 300, 20_000);
const TIMEOUT_MS = timeLimit(RUNS);

describe('hostile peers of tcp', () => {
  const net = new TcpInterfaces();
  let side: TcpSide;
  let target: Target;
  let witness: TcpSide;
  let endpoint: UctEndpoint;

  beforeEach(async () => {
    net.log.allow(VIOLATION);
    net.log.allow(STRANGE);
    net.log.allow(/more warnings about peers were left out/);
    side = net.open();
    target = targetOf(side);
    witness = net.open();
    endpoint = witness.iface.connect(side.iface.address);
    await expectWitness();
  });

  /** A conforming peer is not affected. */
  async function expectWitness(): Promise<void> {
    const before = side.messages.length;
    await net.until([side, witness], () => endpoint.amShort(31, HEADER, 2, undefined, 0, 0) === Status.OK);
    await net.until([side, witness], () => side.messages.slice(before).some(({ id }) => id === 31));
    expect([endpoint.check(), witness.failed, side.failed]).toEqual([Status.OK, [], []]);
    expectCanaries(target);
  }

  function warnings(): readonly string[] {
    return net.log.records.filter(({ level }) => level <= LogLevel.WARN).map(({ message }) => message);
  }

  /** The peer sends these bytes, and is disconnected for that reason. */
  async function expectClosed(peer: RawPeer, bytes: readonly Uint8Array[], reason: RegExp): Promise<void> {
    peer.write(...bytes);
    await net.until([side], () => peer.isClosed);
    expect(
      warnings().some((message) => reason.test(message)),
      `${warnings().join('\n')} has ${reason}`,
    ).toBe(true);
    await expectWitness();
  }

  /** Received frames without a body, except heartbeats. */
  function answers(peer: RawPeer): [number, number][] {
    const words = new Int32Array(Uint8Array.from(peer.received.subarray(0, peer.received.byteLength & ~7)).buffer);
    const found: [number, number][] = [];
    for (let i = 0; i < words.length; i += 2) {
      if (words[i] !== FrameType.HEARTBEAT) found.push([words[i]!, words[i + 1]!]);
    }
    return found;
  }

  it('that write beside the named memory, or are disconnected without the reason, are noticed', async () => {
    const check = (peer: RawPeer): Promise<void> => expectClosed(peer, [], /uses version 9/);
    await catches(check, { isClosed: true, write: () => {} } as unknown as RawPeer, /has \/uses version 9\//);
    for (const at of [MARGIN_BYTES - 1, MARGIN_BYTES + NAMED_BYTES]) {
      const whole = target.whole.slice();
      whole[at]! ^= 1;
      await catches(expectCanaries, { ...target, whole }, /to be true/);
    }
  });

  describe('that send a hello', () => {
    const full = (): Uint8Array => helloTo(side);

    it.each([
      [
        'by another protocol',
        () => new TextEncoder().encode('GET / HTTP/1.1\r\nHost: here\r\n\r\n'.padEnd(64)),
        /does not use this protocol/,
      ],
      ['by another version', () => edited(full(), 4, 9), /uses version 9/],
      ['with a message length of zero', () => full().fill(0, 40, 44), /maximum message size 0, which/],
      ['with a message length without end', () => full().fill(0xff, 40, 44), /maximum message size 4294967295, which/],
    ])('%s are closed with a reason', async (_name, bytes, reason) => {
      await expectClosed(await net.unauthenticatedPeer(side), [bytes()], reason);
    });

    it('for another interface are refused with the reason', async () => {
      const peer = await net.unauthenticatedPeer(side);
      peer.write(helloTo(side, { receiver: new Uint8Array(16).fill(3) }));
      await net.until([side], () => peer.isClosed);
      expect(unpackHello(peer.take(PEER_HELLO_BYTES))).toMatchObject({ status: Status.UNREACHABLE });
      await expectWitness();
    });

    it('in part, and disconnect, leave nothing behind', async () => {
      for (let length = 0; length < PEER_HELLO_BYTES; length += 7) {
        const peer = await net.unauthenticatedPeer(side);
        peer.write(full().subarray(0, length));
        if (length % 2 === 0) peer.socket.end();
        else peer.socket.resetAndDestroy();
        await net.until([side], () => peer.isClosed);
      }
      await expectWitness();
    });

    it('of any bytes, and with flipped bits, are disconnected or accepted', async () => {
      await fc.assert(
        fc.asyncProperty(fc.integer({ min: 0, max: PEER_HELLO_BYTES * 8 - 1 }), async (bit) => {
          const bytes = full();
          bytes[bit >> 3]! ^= 1 << (bit & 7);
          const peer = await net.unauthenticatedPeer(side);
          peer.write(bytes);
          await net.until([side], () => peer.isClosed || peer.received.byteLength >= PEER_HELLO_BYTES);
          peer.socket.destroy();
        }),
        { numRuns: 60 },
      );
      await expectWitness();
    });

    it('and send nothing else are evicted, the oldest first, and disconnected after CONNECT_TIMEOUT', {
      timeout: 60_000,
    }, async () => {
      net.log.allow(/evicted a connection/);
      const clock = new ManualClock(1e9);
      const busy = net.open({}, clock);
      const peers: RawPeer[] = [];
      for (let i = 0; i < 1100; i++) peers.push(await net.unauthenticatedPeer(busy));
      // Of one address, which has half of the places.
      await net.until([busy], () => peers.filter(({ isClosed }) => isClosed).length === 1100 - 512);
      expect(peers.slice(0, 1100 - 512).every(({ isClosed }) => isClosed)).toBe(true);
      expect(warnings().filter((message) => /come after/.test(message)).length).toBeLessThanOrEqual(10);
      const honest = await net.greeted(busy, new Identity());
      honest.write(amFrame(3, new Uint8Array(8)));
      await net.until([busy], () => busy.messages.length === 1);
      // It was accepted in place of another.
      for (let second = 0; second < 11; second++) {
        clock.advance(1e9);
        for (let round = 0; round < 20; round++) busy.iface.progress();
      }
      await net.until([busy], () => peers.every(({ isClosed }) => isClosed));
      const peer = await net.greeted(busy);
      peer.write(amFrame(3, new Uint8Array(8)));
      await net.until([busy], () => busy.messages.length === 2);
    });
  });

  describe('that were accepted', () => {
    const MAX = 65_536;

    it.each([
      ['a type that is none', () => signalFrame(99, 0), /frame of unknown type 99/],
      ['type zero', () => signalFrame(0, 0), /frame of unknown type 0/],
      ['a message that is too long', () => amFrame(3, new Uint8Array(0), MAX + 1), /message with invalid length 65537/],
      [
        'a message of negative length',
        () => amFrame(3, new Uint8Array(0), -1),
        /message with invalid length 4294967295/,
      ],
      [
        'a put that is too long',
        () => putFrame(target.words, 0, new Uint8Array(0), FRAME_BODY_BYTES_MAX + 1),
        /body with invalid length 1073741825/,
      ],
      [
        'a put of negative length',
        () => putFrame(target.words, 0, new Uint8Array(0), -8),
        /body with invalid length 4294967288/,
      ],
      ['a run of no puts', () => signalFrame(FrameType.PUT_RUN, 0), /run with invalid number of puts 0/],
      [
        'a run of too many puts',
        () => signalFrame(FrameType.PUT_RUN, PUT_RUN_MAX + 1),
        /run with invalid number of puts 31/,
      ],
      [
        'a run of negative length',
        () => signalFrame(FrameType.PUT_RUN, -1),
        /run with invalid number of puts 4294967295/,
      ],
      [
        'a message in a run',
        () => run(amFrame(3, new Uint8Array(0)), amFrame(3, new Uint8Array(0))),
        /frame of type 1 in a run of puts/,
      ],
      ['a run in a run', () => run(signalFrame(FrameType.PUT_RUN, 1)), /frame of type 11 in a run of puts/],
      [
        'a run with a put that is too long',
        () =>
          run(header(putFrame(target.words, 0, new Uint8Array(8))), putFrame(target.words, 0, new Uint8Array(0), -8)),
        /body with invalid length 4294967288/,
      ],
      [
        'an acknowledgement of nothing',
        () => signalFrame(FrameType.ACK, 1),
        /acknowledgement of 1 puts that are not pending/,
      ],
      [
        'an acknowledgement of no put',
        () => signalFrame(FrameType.ACK, 0),
        /acknowledgement of 0 puts that are not pending/,
      ],
      [
        'a negative acknowledgement',
        () => signalFrame(FrameType.ACK, -5),
        /acknowledgement of -5 puts that are not pending/,
      ],
      [
        'a refusal of nothing',
        () => signalFrame(FrameType.NACK, Status.INVALID_ADDR),
        /unexpected NACK: no put is pending/,
      ],
      ['a refusal that is none', () => signalFrame(FrameType.NACK, 3), /NACK with invalid status 3/],
      [
        'an answer that no get waits for',
        () => signalFrame(FrameType.GET_DATA, 8, new Uint8Array(16)),
        /unexpected reply to a get, 8 bytes/,
      ],
      [
        'a get that is too long',
        () => getFrame(target.words, 0, FRAME_BODY_BYTES_MAX + 1),
        /get with invalid length 1073741825/,
      ],
      [
        'a get without end',
        () => getFrame(target.words, 0, 2 ** 64 - 2048),
        /get with invalid length 18446744073709550000/,
      ],
    ])('and send %s are closed with a reason', async (_name, bytes, reason) => {
      await expectClosed(await net.greeted(side), [bytes()], reason);
    });

    it('and write a warning for each of a thousand violations write ten', async () => {
      for (let i = 0; i < 40; i++) {
        const peer = await net.greeted(side, new Identity());
        peer.write(signalFrame(99, 0));
        await net.until([side], () => peer.isClosed);
      }
      expect(warnings().filter((message) => VIOLATION.test(message))).toHaveLength(10);
      await expectWitness();
    });

    it('are refused access beyond their key, and nothing else', async () => {
      const peer = await net.greeted(side);
      const { words } = target;
      const body = new Uint8Array(64).fill(1);
      const gone = targetOf(side);
      side.md.memDereg(gone.memory);
      const bad = [
        putFrame(words, NAMED_BYTES - 63, body),
        putFrame(words, NAMED_BYTES, body),
        putFrame(words, -64, body),
        putFrame(words, 2 ** 53, body),
        putFrame(words, 2 ** 63, body),
        putFrame(gone.words, 0, body),
        ...words.map((_, i) =>
          putFrame(
            words.map((word, j) => (i === j ? word ^ 0x10 : word)),
            0,
            body,
          ),
        ),
        putFrame([0, 0, 0, 0, 0, 0], 0, body),
        putFrame([-1, ...words.slice(1)], 0, body),
      ];
      for (const bytes of bad) peer.write(bytes);
      peer.write(putFrame(words, NAMED_BYTES - 64, body));
      await net.until([side], () => answers(peer).some(([type]) => type === FrameType.ACK));
      const refused = bad.map(() => [FrameType.NACK, Status.INVALID_ADDR]);
      expect(answers(peer)).toEqual([...refused, [FrameType.ACK, 1]]);
      // The same in a run, where good puts stand between those that are refused.
      const good = putFrame(words, NAMED_BYTES - 64, body);
      const mixed = bad.flatMap((bytes) => [bytes, good]).slice(0, PUT_RUN_MAX);
      target.memory.bytes.fill(CANARY);
      peer.take(peer.received.byteLength);
      peer.write(run(...mixed.map(header), ...mixed.map((bytes) => bytes.subarray(PUT_HEADER_BYTES))));
      await net.until([side], () => total(answers(peer)) === mixed.length);
      const refusals = mixed.filter((bytes) => bytes !== good).length;
      expect(answers(peer).filter(([type]) => type === FrameType.NACK)).toHaveLength(refusals);
      expect(target.memory.bytes.subarray(0, -64).every((byte) => byte === CANARY)).toBe(true);
      expect(target.memory.bytes.subarray(-64)).toEqual(body);
      expect(gone.whole.every((byte) => byte === CANARY)).toBe(true);
      await expectWitness();
    });

    it('and put into memory that is unmapped meanwhile write nothing any more', async () => {
      const peer = await net.greeted(side);
      const bytes = putFrame(target.words, 0, new Uint8Array(NAMED_BYTES).fill(1));
      peer.write(bytes.subarray(0, 1040));
      await net.until([side], () => target.memory.bytes[999] === 1);
      side.md.memDereg(target.memory);
      const before = target.whole.slice();
      peer.write(bytes.subarray(1040));
      await net.until([side], () => answers(peer).length === 1);
      expect(answers(peer)).toEqual([[FrameType.NACK, Status.INVALID_ADDR]]);
      expect(target.whole).toEqual(before);
      await expectWitness();
    });

    it('and disconnect within a body leave nothing behind', async () => {
      for (const cut of [8, 39, 40, 41, 1000, 4135]) {
        const peer = await net.greeted(side, new Identity());
        peer.write(putFrame(target.words, 0, new Uint8Array(NAMED_BYTES)).subarray(0, cut));
        peer.socket.end();
        await net.until([side], () => peer.isClosed);
      }
      await expectWitness();
    });

    it('and request more than GETS_MAX without reading are disconnected', async () => {
      const memory = side.md.memReg(new Uint8Array(2 ** 20));
      const words = [...keyOf(side.md, memory).words];
      const peer = await net.greeted(side);
      peer.socket.pause();
      peer.write(...Array.from({ length: GETS_MAX + 16 }, () => getFrame(words, 0, 2 ** 20)));
      await net.until([side], () => warnings().some((message) => /more than 64 pending gets/.test(message)));
      expect(memory.inFlight).toBe(0);
      await expectWitness();
    });

    it('and never read their answers are disconnected at a bound', async () => {
      const small = net.open({ SNDBUF: '4k' });
      const peer = await net.greeted(small);
      peer.socket.pause();
      const batch = Buffer.concat(
        Array.from({ length: 1000 }, () => putFrame([0, 0, 0, 0, 0, 0], 0, new Uint8Array(0))),
      );
      let batches = 0;
      await net.until([small], () => {
        if (peer.socket.writableLength === 0 && batches < 2000) {
          batches += 1;
          peer.socket.write(batch);
        }
        return warnings().some((message) => /without reading the replies/.test(message));
      });
      await expectWitness();
    });

    it('and replay frames of another connection access nothing', async () => {
      const recorded = [
        amFrame(3, new Uint8Array(8)),
        putFrame(target.words, 0, new Uint8Array(64).fill(2)),
        getFrame(target.words, 0, 8),
      ];
      const first = await net.greeted(side);
      first.write(...recorded);
      await net.until([side], () => target.memory.bytes[63] === 2);
      first.socket.destroy();
      side.md.memDereg(target.memory);
      target.memory.bytes.fill(CANARY);
      const second = await net.greeted(side);
      second.write(...recorded);
      await net.until([side], () => second.received.byteLength >= 3 * 8 + 8);
      expect(answers(second).slice(0, 2)).toEqual([
        [FrameType.NACK, Status.INVALID_ADDR],
        [FrameType.GET_DATA, 0],
      ]);
      expect(target.whole.every((byte) => byte === CANARY)).toBe(true);
      await expectWitness();
    });

    it('and send any bytes, or valid frames with flipped bits, affect no other', { timeout: TIMEOUT_MS }, async () => {
      const { words } = target;
      const { BYE, ...others } = framesOfEachType(words);
      const good = Buffer.concat([...Object.values(others), putFrame(words, 0, new Uint8Array(0)), BYE]);
      const flip = fc.record({ at: fc.nat(2000), bit: fc.nat(7) });
      const stream = fc.oneof(
        fc.uint8Array({ maxLength: 3000 }),
        fc.array(flip, { minLength: 1, maxLength: 4 }).map((flips) => {
          const bytes = Buffer.from(good);
          for (const { at, bit } of flips) bytes[at % bytes.byteLength]! ^= 1 << bit;
          return new Uint8Array(bytes);
        }),
      );
      let sender = 0;
      await fc.assert(
        fc.asyncProperty(stream, fc.boolean(), async (bytes, inPieces) => {
          sender = (sender + 1) & 0xff;
          const peer = await net.greeted(side, new Identity());
          const step = inPieces ? 13 : Math.max(bytes.byteLength, 1);
          for (let at = 0; at < bytes.byteLength; at += step) {
            peer.write(bytes.subarray(at, at + step));
            for (let poll = 0; poll < 3; poll++) side.iface.progress();
          }
          peer.socket.end();
          await net.until([side], () => peer.isClosed);
          expectCanaries(target);
        }),
        { numRuns: RUNS },
      );
      await expectWitness();
    });
  });
});

function edited(bytes: Uint8Array, at: number, value: number): Uint8Array {
  bytes[at] = value;
  return bytes;
}
