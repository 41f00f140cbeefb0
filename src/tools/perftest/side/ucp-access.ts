/** Put, get and atomic operations on remote memory as traffic of a test. */

import type { LocalBuffer, LocalMemory, RemoteKey } from '../../../api/contract/memory.ts';
import type { AtomicName, AtomicParams, Request } from '../../../api/contract/request.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { dataError, SEQUENCE_MASK, SEQUENCE_NONE } from './traffic.ts';
import { type UcpSide, UcpTraffic } from './ucp-side.ts';

/** Operations on remote memory. */
abstract class AccessTraffic extends UcpTraffic {
  /** The local memory, in the form that explain() takes too. */
  protected readonly source: LocalBuffer;
  readonly #explained: LocalMemory;
  /** Length argument of the calls: 0 with a list, whose elements have their own. */
  protected readonly callBytes: number;
  protected readonly rkey: RemoteKey;

  constructor(side: UcpSide) {
    super(side);
    const { sendType } = side.spec;
    this.source = side.buffer(side.source, sendType);
    this.#explained = side.local(side.source);
    this.callBytes = sendType === 'iov' ? 0 : this.byteLength;
    this.rkey = side.rkey;
  }

  override hasArrived(_sequence: number, _index: number): boolean {
    return true;
  }

  protected explained(operation: 'put' | 'get'): string {
    const { chosen } = this.endpoint.explain(operation, this.#explained, this.rkey);
    const fitting = chosen.find(({ bytesMin, bytesMax }) => bytesMin <= this.byteLength && this.byteLength <= bytesMax);
    if (fitting === undefined) return this.libraryCarrier ?? 'none';
    return `${fitting.transport} ${fitting.protocol}`;
  }
}

/** Reads of the polled byte between two calls of progress. */
const READS = 8;

/** True if a byte written by another process has the expected value. */
function pollByte(bytes: Uint8Array, index: number, expected: number): boolean {
  for (let read = 0; read < READS; read++) if (Atomics.load(bytes, index) === expected) return true;
  return false;
}

/** Puts. In a ping-pong the last byte is the sequence number, which the other side polls. */
export class PutTraffic extends AccessTraffic {
  readonly #isPingPong: boolean;
  /** The last byte of the remote memory, and of the local memory. */
  readonly #last: number;
  readonly #lastSent: number;
  readonly #sourceBytes: Uint8Array | undefined;
  readonly #targetBytes: Uint8Array | undefined;
  readonly #mark: Uint8Array = new Uint8Array(1);

  constructor(side: UcpSide) {
    super(side);
    this.#isPingPong = side.spec.kind.pattern === 'ping-pong';
    this.#last = this.byteLength - 1;
    const { offset, byteLength } = side.parts(side.spec.sendType).at(-1)!;
    this.#lastSent = offset + byteLength - 1;
    this.#sourceBytes = side.source.bytes;
    this.#targetBytes = side.target.bytes;
  }

  override reset(): void {
    super.reset();
    this.#mark[0] = SEQUENCE_NONE;
    this.targetProbe.write(this.#last, this.#mark);
  }

  override send(sequence: number): Status {
    if (this.verifies) this.sourceContent.fill(sequence);
    if (this.#isPingPong) this.#setMark(sequence);
    return this.settle(this.endpoint.putNbx(this.source, 0, this.callBytes, this.rkey, 0));
  }

  override hasArrived(sequence: number, index: number): boolean {
    if (!this.#isPingPong) return super.hasArrived(sequence, index);
    const bytes = this.#targetBytes;
    const hasCome =
      bytes === undefined ? this.targetProbe.pollByte(this.#last) === sequence : pollByte(bytes, this.#last, sequence);
    if (!hasCome) return false;
    if (this.verifies) this.targetContent.checkPut(sequence, systemClock, this);
    return true;
  }

  override checkReceived(iterations: number): void {
    if (this.verifies && !this.#isPingPong) this.targetContent.check((iterations - 1) & SEQUENCE_MASK);
  }

  override get carrier(): string {
    return this.explained('put');
  }

  #setMark(sequence: number): void {
    if (this.#sourceBytes !== undefined) this.#sourceBytes[this.#lastSent] = sequence;
    else {
      this.#mark[0] = sequence;
      this.sourceProbe.write(this.#lastSent, this.#mark);
    }
  }
}

/** Gets. A verified test overwrites the memory before each. */
export class GetTraffic extends AccessTraffic {
  #hasGot = false;

  override reset(): void {
    super.reset();
    this.#hasGot = false;
    if (this.verifies) this.targetContent.fill(0);
  }

  override send(_sequence: number): Status {
    if (this.verifies) {
      if (this.#hasGot) this.sourceContent.check(0);
      this.sourceContent.fill(1);
      this.#hasGot = true;
    }
    return this.settle(this.endpoint.getNbx(this.source, 0, this.callBytes, this.rkey, 0));
  }

  override checkSent(): void {
    if (this.#hasGot) this.sourceContent.check(0);
  }

  override get carrier(): string {
    return this.explained('get');
  }
}

/** Atomic operations on the first word. Each adds one, so that the final value shows whether all were executed. */
export class AtomicTraffic extends AccessTraffic {
  readonly #name: AtomicName;
  readonly #fetches: boolean;
  readonly #word: { bits: 32 | 64; compare: number } & Pick<AtomicParams, 'callback' | 'noImmediateCompletion'>;
  #done = 0;
  #fetched = 0;
  #carrier: string | undefined;

  constructor(side: UcpSide) {
    super(side);
    const { operation } = side.spec.kind;
    this.#fetches = operation !== 'add';
    this.#name = operation === 'swap' || operation === 'cswap' ? operation : 'add';
    this.#word = {
      bits: this.byteLength === 4 ? 32 : 64,
      compare: 0,
      callback: this.sent.callback,
      // The result of a fetching operation is in its request.
      noImmediateCompletion: this.#fetches,
    };
  }

  override reset(): void {
    super.reset();
    this.#done = 0;
    this.#fetched = 0;
    this.targetProbe.write(0, new Uint8Array(this.byteLength));
  }

  override send(_sequence: number): Status {
    const value = this.#name === 'add' ? 1 : this.#wrap(this.#done + 1);
    if (this.#name === 'cswap') this.#word.compare = this.#wrap(this.#done);
    // Its callback may run inside the call.
    this.outstanding += 1;
    const started = this.endpoint.atomicNbx(this.#name, value, this.rkey, 0, this.#word);
    if (typeof started !== 'number') {
      this.#done += 1;
      return Status.INPROGRESS;
    }
    if (started !== Status.OK || !this.#fetches) this.outstanding -= 1;
    if (started === Status.OK) this.#done += 1;
    return started;
  }

  override checkReceived(iterations: number): void {
    if (!this.verifies) return;
    const bytes = new Uint8Array(8);
    this.targetProbe.read(0, bytes.subarray(0, this.byteLength));
    const found = new DataView(bytes.buffer).getBigUint64(0, true);
    if (found !== BigInt(this.#wrap(iterations)))
      throw dataError(`the word has the value ${found} after ${iterations} operations`);
  }

  override get carrier(): string {
    // Operations that end in their call have no request with a transport.
    return this.#carrier ?? this.libraryCarrier ?? this.endpoint.transports.join(' or ');
  }

  protected override onSent(request: Request, status: Status): void {
    super.onSent(request, status);
    this.#carrier ??= this.libraryCarrier ?? carrierOf(request);
    if (!this.verifies || !this.#fetches || status < 0) return;
    const expected = this.#wrap(this.#fetched);
    this.#fetched += 1;
    if (request.atomicResult === BigInt(expected)) return;
    this.error ??= dataError(`operation ${this.#fetched} returned ${request.atomicResult} instead of ${expected}`);
  }

  #wrap(value: number): number {
    return this.byteLength === 4 ? value >>> 0 : value;
  }
}

/** Undefined for a request that failed before it was assigned a lane. */
function carrierOf({ transport, device, protocol }: Request): string | undefined {
  return transport === undefined ? undefined : `${transport}/${device} ${protocol}`;
}
