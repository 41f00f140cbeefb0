/** The contract of active messages: order, sizes, back-pressure, handlers that send, sleeping receivers; every byte compared. */

import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isFailure, Status } from '../../../src/ucs/type/status.ts';
import {
  type AmFrame,
  type AmPacker,
  type Iface,
  IfaceFlag,
  type IovEntry,
  type UctEndpoint,
} from '../../../src/uct/api/iface.ts';
import { fillPattern } from '../../fixtures/pattern.ts';
import { requires } from '../../fixtures/requires.ts';
import { CountingCompletion, driveUntil, type MdSetup, ownBytes, started, UctFixture } from './uct-fixture.ts';

/** Steps without progress after which no further progress is expected: not every step polls everything. */
const QUIET_TURNS = 32;

/** A message as it arrived. */
interface Arrived {
  readonly id: number;
  readonly bytes: Uint8Array;
}

/** Writes the given bytes. */
class BytesPacker implements AmPacker {
  readonly bytes: Uint8Array;
  runs = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  pack(frame: AmFrame): number {
    this.runs += 1;
    expect(frame.offset % 8).toBe(0);
    expect(frame.byteLength).toBeGreaterThanOrEqual(this.bytes.byteLength);
    frame.bytes.set(this.bytes, frame.offset);
    return this.bytes.byteLength;
  }
}

function copyOf(frame: AmFrame): Uint8Array {
  expect(frame.offset % 8).toBe(0);
  expect(frame.words.buffer).toBe(frame.bytes.buffer);
  return frame.bytes.slice(frame.offset, frame.offset + frame.byteLength);
}

function pattern(byteLength: number, seed: number): Uint8Array {
  const bytes = ownBytes(byteLength);
  fillPattern(bytes, seed);
  return bytes;
}

/** A sender and a receiver in one process: two interfaces, or one if the transport reaches only itself. */
class MessageFixture extends UctFixture {
  receiver: Iface = undefined as never;
  sender: Iface = undefined as never;
  endpoint: UctEndpoint = undefined as never;
  arrived: Arrived[] = [];

  readonly connectsLate: boolean;

  /** @param connectsLate the transport connects with the first operation, which returns NO_RESOURCE until then */
  constructor(setup: MdSetup, connectsLate: boolean) {
    super(setup);
    this.connectsLate = connectsLate;
    beforeEach(async () => {
      const resource = this.md.resources[0]!;
      this.receiver = this.md.openIface(resource);
      this.sender = this.md.openIface(this.under.peer ?? resource);
      if (this.sender.unreachableReason(this.receiver.address) !== undefined) this.sender = this.receiver;
      this.endpoint = this.sender.connect(this.receiver.address);
      this.arrived = [];
      if (connectsLate) await this.#connect();
    });
    afterEach(() => {
      this.endpoint.close();
      this.sender.close();
      this.receiver.close();
      // Vitest keeps this fixture until the end of the run.
      Object.assign(this, { endpoint: undefined, sender: undefined, receiver: undefined, arrived: [] });
    });
  }

  /** Establishes the connection, with a message that is not recorded. */
  async #connect(): Promise<void> {
    let arrived = 0;
    this.receiver.setAmHandler(() => {
      arrived += 1;
    });
    await this.sendLate(() => this.short(0, ownBytes(8)));
    while (arrived === 0) this.#drive();
    this.receiver.setAmHandler(undefined as never);
  }

  #drive(): number {
    return this.sender.progress() + this.receiver.progress();
  }

  listen(): void {
    this.receiver.setAmHandler((id, frame) => this.arrived.push({ id, bytes: copyOf(frame) }));
  }

  short(id: number, bytes: Uint8Array, headerBytes = 0): Status {
    const header = new Int32Array(bytes.slice(0, headerBytes).buffer);
    return this.endpoint.amShort(id, header, header.length, bytes, headerBytes, bytes.byteLength - headerBytes);
  }

  /** Sends, and retries while there is no room. */
  send(start: () => Status): void {
    let status = start();
    while (status === Status.NO_RESOURCE) {
      this.#drive();
      status = start();
    }
    expect(status).toBe(Status.OK);
  }

  /** Sends over any endpoint, which may have to connect first. */
  async sendLate(start: () => Status): Promise<void> {
    for (let status = start(); status !== Status.OK; status = start()) {
      expect(status).toBe(Status.NO_RESOURCE);
      this.#drive();
      await new Promise(setImmediate);
    }
  }

  drain(): void {
    for (let quiet = 0; quiet < QUIET_TURNS; ) quiet = this.#drive() > 0 ? 0 : quiet + 1;
  }

  /** Drives both ends until this number of messages has arrived. */
  async untilArrived(count: number): Promise<void> {
    while (this.arrived.length < count) {
      if (this.#drive() === 0) await new Promise(setImmediate);
    }
  }

  /** Expects that exactly these messages have arrived, after enough progress for further ones. */
  async expectAll(expected: readonly Arrived[]): Promise<void> {
    await this.untilArrived(expected.length);
    this.drain();
    this.expectArrived(expected);
  }

  expectArrived(expected: readonly Arrived[]): void {
    expect(this.arrived.length).toBe(expected.length);
    for (const [i, { id, bytes }] of expected.entries()) {
      expect(this.arrived[i]!.id).toBe(id);
      expect(Buffer.compare(this.arrived[i]!.bytes, bytes), `message ${i} of ${bytes.byteLength} bytes`).toBe(0);
    }
  }
}

/** Declares the suite, for transports with active messages. */
export function endpointMessagesContract(name: string, setup: MdSetup, connectsLate = false): void {
  describe(`messages: ${name}`, () => {
    const fixture = new MessageFixture(setup, connectsLate);
    describe('arrive', () => arrivalCases(fixture));
    describe('of registered memory', () => zcopyCases(fixture));
    describe('back-pressure', () => pressureCases(fixture));
    describe('ends', () => endCases(fixture));
    describe('addresses', () => addressCases(fixture));
  });
}

function arrivalCases(fixture: MessageFixture): void {
  it('with header and payload of every size around the limits, in their order', async () => {
    fixture.listen();
    const { shortBytesMax, bcopyBytesMax } = fixture.sender.attributes.am;
    expect((fixture.sender.attributes.flags & IfaceFlag.AM_SHORT) !== 0).toBe(shortBytesMax > 0);
    expect((fixture.sender.attributes.flags & IfaceFlag.AM_BCOPY) !== 0).toBe(bcopyBytesMax > 0);
    const around = [0, 1, 7, 8, 9, 48, 103, 104, 105, 111, 112, 113, 128, 1000, 4096, shortBytesMax - 1, shortBytesMax];
    const expected: Arrived[] = [];
    let seed = 0;
    for (const byteLength of around) {
      for (const headerBytes of [0, 8, 24]) {
        if (headerBytes > byteLength) continue;
        seed += 1;
        const bytes = pattern(byteLength, seed);
        fixture.send(() => fixture.short(seed % 32, bytes, headerBytes));
        expected.push({ id: seed % 32, bytes });
        const packer = new BytesPacker(bytes);
        fixture.send(() => fixture.endpoint.amBcopy(31, packer));
        expect(packer.runs).toBe(1);
        expected.push({ id: 31, bytes });
        fixture.drain();
      }
    }
    await fixture.expectAll(expected);
  });

  it('once and unchanged if their handler makes progress', async () => {
    const expected = Array.from({ length: 100 }, (_, i) => ({ id: i % 32, bytes: pattern(8 * (i + 1), i) }));
    fixture.receiver.setAmHandler((id, frame) => {
      fixture.arrived.push({ id, bytes: copyOf(frame) });
      fixture.receiver.progress();
    });
    for (const { id, bytes } of expected) fixture.send(() => fixture.endpoint.amBcopy(id, new BytesPacker(bytes)));
    await fixture.expectAll(expected);
  });

  it('from any offset of a buffer, which can be reused at once', async () => {
    fixture.listen();
    const expected: Arrived[] = [];
    for (let offset = 0; offset < 9; offset++) {
      const source = pattern(200, offset + 1);
      expected.push({ id: 3, bytes: source.slice(offset, offset + 77) });
      fixture.send(() => fixture.endpoint.amShort(3, new Int32Array(0), 0, source, offset, 77));
      source.fill(0);
    }
    const header = Int32Array.of(-1, 2 ** 31 - 1, 99, 99);
    fixture.send(() => fixture.endpoint.amShort(4, header, 2, undefined, 0, 0));
    expected.push({ id: 4, bytes: new Uint8Array(Int32Array.of(-1, 2 ** 31 - 1).buffer) });
    await fixture.expectAll(expected);
  });

  it('not at all above the limit', () => {
    fixture.listen();
    const { shortBytesMax } = fixture.sender.attributes.am;
    expect(fixture.short(1, pattern(shortBytesMax + 1, 1))).toBe(Status.INVALID_PARAM);
    expect(fixture.short(1, pattern(shortBytesMax + 1, 1), 8)).toBe(Status.INVALID_PARAM);
    fixture.drain();
    fixture.expectArrived([]);
  });

  it('also if they arrived before the handler was set', async () => {
    const bytes = pattern(50, 5);
    expect(fixture.short(9, bytes)).toBe(Status.OK);
    expect(fixture.receiver.progress()).toBe(0);
    fixture.listen();
    await fixture.expectAll([{ id: 9, bytes }]);
  });

  it('once each, also if the handler sends', async () => {
    const back = fixture.receiver.connect(fixture.receiver.address);
    const seen: number[] = [];
    let next = 0;
    const send = (): Status => back.amShort(1, Int32Array.of(next, 0), 2, undefined, 0, 0);
    fixture.receiver.setAmHandler((_id, frame) => {
      const round = frame.words[frame.offset >> 2]!;
      seen.push(round);
      // With a full ring the answer is sent in the next step.
      next = round + 1;
      if (send() === Status.OK) next = 0;
    });
    await fixture.sendLate(() => back.amShort(1, Int32Array.of(1, 0), 2, undefined, 0, 0));
    while (seen.length < 1000) {
      fixture.receiver.progress();
      if (next !== 0 && send() === Status.OK) next = 0;
    }
    expect(seen.slice(0, 1000)).toEqual(Array.from({ length: 1000 }, (_, i) => i + 1));
    back.close();
  });
}

function zcopyCases(fixture: MessageFixture): void {
  const HEADER = Int32Array.from({ length: 12 }, (_, i) => i * 1_000_003 + 1);

  /** Sends one piece of the memory, and returns its completion. */
  async function send(id: number, headerWords: number, iov: readonly IovEntry[]): Promise<CountingCompletion> {
    const completion = new CountingCompletion();
    const start = (): Status => fixture.endpoint.amZcopy!(id, HEADER, headerWords, iov, completion);
    expect(await started(fixture.sender, completion, start)).toBe(Status.INPROGRESS);
    return completion;
  }

  function messageOf(headerWords: number, ...parts: readonly Uint8Array[]): Uint8Array {
    return new Uint8Array(Buffer.concat([Buffer.from(HEADER.slice(0, headerWords).buffer), ...parts]));
  }

  it('arrive in their order, with a header and several pieces, and end once each', async () => {
    const { am, flags } = fixture.sender.attributes;
    expect((flags & IfaceFlag.AM_ZCOPY) !== 0).toBe((am.zcopyBytesMax ?? 0) > 0);
    expect(typeof fixture.endpoint.amZcopy).toBe((flags & IfaceFlag.AM_ZCOPY) === 0 ? 'undefined' : 'function');
    requires((flags & IfaceFlag.AM_ZCOPY) !== 0, 'AM_ZCOPY');
    fixture.listen();
    const bytesMax = Math.min(am.zcopyBytesMax!, 65_536);
    const bytes = pattern(bytesMax, 4);
    const memory = fixture.md.memReg(bytes);
    const expected: Arrived[] = [];
    const completions: CountingCompletion[] = [];
    for (const headerWords of [0, 2, 10]) {
      for (const byteLength of [0, 1, 9, 1000, 4097, bytesMax - headerWords * 4]) {
        const half = byteLength >> 1;
        const iov = [
          { memory, offset: 3, byteLength: 0 },
          { memory, offset: bytesMax - half, byteLength: half },
          { memory, offset: 0, byteLength: byteLength - half },
        ];
        const id = expected.length % 32;
        completions.push(await send(id, headerWords, iov));
        const parts = [bytes.slice(bytesMax - half), bytes.slice(0, byteLength - half)];
        expected.push({ id, bytes: messageOf(headerWords, ...parts) });
        fixture.send(() => fixture.short(1, bytes.subarray(0, 16), 8));
        expected.push({ id: 1, bytes: bytes.slice(0, 16) });
      }
    }
    await fixture.expectAll(expected);
    await driveUntil(fixture.sender, () => completions.every(({ calls }) => calls > 0));
    expect(completions.map(({ calls, failure }) => [calls, failure])).toEqual(completions.map(() => [1, Status.OK]));
    fixture.md.memDereg(memory);
  });

  it('lose nothing without room', async () => {
    requires((fixture.sender.attributes.flags & IfaceFlag.AM_ZCOPY) !== 0, 'AM_ZCOPY');
    fixture.listen();
    const bytes = pattern(4096, 9);
    const memory = fixture.md.memReg(bytes);
    const expected: Arrived[] = [];
    const completions: CountingCompletion[] = [];
    for (let i = 0; i < 1500; i++) {
      const [offset, byteLength] = [i, 1 + (i % 900)];
      completions.push(await send(i % 32, 2, [{ memory, offset, byteLength }]));
      expected.push({ id: i % 32, bytes: messageOf(2, bytes.slice(offset, offset + byteLength)) });
      if (i % 7 === 0) fixture.receiver.progress();
    }
    await fixture.expectAll(expected);
    await driveUntil(fixture.sender, () => completions.every(({ calls }) => calls > 0));
    expect(new Set(completions.map(({ failure }) => failure))).toEqual(new Set([Status.OK]));
    fixture.md.memDereg(memory);
  });

  it('are refused above the limit, outside of the memory, and without a completion', () => {
    const { am, flags } = fixture.sender.attributes;
    requires((flags & IfaceFlag.AM_ZCOPY) !== 0, 'AM_ZCOPY');
    const byteLength = am.zcopyBytesMax!;
    const memory = fixture.md.memReg(pattern(byteLength, 2));
    const whole = [{ memory, offset: 0, byteLength }];
    const send = (iov: readonly IovEntry[], completion: unknown = new CountingCompletion(), id = 1): Status =>
      fixture.endpoint.amZcopy!(id, HEADER, 2, iov, completion as CountingCompletion);
    expect(send(whole)).toBe(Status.INVALID_PARAM);
    expect(send([{ memory, offset: 0, byteLength: 8 }], null)).toBe(Status.INVALID_PARAM);
    expect(send([{ memory, offset: 0, byteLength: 8 }], undefined, 999)).toBe(Status.INVALID_PARAM);
    expect(() => send([{ memory, offset: 8, byteLength }])).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
    fixture.md.memDereg(memory);
    expect(() => send([{ memory, offset: 0, byteLength: 8 }])).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
  });
}

function pressureCases(fixture: MessageFixture): void {
  it.each([8, 500])('returns NO_RESOURCE and loses nothing, with messages of %s bytes', async (byteLength) => {
    fixture.listen();
    const expected: Arrived[] = [];
    const refused = new BytesPacker(pattern(byteLength, 77));
    for (let round = 0; round < 5; round++) {
      for (;;) {
        const bytes = pattern(byteLength, expected.length);
        if (fixture.short(expected.length % 32, bytes) !== Status.OK) break;
        expected.push({ id: expected.length % 32, bytes });
        if (expected.length >= 100_000) expect.fail(`${expected.length} messages found room`);
      }
      expect(fixture.short(1, pattern(byteLength, 1))).toBe(Status.NO_RESOURCE);
      if (byteLength > 112) expect(fixture.endpoint.amBcopy(1, refused)).toBe(Status.NO_RESOURCE);
      // Some rounds leave messages in the ring.
      if (round % 2 === 0) fixture.drain();
      else fixture.receiver.progress();
      fixture.receiver.progress();
    }
    expect(refused.runs).toBe(0);
    expect(expected.length).toBeGreaterThanOrEqual(5);
    await fixture.expectAll(expected);
  });

  it('keeps short and long messages in their order', async () => {
    fixture.listen();
    await fc.assert(
      fc.asyncProperty(fc.array(fc.oneof(fc.nat(120), fc.nat(8000)), { maxLength: 400 }), async (sizes) => {
        fixture.arrived = [];
        const expected: Arrived[] = [];
        for (const [i, byteLength] of sizes.entries()) {
          const bytes = pattern(byteLength, i + 1);
          fixture.send(() => fixture.short(i % 32, bytes));
          expected.push({ id: i % 32, bytes });
        }
        await fixture.expectAll(expected);
      }),
      { numRuns: 20 },
    );
  });
}

function endCases(fixture: MessageFixture): void {
  it('of the sender lose no sent message', async () => {
    requires(fixture.sender !== fixture.receiver, 'two ends');
    fixture.listen();
    const expected = Array.from({ length: 40 }, (_, i) => ({ id: i % 32, bytes: pattern(i * 20, i + 1) }));
    for (const { id, bytes } of expected) fixture.send(() => fixture.short(id, bytes));
    fixture.endpoint.close();
    fixture.sender.close();
    await fixture.expectAll(expected);
  });

  it('of the sender let its endpoints send nothing more', async () => {
    requires(fixture.sender !== fixture.receiver, 'two ends');
    fixture.listen();
    const { sender, endpoint } = fixture;
    sender.close();
    const bytes = pattern(300, 1);
    for (const byteLength of [8, 300]) {
      expect(isFailure(fixture.short(1, bytes.slice(0, byteLength)))).toBe(true);
      expect(isFailure(endpoint.amBcopy(1, new BytesPacker(bytes.slice(0, byteLength))))).toBe(true);
    }
    expect(isFailure(endpoint.check())).toBe(true);
    await fixture.expectAll([]);
  });

  it('of the receiver are reported to senders', () => {
    requires(fixture.sender !== fixture.receiver, 'two ends');
    expect(fixture.endpoint.check()).toBe(Status.OK);
    expect(fixture.short(1, pattern(8, 1))).toBe(Status.OK);
    fixture.receiver.close();
    expect([Status.ENDPOINT_TIMEOUT, Status.CONNECTION_RESET]).toContain(fixture.endpoint.check());
    expect(fixture.short(1, pattern(8, 1))).toBe(Status.CONNECTION_RESET);
    // A transport that connects late detects it late.
    if (!fixture.connectsLate) {
      expect(fixture.sender.unreachableReason(fixture.receiver.address)).toBeTypeOf('string');
    }
  });

  it('and restarts can be repeated', async () => {
    requires(fixture.sender !== fixture.receiver, 'two ends');
    fixture.listen();
    const expected: Arrived[] = [];
    for (let i = 0; i < 1100; i++) {
      const endpoint = fixture.sender.connect(fixture.receiver.address);
      const bytes = pattern(8, i + 1);
      await fixture.sendLate(() => endpoint.amShort(2, new Int32Array(0), 0, bytes, 0, 8));
      expected.push({ id: 2, bytes });
      endpoint.close();
      // No order is promised among the messages of different endpoints.
      await fixture.untilArrived(expected.length);
    }
    await fixture.expectAll(expected);
  });

  it('of a sleep come in time, or when the interface closes', async () => {
    fixture.listen();
    await Promise.all([fixture.receiver.wait(1e12), fixture.receiver.wait(3e6)]);
    // Joining a sleep returns its promise, so that a frequent caller adds one reaction only.
    expect(fixture.receiver.wait(1e12)).toBe(fixture.receiver.wait(2e12));
    const closed = fixture.receiver.wait(1e12);
    fixture.receiver.close();
    await closed;
  });

  it('of a sleep come with a message', async () => {
    requires((fixture.receiver.attributes.flags & IfaceFlag.EVENT) !== 0, 'EVENT');
    fixture.listen();
    for (let i = 0; i < 20; i++) {
      const slept = fixture.receiver.wait(1e12);
      expect(fixture.short(1, pattern(8, i))).toBe(Status.OK);
      await slept;
      expect(fixture.receiver.progress()).toBe(1);
    }
    // A message that has already arrived prevents the sleep.
    expect(fixture.short(1, pattern(8, 1))).toBe(Status.OK);
    await fixture.receiver.wait(1e12);
    expect(fixture.receiver.progress()).toBe(1);
  });

  it('of a sleep without room come when there is room', async () => {
    requires((fixture.sender.attributes.flags & IfaceFlag.EVENT) !== 0, 'EVENT');
    fixture.listen();
    fixture.sender.setAmHandler(() => undefined);
    while (fixture.short(1, pattern(300, 1)) === Status.OK);
    const slept = fixture.sender.wait(1e12);
    fixture.drain();
    await slept;
    await fixture.sendLate(() => fixture.short(1, pattern(300, 1)));
    fixture.drain();
    expect(fixture.short(1, pattern(300, 1))).toBe(Status.OK);
    fixture.drain();
  });
}

function addressCases(fixture: MessageFixture): void {
  it('of any bytes are checked without an exception', async () => {
    const { address } = fixture.receiver;
    const judge = (bytes: Uint8Array): void => {
      const reason = fixture.sender.unreachableReason(bytes);
      expect(reason === undefined || reason.length > 5).toBe(true);
      if (reason !== undefined) expect(() => fixture.sender.connect(bytes)).toThrow(reason);
    };
    await fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), judge));
    for (let bit = 0; bit < address.byteLength * 8; bit++) {
      const changed = address.slice();
      changed[bit >> 3]! ^= 1 << (bit & 7);
      judge(changed);
    }
  });
}
