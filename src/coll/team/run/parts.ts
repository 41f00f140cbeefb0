/**
 * The messages of one operation. A part is the data of one message of a schedule: a long one is written to memory that its receiver has offered, a short one
 * is sent in an active message.
 */

import type { LocalMemory, RemoteKey } from '../../../api/contract/memory.ts';
import type { Request } from '../../../api/contract/request.ts';
import type { UcxError } from '../../../ucs/type/error.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';
import { rankFailed, reportedBy } from '../layout/errors.ts';
import { describeSignature, type Header, Kind, restOf, type Signature } from '../layout/header.ts';
import type { TeamState } from '../team-state.ts';
import { isAccessible, LocalCopies, packedKeyOf } from './memory.ts';
import { discard, keep, type Message } from './service.ts';
import type { EndNbx, IssueOwner, Part, SliceRun, StartNbx } from './slice-run.ts';

/** Parts of at least this length are written to memory that the receiver offers first. */
const READY_MIN = 16 * 1024;
const NO_BYTES = new Uint8Array(0);
/** The statuses of operations whose peer is lost. */
const LOSSES: ReadonlySet<Status> = new Set<Status>([Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT]);

/** A message that has arrived before its round began. */
interface Early {
  readonly header: Header;
  readonly message: Message;
}

/** Memory that a peer has offered for a part. */
interface Offer {
  readonly header: Header;
  readonly key: Uint8Array | undefined;
}

/** Sends and receives the parts of one operation. */
export abstract class PartMessages implements IssueOwner {
  readonly sequence: number;
  readonly signature: Signature;
  readonly requests: Set<Request> = new Set();
  /** Changes whenever a message of the operation is sent or received; the watchdog compares it. */
  marks = 0;
  failure: UcxError | undefined = undefined;
  protected readonly team: TeamState;
  protected readonly copies: LocalCopies;
  protected inFlight = 0;
  protected hasEnded = false;
  readonly #expected: Part[] = [];
  /** Long parts whose receiver has not offered memory yet. */
  readonly #unready: Part[] = [];
  readonly #early: Early[] = [];
  readonly #offers: Offer[] = [];

  constructor(team: TeamState, sequence: number, signature: Signature) {
    this.team = team;
    this.sequence = sequence;
    this.signature = signature;
    this.copies = new LocalCopies(() => team.toItself());
  }

  /** Called when a part or a copy of a slice has ended. */
  protected abstract partEnded(run: SliceRun): void;
  /** Ends the operation if nothing is in progress. */
  protected abstract endIfDone(): void;

  get hasFailed(): boolean {
    return this.failure !== undefined;
  }

  /** Parts that it waits to receive, and parts whose receivers have not offered memory. */
  awaitedParts(): readonly Part[] {
    return [...this.#expected, ...this.#unready];
  }

  /** Ranks whose messages it waits for. */
  awaited(): number[] {
    return [...new Set(this.awaitedParts().map(({ peer }) => peer))].sort((a, b) => a - b);
  }

  /** Handles the check of a rank that waits for a part. If the ranks disagree whether the part is long, both would wait forever. */
  onCheck(header: Header): void {
    // The part in the other direction, for which this rank may wait too, may have another length.
    const counterparts = header.kind === Kind.CHECK_SEND ? this.#expected : this.#unready;
    const part = counterparts.find((one) => isOf(one, header));
    if (!this.hasFailed && part !== undefined && part.place.byteLength !== header.byteLength) {
      this.#failLength(part, header);
    }
  }

  /** Handles a message of this operation whose signature matches. */
  onMessage(header: Header, message: Message): void {
    this.marks += 1;
    if (header.kind === Kind.DATA) this.#onData(header, message);
    else {
      if (header.kind === Kind.READY) this.#onReady(header, restOf(message.header));
      else this.#onNotice(header, restOf(message.header));
      discard(message);
    }
  }

  /** Drops the parts in progress: no further transfer is started for them. Peers may still write to memory that they were offered. */
  protected dropParts(): void {
    for (const request of [...this.requests]) request.cancel();
    for (const { message } of this.#early.splice(0)) discard(message);
    for (const { header } of this.#offers.splice(0)) this.team.sendNack(header);
    this.#unready.length = 0;
    this.forget(({ isExposed, peer }) => !isExposed || this.team.isLost(peer));
  }

  /** Whether another message is expected. */
  protected get isExpecting(): boolean {
    return this.#expected.length > 0;
  }

  /** Receives a part, now or when it arrives. */
  protected receivePart(part: Part): void {
    const at = this.#early.findIndex(({ header }) => isOf(part, header));
    if (at >= 0) {
      const { header, message } = this.#early.splice(at, 1)[0]!;
      this.#takeData(part, header, message);
      return;
    }
    this.#expected.push(part);
    if (part.place.byteLength >= READY_MIN) this.#offer(part);
  }

  /** Sends a part, now or when its receiver has offered memory. */
  protected sendPart(part: Part): void {
    if (part.place.byteLength < READY_MIN) {
      this.#sendData(part);
      return;
    }
    const at = this.#offers.findIndex(({ header }) => isOf(part, header));
    if (at < 0) this.#unready.push(part);
    else this.#sendTo(part, this.#offers.splice(at, 1)[0]!);
  }

  /** Stops expecting messages for the parts that are dropped. */
  protected forget(isDropped: (part: Part) => boolean): void {
    const left = this.#expected.filter((part) => !isDropped(part));
    this.#expected.splice(0, this.#expected.length, ...left);
  }

  /** Starts a UCP operation. */
  protected issue(start: StartNbx, end: EndNbx): void {
    if (this.hasFailed) {
      end(Status.CANCELED, undefined);
      return;
    }
    this.inFlight += 1;
    this.team.issue(this, start, (status, error) => {
      this.inFlight -= 1;
      this.marks += 1;
      end(status, error);
      this.endIfDone();
    });
  }

  /** Fails the operation at its first failure; later failures follow from it. */
  protected failBy(peer: number, status: Status, what: string, error: unknown): void {
    if (this.hasFailed) return;
    // If the peer is still connected, the cause is on this side (memory, a card), unless the data used another connection, which is lost.
    if (peer !== this.team.rank && (this.team.isLost(peer) || LOSSES.has(status))) this.#lost(peer, status);
    else this.team.fail(rankFailed(this.team.rank, status, what, error));
  }

  /** Offers memory for a long part to its sender: with the packed key if the memory is mapped. */
  #offer(part: Part): void {
    const { memory, offset } = part.place;
    const packed = packedKeyOf(memory);
    part.isExposed = packed !== undefined;
    this.issue(
      (params) => {
        const header = this.team.pack(Kind.READY, this, part, { offset, packed });
        return this.team.endpoint(part.peer).amSendNbx(this.team.amId, header, NO_BYTES, 0, 0, params);
      },
      (status, error) => {
        if (status === Status.OK) return;
        part.isExposed = false;
        this.failBy(part.peer, status, 'could not be reached', error);
        if (this.hasFailed) this.forget((one) => one === part);
      },
    );
  }

  #onReady(header: Header, rest: Uint8Array): void {
    const key = rest.byteLength === 0 ? undefined : rest.slice();
    if (this.hasFailed) {
      this.team.sendNack(header);
      return;
    }
    const at = this.#unready.findIndex((part) => isOf(part, header));
    if (at < 0) this.#offers.push({ header, key });
    else this.#sendTo(this.#unready.splice(at, 1)[0]!, { header, key });
  }

  #sendTo(part: Part, { header, key }: Offer): void {
    if (header.byteLength !== part.place.byteLength) {
      this.#failLength(part, header);
      this.team.sendNack(header);
    } else if (key === undefined) this.#sendData(part);
    else this.#putAndNotify(part, header, key);
  }

  /** Writes a part to the memory of its receiver, then notifies the receiver; if the write fails, the notification says so. */
  #putAndNotify(part: Part, offer: Header, packed: Uint8Array): void {
    const { place, peer } = part;
    const endpoint = this.team.endpoint(peer);
    let key: RemoteKey | undefined;
    this.issue(
      (params) => {
        key ??= this.team.keys.acquire(packed, (kept) => endpoint.unpackRkey(kept), peer);
        const notify = this.team.pack(Kind.NOTICE, this, part);
        const notifying = { ...params, notify, notifyId: this.team.amId };
        return endpoint.putNbx(place.memory, place.offset, place.byteLength, key, offer.offset, notifying);
      },
      (status, error) => {
        if (key !== undefined) this.team.keys.release(key);
        // The local memory is still valid, so the peer's memory is not.
        if (status === Status.INVALID_ADDR && isAccessible(place)) this.#lost(peer, status);
        else this.#partEnd(part, 'could not write to the memory of another rank')(status, error);
        if (status === Status.OK) return;
        // The NACK contains the failure of the operation.
        if (this.hasFailed) this.team.sendNack(offer);
        else this.#offers.push({ header: offer, key: packed });
      },
    );
  }

  #sendData(part: Part): void {
    const { memory, offset, byteLength } = part.place;
    this.issue(
      (params) => {
        const header = this.team.pack(Kind.DATA, this, part);
        const local: LocalMemory = byteLength === 0 ? NO_BYTES : memory;
        const from = byteLength === 0 ? 0 : offset;
        return this.team.endpoint(part.peer).amSendNbx(this.team.amId, header, local, from, byteLength, params);
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
      this.#failLength(part, header);
      return;
    }
    if (place.byteLength === 0) {
      discard(message);
      this.partEnded(run);
    } else if (!message.isRendezvous && place.bytes !== undefined) {
      const canReceive = isAccessible(place);
      if (canReceive) this.copies.copyHost(message.data, place.bytes);
      discard(message);
      if (canReceive) this.partEnded(run);
      else this.failBy(this.team.rank, Status.INVALID_ADDR, 'could not receive', undefined);
    } else {
      const kept = message.isView ? message.retain() : message;
      this.issue(
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
    if (this.hasFailed) this.endIfDone();
    else if (status === Status.OK) this.partEnded(part.run);
    else this.team.fail(reportedBy(part.peer, offset, statusOf(status), new TextDecoder().decode(text)));
  }

  /** Fails the team because the peer uses another length for a part: the counts differ between the ranks. */
  #failLength({ peer, place }: Part, { byteLength }: Header): void {
    const lengths = `sent or expected ${byteLength} bytes for a part that has ${place.byteLength} bytes here`;
    const what = `${lengths}, in ${describeSignature(this.signature)} (the counts differ between the ranks)`;
    this.team.fail(rankFailed(peer, Status.INVALID_PARAM, what));
  }

  /** Makes the callback for the end of a message of a part. */
  #partEnd({ run, peer }: Part, what: string): EndNbx {
    return (status, error) => {
      if (status !== Status.OK) this.failBy(peer, status, what, error);
      else if (!this.hasFailed) this.partEnded(run);
    };
  }

  /** Handles the loss of a rank, or of memory that it has offered: the team fails after the rank had time to send the reason. */
  #lost(peer: number, status: Status): void {
    if (this.hasFailed) return;
    const { team } = this;
    // A transfer may fail before the messages are read that the rank sent earlier, such as the reason.
    team.later(() => {
      if (this.hasEnded) return;
      const isReleased = status === Status.INVALID_ADDR && !team.isLost(peer);
      if (isReleased) team.fail(rankFailed(peer, status, 'has released the memory that it had offered'));
      else team.fail(team.departures.errorOf(peer, team.departures.loss(peer) ?? { status, isClosed: false }));
    });
  }
}

function isOf({ run, round, peer }: Part, header: Pick<Header, 'slice' | 'round' | 'from'>): boolean {
  return run.slice === header.slice && round === header.round && peer === header.from;
}
