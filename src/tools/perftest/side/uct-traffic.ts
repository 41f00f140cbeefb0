/** Active messages, put, get and atomic operations of one interface as traffic of a test. */

import { WordOperation } from '../../../api/operation/word-operation.ts';
import { memoryTypeName } from '../../../ucs/memory/memory-type.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import {
  type AmFrame,
  type AmPacker,
  AtomicOperation,
  type Completion,
  type IovEntry,
  type UctEndpoint,
} from '../../../uct/api/iface.ts';
import type { MdMemory, RemoteKey } from '../../../uct/api/memory.ts';
import { messageBytes, type TestSpec, UCT_HEADER_BYTES } from '../spec.ts';
import { Content, dataError, SEQUENCE_MASK, SEQUENCE_NONE, Traffic } from './traffic.ts';
import type { UctSide } from './uct-side.ts';

/** Ids of messages: data of the test, credits that a receiver returns, and the end. */
const DATA_ID = 1;
const ROOM_ID = 2;
const END_ID = 3;
/** Words before the data of a message: the sequence number. */
const HEADER_WORDS = 2;

/** Counts the outstanding operations plus one: so the count never reaches 0, at which the transport would call onComplete. */
class Outstanding implements Completion {
  count = 1;
  failure: Status = Status.OK;

  onComplete(): void {
    this.failure = Status.INVALID_PARAM;
  }
}

/** The bytes of host memory. @throws UcxError ERR_INVALID_PARAM */
function hostBytes({ bytes, memoryType }: MdMemory): Uint8Array {
  if (bytes === undefined) throw invalidParam('-m', 'must be host', memoryTypeName(memoryType));
  return bytes;
}

/** Traffic over an interface. */
abstract class UctTraffic extends Traffic {
  protected readonly side: UctSide;
  protected readonly spec: TestSpec;
  protected readonly endpoint: UctEndpoint;
  protected readonly byteLength: number;
  protected readonly completion: Completion = new Outstanding();
  protected readonly sourceContent: Content;
  protected readonly targetContent: Content;

  constructor(side: UctSide) {
    super();
    this.side = side;
    this.spec = side.spec;
    this.endpoint = side.endpoint;
    this.byteLength = messageBytes(side.spec);
    const parts = side.spec.verify ? [{ offset: 0, byteLength: this.byteLength }] : [];
    this.sourceContent = new Content(side.sourceProbe, parts);
    this.targetContent = new Content(side.targetProbe, parts);
  }

  override progress(): number {
    const ended = this.side.iface.progress();
    const { count, failure } = this.completion;
    this.outstanding = count - 1;
    if (failure !== Status.OK)
      this.error ??= statusError(failure, `operation of ${this.spec.kind.name}`, this.causeOf(failure));
    return ended;
  }

  override causeOf(status: Status): unknown {
    return this.side.iface.errorOf(status);
  }

  override flush(): boolean {
    const status = this.endpoint.flush(undefined);
    if (status < 0 && status !== Status.NO_RESOURCE) this.error ??= statusError(status, 'flush', this.causeOf(status));
    return status === Status.OK || this.error !== undefined;
  }

  override get carrier(): string {
    return this.side.carrier;
  }

  override close(): void {
    this.side.iface.setAmHandler(() => undefined);
  }

  /** Counts an operation in progress. */
  protected settle(status: Status): Status {
    if (status === Status.INPROGRESS) {
      this.completion.count += 1;
      this.outstanding += 1;
    }
    return status;
  }
}

/** Active messages, with flow control by credits of the receiver, as in ucx_perftest (-W). */
export class UctMessageTraffic extends UctTraffic implements AmPacker {
  readonly #isStream: boolean;
  readonly #source: Uint8Array;
  readonly #iov: readonly IovEntry[];
  readonly #header: Int32Array = new Int32Array(HEADER_WORDS);
  readonly #note: Int32Array = new Int32Array(HEADER_WORDS);
  #sent = 0;
  #room = 0;
  /** Messages that were acknowledged to the sender. */
  #acknowledged = 0;
  #isSender = false;

  constructor(side: UctSide) {
    super(side);
    this.#isStream = side.spec.kind.pattern === 'stream';
    this.#iov = [{ memory: side.source, offset: UCT_HEADER_BYTES, byteLength: this.byteLength - UCT_HEADER_BYTES }];
    this.#source = side.source.bytes ?? new Uint8Array(this.byteLength);
    side.iface.setAmHandler((id, frame) => this.#onMessage(id, frame));
  }

  override reset(): void {
    super.reset();
    this.#sent = 0;
    this.#room = this.#isStream ? this.spec.flowWindow : Number.POSITIVE_INFINITY;
    this.#acknowledged = 0;
    this.#isSender = false;
  }

  override send(sequence: number): Status {
    if (this.#sent >= this.#room) return Status.NO_RESOURCE;
    if (this.spec.verify) this.sourceContent.fill(sequence);
    this.#header[0] = sequence;
    const status = this.#start();
    if (status === Status.OK || status === Status.INPROGRESS) this.#sent += 1;
    return status;
  }

  #start(): Status {
    const { layout } = this.spec;
    if (layout === 'bcopy') return this.endpoint.amBcopy(DATA_ID, this);
    if (layout === 'zcopy') return this.#startZcopy();
    const payloadBytes = this.byteLength - UCT_HEADER_BYTES;
    return this.endpoint.amShort(DATA_ID, this.#header, HEADER_WORDS, this.#source, UCT_HEADER_BYTES, payloadBytes);
  }

  /** Counts before the call, because the transport may decrement the count within it: if the socket takes the message at once. */
  #startZcopy(): Status {
    const { completion } = this;
    completion.count += 1;
    const status = this.endpoint.amZcopy!(DATA_ID, this.#header, HEADER_WORDS, this.#iov, completion);
    if (status !== Status.INPROGRESS) completion.count -= 1;
    this.outstanding = completion.count - 1;
    return status;
  }

  pack({ bytes, words, offset }: AmFrame): number {
    words[offset >> 2] = this.#header[0]!;
    words[(offset >> 2) + 1] = 0;
    bytes.set(this.#source.subarray(UCT_HEADER_BYTES, this.byteLength), offset + UCT_HEADER_BYTES);
    return this.byteLength;
  }

  override hasArrived(_sequence: number, index: number): boolean {
    if (this.#isStream && !this.#isSender && this.received - this.#acknowledged >= (this.spec.flowWindow + 1) >> 1)
      this.#giveRoom();
    return this.received > index;
  }

  override acknowledge(): Status {
    return this.endpoint.amShort(END_ID, this.#note, HEADER_WORDS, undefined, 0, 0);
  }

  override expectAcknowledgement(): boolean {
    this.#isSender = true;
    return true;
  }

  #giveRoom(): void {
    const count = this.received;
    this.#note[0] = count - this.#acknowledged;
    const status = this.endpoint.amShort(ROOM_ID, this.#note, HEADER_WORDS, undefined, 0, 0);
    if (status === Status.OK) this.#acknowledged = count;
    else if (status !== Status.NO_RESOURCE) this.error ??= statusError(status, 'return of credits to the sender');
  }

  #onMessage(id: number, { words, bytes, offset, byteLength }: AmFrame): void {
    if (id === ROOM_ID) this.#room += words[offset >> 2]!;
    else if (id === END_ID) this.received += 1;
    else {
      const sequence = this.received & SEQUENCE_MASK;
      if (words[offset >> 2] !== sequence || byteLength !== this.byteLength) {
        this.error ??= dataError(
          `message ${this.received} arrived with sequence number ${words[offset >> 2]} and ${byteLength} bytes`,
        );
      }
      if (this.spec.verify) this.#check(sequence, bytes.subarray(offset + UCT_HEADER_BYTES, offset + byteLength));
      this.received += 1;
    }
  }

  /** Checks the data after the header in place. */
  #check(sequence: number, data: Uint8Array): void {
    this.side.targetProbe.write(UCT_HEADER_BYTES, data);
    const difference = this.targetContent.firstDifference(sequence, { from: UCT_HEADER_BYTES });
    if (difference >= 0)
      this.error ??= dataError(`byte ${difference} of message ${sequence} differs from the sent one`);
  }
}

/** Puts. In a ping-pong the last byte is the sequence number, which the other side polls. */
export class UctPutTraffic extends UctTraffic {
  readonly #isPingPong: boolean;
  readonly #rkey: RemoteKey;
  /** Source of short puts; undefined for other layouts. */
  readonly #shortBytes: Uint8Array | undefined;
  readonly #last: number;
  readonly #sourceBytes: Uint8Array | undefined;
  readonly #targetBytes: Uint8Array | undefined;
  readonly #mark: Uint8Array = new Uint8Array(1);
  readonly #iov: readonly IovEntry[];

  constructor(side: UctSide) {
    super(side);
    this.#isPingPong = side.spec.kind.pattern === 'ping-pong';
    this.#rkey = side.rkey;
    this.#shortBytes = side.spec.layout === 'short' ? hostBytes(side.source) : undefined;
    this.#last = this.byteLength - 1;
    this.#sourceBytes = side.source.bytes;
    this.#targetBytes = side.target.bytes;
    this.#iov = [{ memory: side.source, offset: 0, byteLength: this.byteLength }];
  }

  override reset(): void {
    super.reset();
    this.#mark[0] = SEQUENCE_NONE;
    this.side.targetProbe.write(this.#last, this.#mark);
  }

  override send(sequence: number): Status {
    if (this.spec.verify) this.sourceContent.fill(sequence);
    if (this.#isPingPong) this.#setMark(sequence);
    const bytes = this.#shortBytes;
    if (bytes !== undefined) return this.endpoint.putShort(bytes, 0, this.byteLength, 0, this.#rkey);
    return this.settle(this.endpoint.putZcopy(this.#iov, 0, this.#rkey, this.completion));
  }

  override hasArrived(sequence: number, _index: number): boolean {
    if (!this.#isPingPong) return true;
    const bytes = this.#targetBytes;
    const found = bytes === undefined ? this.side.targetProbe.pollByte(this.#last) : bytes[this.#last];
    if (found !== sequence) return false;
    if (this.spec.verify) this.targetContent.checkPut(sequence, systemClock, this);
    return true;
  }

  override progress(): number {
    // Reads of sequence numbers in device memory are operations too.
    return super.progress() + (this.#targetBytes === undefined ? this.side.targetProbe.progress() : 0);
  }

  override checkReceived(iterations: number): void {
    if (this.spec.verify && !this.#isPingPong) this.targetContent.check((iterations - 1) & SEQUENCE_MASK);
  }

  #setMark(sequence: number): void {
    if (this.#sourceBytes !== undefined) this.#sourceBytes[this.#last] = sequence;
    else {
      this.#mark[0] = sequence;
      this.side.sourceProbe.write(this.#last, this.#mark);
    }
  }
}

/** Gets. A verified test overwrites the memory before each. */
export class UctGetTraffic extends UctTraffic {
  readonly #rkey: RemoteKey;
  /** Target of short gets; undefined for other layouts. */
  readonly #shortBytes: Uint8Array | undefined;
  readonly #iov: readonly IovEntry[];
  #hasGot = false;

  constructor(side: UctSide) {
    super(side);
    this.#rkey = side.rkey;
    this.#shortBytes = side.spec.layout === 'short' ? hostBytes(side.source) : undefined;
    this.#iov = [{ memory: side.source, offset: 0, byteLength: this.byteLength }];
  }

  override reset(): void {
    super.reset();
    this.#hasGot = false;
    if (this.spec.verify) this.targetContent.fill(0);
  }

  override send(_sequence: number): Status {
    if (this.spec.verify) {
      this.checkSent();
      this.sourceContent.fill(1);
    }
    const bytes = this.#shortBytes;
    const status =
      bytes === undefined
        ? this.endpoint.getZcopy(this.#iov, 0, this.#rkey, this.completion)
        : this.endpoint.getShort(bytes, 0, this.byteLength, 0, this.#rkey, this.completion);
    this.#hasGot = this.spec.verify && status >= 0;
    return this.settle(status);
  }

  override hasArrived(): boolean {
    return true;
  }

  override checkSent(): void {
    if (this.#hasGot) this.sourceContent.check(0);
  }
}

/** One atomic operation at a time; in a ping-pong the low byte of the word is the sequence number. */
export class UctAtomicTraffic extends UctTraffic {
  readonly #isPingPong: boolean;
  readonly #rkey: RemoteKey;
  readonly #targetBytes: Uint8Array;
  #call: WordOperation;
  #done = 0n;

  constructor(side: UctSide) {
    super(side);
    const { operation, pattern } = side.spec.kind;
    this.#isPingPong = pattern === 'ping-pong';
    this.#rkey = side.rkey;
    this.#targetBytes = hostBytes(side.target);
    let code: AtomicOperation = AtomicOperation.ADD;
    if (operation === 'swap') code = AtomicOperation.SWAP;
    if (operation === 'cswap') code = AtomicOperation.CSWAP;
    const wordBytes = this.byteLength === 4 ? 4 : 8;
    this.#call = WordOperation.of(code, wordBytes, 1n, 0n);
  }

  override reset(): void {
    super.reset();
    this.#done = 0n;
    const word = new Uint8Array(this.byteLength);
    if (this.#isPingPong) word[0] = SEQUENCE_NONE;
    this.side.targetProbe.write(0, word);
  }

  override send(_sequence: number): Status {
    const call = this.#call;
    if (this.spec.verify) {
      this.checkSent();
      const value = call.operation === AtomicOperation.ADD ? 1n : this.#done + 1n;
      this.#call = WordOperation.of(call.operation, call.wordBytes, value, this.#done);
    }
    const status = this.endpoint.atomic(this.#call, 0, this.#rkey, this.completion);
    if (status >= 0 && this.spec.verify) this.#done += 1n;
    return this.settle(status);
  }

  override hasArrived(sequence: number): boolean {
    return !this.#isPingPong || this.#targetBytes[0] === sequence;
  }

  override checkSent(): void {
    if (this.#done === 0n || this.#isPingPong) return;
    const expected = this.#done - 1n;
    if (this.#call.result !== expected) {
      throw dataError(`operation ${this.#done} returned ${this.#call.result} instead of ${expected}`);
    }
  }

  override checkReceived(iterations: number): void {
    if (!this.spec.verify || this.#isPingPong) return;
    const bytes = new Uint8Array(8);
    bytes.set(this.#targetBytes.subarray(0, this.byteLength));
    const found = new DataView(bytes.buffer).getBigUint64(0, true);
    if (found !== BigInt(iterations)) throw dataError(`the word has the value ${found} after ${iterations} operations`);
  }
}
