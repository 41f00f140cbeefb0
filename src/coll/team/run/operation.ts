/** One collective operation of one rank: its slices, their messages, and how it ends. The algorithm is chosen before. */

import type { Endpoint } from '../../../api/contract/endpoint.ts';
import type { LocalMemory } from '../../../api/contract/memory.ts';
import type { Request } from '../../../api/contract/request.ts';
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';
import { rankFailed, reportedBy } from '../layout/errors.ts';
import { describeSignature, type Header, Kind, restOf, type Signature } from '../layout/header.ts';
import type { CollRequest } from './coll-request.ts';
import {
  type Bound,
  bind,
  type CachedKey,
  isThere,
  type KeyCache,
  LocalCopies,
  type Place,
  packedKeyOf,
} from './memory.ts';
import type { Plan, Scratch } from './plan.ts';
import { discard, keep, type Message } from './service.ts';
import { type EndNbx, type IssueOwner, type Part, type SliceOwner, SliceRun, type StartNbx } from './slice-run.ts';

/** From this length on the receiver of a part offers its memory first. */
const READY_MIN = 16 * 1024;
/** Slices in progress. */
const SLICES_AT_ONCE = 4;
const NO_BYTES = new Uint8Array(0);
/** How operations with a lost peer end. */
const LOSSES: ReadonlySet<Status> = new Set<Status>([Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT]);

/** Where the bytes of a part go: the key of the memory, if peers may have one, and the byte at which they begin. */
export interface PartKey {
  readonly offset: number;
  readonly packed: Uint8Array | undefined;
}

/** The interface of a team to its operations. */
export interface OperationHost {
  readonly rank: number;
  readonly amId: number;
  readonly scratch: Scratch;
  readonly keys: KeyCache;
  endpoint(rank: number): Endpoint;
  toItself(): Endpoint;
  isLost(rank: number): boolean;
  issue(owner: IssueOwner, start: StartNbx, end: EndNbx): void;
  /** The bytes of a message of an operation; valid until the next call. */
  pack(kind: Kind, operation: Operation, part: Part, key?: PartKey): Uint8Array;
  /** Tells a rank that nothing will be written to the memory it has offered. */
  refuse(offer: Header): void;
  /** A rank, or memory that it has offered, is gone: the team fails when the rank has had time to say why. */
  lost(rank: number, status: Status, operation: Operation): void;
  /** An operation fails, and the team with it. */
  failed(error: UcxError): void;
  /** An operation has ended. */
  ended(operation: Operation, status: Status, error: UcxError | undefined): void;
}

/** The operation as its caller has described it. */
export interface OperationCall {
  readonly signature: Signature;
  readonly plan: Plan;
  readonly source: Bound | undefined;
  readonly target: Bound | undefined;
}

/** A message that has arrived before its round. */
interface Early {
  readonly header: Header;
  readonly message: Message;
}

/** Memory that a peer has offered for a part. */
interface Offer {
  readonly header: Header;
  readonly key: Uint8Array | undefined;
}

/** One operation. */
export class Operation implements SliceOwner {
  readonly sequence: number;
  readonly signature: Signature;
  readonly requests: Set<Request> = new Set();
  /** Changes whenever a message of it moves: without a change it is stuck. */
  marks = 0;
  failure: UcxError | undefined;
  /** The request of its caller, if it has not ended at once. */
  request: CollRequest | undefined;
  /** Time of its start. */
  readonly startedNs: number;
  readonly #host: OperationHost;
  readonly #call: OperationCall;
  readonly #copies: LocalCopies;
  readonly #runs: Set<SliceRun> = new Set();
  readonly #expected: Part[] = [];
  /** Long parts whose receiver has not offered memory yet. */
  readonly #unready: Part[] = [];
  readonly #early: Early[] = [];
  readonly #offers: Offer[] = [];
  #inFlight = 0;
  #nextSlice = 0;
  #slicesEnded = 0;
  #isStarting = false;
  #hasEnded = false;

  constructor(host: OperationHost, sequence: number, call: OperationCall, startedNs: number) {
    this.#host = host;
    this.startedNs = startedNs;
    this.sequence = sequence;
    this.signature = call.signature;
    this.#call = call;
    this.#copies = new LocalCopies(() => host.toItself());
  }

  get hasFailed(): boolean {
    return this.failure !== undefined;
  }

  /** Begins, or begins further slices. */
  start(): void {
    if (this.#isStarting) return;
    this.#isStarting = true;
    const { slices } = this.#call.plan;
    while (this.#nextSlice < slices && this.#runs.size < SLICES_AT_ONCE && !this.hasFailed) this.#startSlice();
    this.#isStarting = false;
    this.#endIfDone();
  }

  /** Parts that it waits to receive, or whose receivers have not offered memory. */
  awaitedParts(): readonly Part[] {
    return [...this.#expected, ...this.#unready];
  }

  /** Ranks whose messages it waits for. */
  awaited(): number[] {
    return [...new Set(this.awaitedParts().map(({ peer }) => peer))].sort((a, b) => a - b);
  }

  /** Called when a rank waits for a part: both ends wait if one of them treats it as a long part, and the other does not. */
  onCheck(header: Header): void {
    // The part of the other direction, which this rank may wait for too, has a length of its own.
    const counterparts = header.kind === Kind.CHECK_SEND ? this.#expected : this.#unready;
    const part = counterparts.find((one) => isOf(one, header));
    if (!this.hasFailed && part !== undefined && part.place.byteLength !== header.byteLength) {
      this.#refuseLength(part, header);
    }
  }

  /** A message of this operation, with its signature. */
  onMessage(header: Header, message: Message): void {
    this.marks += 1;
    if (header.kind === Kind.DATA) this.#onData(header, message);
    else {
      if (header.kind === Kind.READY) this.#onReady(header, restOf(message.header));
      else this.#onNotice(header, restOf(message.header));
      discard(message);
    }
  }

  /** A rank is lost: the operation fails if it still needs it. */
  rankLost(rank: number, error: UcxError): void {
    if (this.hasFailed) {
      this.#forget(({ peer }) => peer === rank);
      this.#endIfDone();
      return;
    }
    const isAwaited = this.awaited().includes(rank) || [...this.#runs].some((run) => run.needs(rank));
    const isToCome = this.#nextSlice < this.#call.plan.slices;
    if (isAwaited || isToCome) this.#host.failed(error);
  }

  /** Ends it with an error, as soon as no transport uses its memory any more. */
  fail(error: UcxError): void {
    if (this.hasFailed || this.#hasEnded) return;
    this.failure = error;
    for (const request of [...this.requests]) request.cancel();
    for (const { message } of this.#early.splice(0)) discard(message);
    for (const { header } of this.#offers.splice(0)) this.#host.refuse(header);
    this.#unready.length = 0;
    // Peers may still write to memory that they were offered.
    this.#forget(({ isExposed, peer }) => !isExposed || this.#host.isLost(peer));
    this.#endIfDone();
  }

  /** Ends one that has failed without waiting for peers: no message can come any more. */
  abandon(): void {
    this.#forget(() => true);
    this.#endIfDone();
  }

  receivePart(part: Part): void {
    const at = this.#early.findIndex(({ header }) => isOf(part, header));
    if (at >= 0) {
      const { header, message } = this.#early.splice(at, 1)[0]!;
      this.#takeData(part, header, message);
      return;
    }
    this.#expected.push(part);
    if (part.place.byteLength >= READY_MIN) this.#offer(part);
  }

  sendPart(part: Part): void {
    if (part.place.byteLength < READY_MIN) {
      this.#sendData(part);
      return;
    }
    const at = this.#offers.findIndex(({ header }) => isOf(part, header));
    if (at < 0) this.#unready.push(part);
    else this.#sendTo(part, this.#offers.splice(at, 1)[0]!);
  }

  copyHost(from: Uint8Array, to: Uint8Array): void {
    this.#copies.copyHost(from, to);
  }

  stepFailed(error: UcxError): void {
    this.#host.failed(rankFailed(this.#host.rank, error.status, 'could not continue', error));
  }

  startCopy(run: SliceRun, from: Place, to: Place): void {
    const what = 'could not copy memory of a card';
    const ended: EndNbx = (status, error) => {
      if (status !== Status.OK) this.#failBy(this.#host.rank, status, what, error);
      else if (!this.hasFailed) run.partEnded();
    };
    this.#issue(
      (params) => this.#copies.startCopy(from, to, params),
      (status, error) => {
        // A put has ended when its source can be reused: the next step may read its target.
        const isPut = to.bytes === undefined && status === Status.OK;
        if (isPut) this.#issue((params) => this.#copies.startFlush(params), ended);
        else ended(status, error);
      },
    );
  }

  sliceEnded(run: SliceRun): void {
    this.#runs.delete(run);
    this.#giveScratch(run);
    this.#slicesEnded += 1;
    this.start();
  }

  #startSlice(): void {
    const slice = this.#nextSlice++;
    try {
      const { plan, source, target } = this.#call;
      const schedule = plan.schedule(slice);
      const { scratchBytes } = schedule;
      const memory = scratchBytes === 0 ? NO_BYTES : this.#host.scratch.take(scratchBytes);
      const run = new SliceRun(this, slice, schedule, [source, target, bind(memory, 0, scratchBytes)]);
      this.#runs.add(run);
      run.advance();
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.stepFailed(error);
    }
  }

  /** Offers memory for a long part: with its key if it is mapped. */
  #offer(part: Part): void {
    const { memory, offset } = part.place;
    const packed = packedKeyOf(memory);
    part.isExposed = packed !== undefined;
    this.#issue(
      (params) => {
        const header = this.#host.pack(Kind.READY, this, part, { offset, packed });
        return this.#host.endpoint(part.peer).amSendNbx(this.#host.amId, header, NO_BYTES, 0, 0, params);
      },
      (status, error) => {
        if (status === Status.OK) return;
        part.isExposed = false;
        this.#failBy(part.peer, status, 'could not be reached', error);
        if (this.hasFailed) this.#forget((one) => one === part);
      },
    );
  }

  #onReady(header: Header, rest: Uint8Array): void {
    const key = rest.byteLength === 0 ? undefined : rest.slice();
    if (this.hasFailed) {
      this.#host.refuse(header);
      return;
    }
    const at = this.#unready.findIndex((part) => isOf(part, header));
    if (at < 0) this.#offers.push({ header, key });
    else this.#sendTo(this.#unready.splice(at, 1)[0]!, { header, key });
  }

  #sendTo(part: Part, { header, key }: Offer): void {
    if (header.byteLength !== part.place.byteLength) {
      this.#refuseLength(part, header);
      this.#host.refuse(header);
    } else if (key === undefined) this.#sendData(part);
    else this.#putAndNotify(part, header, key);
  }

  /** Writes a part to the memory of its receiver, which is notified when the bytes are there, or will not be. */
  #putAndNotify(part: Part, offer: Header, packed: Uint8Array): void {
    const { place, peer } = part;
    const endpoint = this.#host.endpoint(peer);
    let key: CachedKey | undefined;
    this.#issue(
      (params) => {
        key ??= this.#host.keys.take(endpoint, peer, packed);
        const notify = this.#host.pack(Kind.NOTICE, this, part);
        const told = { ...params, notify, notifyId: this.#host.amId };
        return endpoint.putNbx(place.memory, place.offset, place.byteLength, key.rkey, offer.offset, told);
      },
      (status, error) => {
        if (key !== undefined) this.#host.keys.give(key);
        // The memory here is still there: that of the peer is not.
        if (status === Status.INVALID_ADDR && isThere(place)) this.#lost(peer, status);
        else this.#partEnd(part, 'could not write to another rank')(status, error);
        if (status === Status.OK) return;
        // Refused with the failure, which says why.
        if (this.hasFailed) this.#host.refuse(offer);
        else this.#offers.push({ header: offer, key: packed });
      },
    );
  }

  #sendData(part: Part): void {
    const { memory, offset, byteLength } = part.place;
    this.#issue(
      (params) => {
        const header = this.#host.pack(Kind.DATA, this, part);
        const local: LocalMemory = byteLength === 0 ? NO_BYTES : memory;
        const from = byteLength === 0 ? 0 : offset;
        return this.#host.endpoint(part.peer).amSendNbx(this.#host.amId, header, local, from, byteLength, params);
      },
      this.#partEnd(part, 'could not send'),
    );
  }

  #onData(header: Header, message: Message): void {
    const at = this.#expected.findIndex((part) => isOf(part, header));
    if (at >= 0) this.#takeData(this.#expected.splice(at, 1)[0]!, header, message);
    else if (this.hasFailed) discard(message);
    else this.#early.push({ header, message: keep(message) });
  }

  #takeData(part: Part, header: Header, message: Message): void {
    const { place, run } = part;
    if (header.byteLength !== place.byteLength || message.byteLength !== place.byteLength) {
      discard(message);
      this.#refuseLength(part, header);
      return;
    }
    if (place.byteLength === 0) {
      discard(message);
      run.partEnded();
    } else if (!message.isRendezvous && place.bytes !== undefined) {
      const canReceive = isThere(place);
      if (canReceive) this.#copies.copyHost(message.data, place.bytes);
      discard(message);
      if (canReceive) run.partEnded();
      else this.#failBy(this.#host.rank, Status.INVALID_ADDR, 'could not receive', undefined);
    } else {
      const kept = message.isView ? message.retain() : message;
      this.#issue(
        (params) => kept.receiveNbx(place.memory, place.offset, place.byteLength, params),
        (status, error) => {
          discard(kept);
          this.#partEnd(part, 'could not receive')(status, error);
        },
      );
    }
  }

  #onNotice({ status, offset, ...header }: Header, text: Uint8Array): void {
    const at = this.#expected.findIndex((part) => isOf(part, header));
    if (at < 0) return;
    const part = this.#expected.splice(at, 1)[0]!;
    if (this.hasFailed) this.#endIfDone();
    else if (status === Status.OK) part.run.partEnded();
    else this.#host.failed(reportedBy(part.peer, offset, statusOf(status), new TextDecoder().decode(text)));
  }

  /** The peer has another length for a part: its counts differ from those of this rank. */
  #refuseLength({ peer, place }: Part, { byteLength }: Header): void {
    const what = `${describeSignature(this.signature)}: has ${byteLength} bytes for a part of ${place.byteLength} bytes`;
    this.#host.failed(rankFailed(peer, Status.INVALID_PARAM, what));
  }

  /** The callback for the end of a message of a part. */
  #partEnd({ run, peer }: Part, what: string): EndNbx {
    return (status, error) => {
      if (status !== Status.OK) this.#failBy(peer, status, what, error);
      else if (!this.hasFailed) run.partEnded();
    };
  }

  /** Starts an operation of ucp. */
  #issue(start: StartNbx, end: EndNbx): void {
    if (this.hasFailed) {
      end(Status.CANCELED, undefined);
      return;
    }
    this.#inFlight += 1;
    this.#host.issue(this, start, (status, error) => {
      this.#inFlight -= 1;
      this.marks += 1;
      end(status, error);
      this.#endIfDone();
    });
  }

  /** The first failure; later ones follow from it. */
  #failBy(peer: number, status: Status, what: string, error: unknown): void {
    if (this.hasFailed) return;
    // If the connection is still established, the failure is on this side: memory, a card. Data may have used another connection, which is lost.
    if (peer !== this.#host.rank && (this.#host.isLost(peer) || LOSSES.has(status))) this.#lost(peer, status);
    else this.#host.failed(rankFailed(this.#host.rank, status, what, error));
  }

  #lost(peer: number, status: Status): void {
    if (!this.hasFailed) this.#host.lost(peer, status, this);
  }

  #forget(isGone: (part: Part) => boolean): void {
    const left = this.#expected.filter((part) => !isGone(part));
    this.#expected.splice(0, this.#expected.length, ...left);
  }

  #giveScratch({ scratch }: SliceRun): void {
    if (scratch !== undefined && scratch.memory !== NO_BYTES) this.#host.scratch.give(scratch.memory);
  }

  #endIfDone(): void {
    const isDone = this.hasFailed
      ? this.#inFlight === 0 && this.#expected.length === 0
      : this.#slicesEnded === this.#call.plan.slices && this.#inFlight === 0;
    if (!isDone || this.#hasEnded || this.#isStarting) return;
    this.#hasEnded = true;
    for (const run of this.#runs) this.#giveScratch(run);
    this.#runs.clear();
    this.#copies.release();
    this.#host.ended(this, this.failure?.status ?? Status.OK, this.failure);
  }
}

function isOf({ run, round, peer }: Part, header: Pick<Header, 'slice' | 'round' | 'from'>): boolean {
  return run.slice === header.slice && round === header.round && peer === header.from;
}
