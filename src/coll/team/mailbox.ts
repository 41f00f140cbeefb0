/**
 * The messages of a team: passes each to its operation, keeps those of operations that this rank has not begun yet, and detects ranks that call different
 * operations.
 */

import type { UcxError } from '../../ucs/type/error.ts';
import { Status, statusOf } from '../../ucs/type/status.ts';
import { mismatch, reportedBy } from './layout/errors.ts';
import { describeSignature, type Header, isCheck, isSame, Kind, restOf, type Signature } from './layout/header.ts';
import type { Loss } from './members.ts';
import type { Operation } from './run/operation.ts';
import { discard, keep, type Message } from './run/service.ts';
import type { TeamState } from './team-state.ts';

/** How many ended operations are remembered with their signatures, to detect messages that should not come any more. */
const HISTORY = 64;

interface Waiting {
  readonly header: Header;
  readonly message: Message;
}

/** The mailbox of one team. */
export class Mailbox {
  readonly #state: TeamState;
  readonly #operations: ReadonlyMap<number, Operation>;
  readonly #onLeft: (rank: number, loss: Loss) => void;
  /** Messages of operations that this rank has not begun, by operation number. */
  readonly #future: Map<number, Waiting[]> = new Map();
  readonly #history: Signature[] = [];

  /**
   * @param operations those in progress, by operation number
   * @param onLeft called when a rank has left the team
   */
  constructor(
    state: TeamState,
    operations: ReadonlyMap<number, Operation>,
    onLeft: (rank: number, loss: Loss) => void,
  ) {
    this.#state = state;
    this.#operations = operations;
    this.#onLeft = onLeft;
  }

  /** Passes an operation that begins the messages that were kept for it. */
  begun(operation: Operation): void {
    const { sequence, signature } = operation;
    this.#history[sequence % HISTORY] = signature;
    for (const { header, message } of this.#take(sequence)) this.#deliver(operation, header, message);
  }

  /** Handles a message of another rank. */
  deliver(header: Header, message: Message): void {
    const state = this.#state;
    const { from, sequence, kind } = header;
    if (!Number.isInteger(from) || from >= state.parts.size || from === state.rank) {
      discard(message);
      return;
    }
    if (kind === Kind.FAILURE || isCheck(kind)) {
      if (kind === Kind.FAILURE) this.#reported(header, restOf(message.header));
      else this.#onCheck(header);
      discard(message);
      return;
    }
    if (kind === Kind.GREETING || kind === Kind.CHOICE || kind === Kind.LEAVE) {
      const { members, memberOf } = state.parts;
      if (kind === Kind.LEAVE) this.#onLeave(header, restOf(message.header));
      else members.greeted(memberOf[from]!, message.replyEndpoint, kind === Kind.CHOICE);
      discard(message);
      return;
    }
    const operation = this.#operations.get(sequence);
    if (operation !== undefined) this.#deliver(operation, header, message);
    else if (state.failure !== undefined || state.isClosed) {
      if (kind === Kind.READY) state.sendNack(header);
      discard(message);
    } else if (sequence >= state.next) this.#keep(header, message);
    else {
      // A schedule consumes all its messages: the sender runs another operation.
      discard(message);
      this.#mismatch(header);
      if (kind === Kind.READY) state.sendNack(header);
    }
  }

  /** Sends a NACK to every rank that has offered memory for an operation that this rank has not begun. */
  nackFuture(error: UcxError): void {
    for (const sequence of [...this.#future.keys()]) {
      for (const { header, message } of this.#take(sequence)) {
        if (header.kind === Kind.READY) this.#state.sendNack(header, error);
        discard(message);
      }
    }
  }

  #deliver(operation: Operation, header: Header, message: Message): void {
    if (operation.hasFailed || isSame(operation.signature, header.signature)) {
      operation.onMessage(header, message);
      return;
    }
    discard(message);
    this.#mismatch(header);
    if (header.kind === Kind.READY) this.#state.sendNack(header);
  }

  /** Compares the operation in which another rank waits with the one of this rank. The other rank may not know yet that the team has failed. */
  #onCheck(header: Header): void {
    const { sequence, signature, from } = header;
    const { failure } = this.#state;
    if (failure !== undefined) {
      this.#state.notifyFailure(from, failure);
      return;
    }
    const own = this.#signatureOf(sequence);
    if (own === undefined) return;
    if (isSame(own, signature)) this.#operations.get(sequence)?.onCheck(header);
    else this.#mismatch(header);
  }

  /** The operation that this rank called; undefined if it has not begun it, or has ended it long ago. */
  #signatureOf(sequence: number): Signature | undefined {
    const { next } = this.#state;
    const isRecent = sequence < next && sequence + HISTORY >= next;
    return this.#operations.get(sequence)?.signature ?? (isRecent ? this.#history[sequence % HISTORY] : undefined);
  }

  #mismatch({ sequence, signature, from }: Header): void {
    const own = this.#signatureOf(sequence);
    const description = own === undefined ? 'a different operation earlier' : describeSignature(own);
    const other = { rank: from, operation: describeSignature(signature) };
    this.#state.fail(mismatch(sequence, { rank: this.#state.rank, operation: description }, other));
  }

  #reported({ from, offset, status }: Header, text: Uint8Array): void {
    this.#state.adopt(reportedBy(from, offset, statusOf(status), new TextDecoder().decode(text)));
  }

  #onLeave(header: Header, text: Uint8Array): void {
    const { from, status } = header;
    const hasFailed = status !== Status.OK;
    const loss = this.#state.departures.left(from, hasFailed, this.#state.failure);
    if (loss === undefined) return;
    // The message of the rank that detected the failure may arrive later than this one.
    if (hasFailed) this.#reported(header, text);
    this.#onLeft(from, loss);
  }

  #keep(header: Header, message: Message): void {
    const { sequence } = header;
    const waiting = this.#future.get(sequence) ?? [];
    this.#future.set(sequence, waiting);
    waiting.push({ header, message: keep(message) });
  }

  #take(sequence: number): readonly Waiting[] {
    const waiting = this.#future.get(sequence) ?? [];
    this.#future.delete(sequence);
    return waiting;
  }
}
