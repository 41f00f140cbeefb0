/** What the sender of a rendezvous keeps: the message, and each window of it that the receiver has asked for. Data, and how it ends. */

import { Status } from '../../ucs/type/status.ts';
import { areHost, bytesOf } from '../api/local-bytes.ts';
import type { Connection, Request, RequestTransfer } from '../base/request.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { OwnKey } from './own-key.ts';
import { postReply } from './reply.ts';

/** One message. */
export class SendTransfer implements RequestTransfer {
  readonly request: Request;
  readonly pieces: readonly LocalPiece[];
  /** The key of the memory, for a receiver that can read it. */
  readonly key: OwnKey | undefined;
  readonly byteLength: number;
  readonly isHost: boolean;
  /** First byte that the receiver has not asked for. */
  asked = 0;
  /** The memory of the receiver, where it has given a key of it, and the byte of it at which the message begins. */
  target: RemoteKey | undefined = undefined;
  targetOffset = 0;
  /** Fragments that are waited for. */
  waiting = 0;
  /** Parts under way: transports, or the worker itself, read the memory or a fragment. */
  open = 0;
  /** Windows are written. */
  isPipelined = false;
  /** The receiver has heard what carries the bytes. */
  isNamed = false;
  /** Nothing more is started. */
  ended = false;
  #outcome: Status = Status.OK;
  /** The receiver, if it shall hear of the outcome, and its request. */
  #answerTo: Connection | undefined = undefined;
  #peerRequest = 0;
  #isSettled = false;

  constructor(request: Request, pieces: readonly LocalPiece[], key: OwnKey | undefined) {
    this.request = request;
    this.pieces = pieces;
    this.key = key;
    this.byteLength = bytesOf(pieces);
    this.isHost = areHost(pieces);
  }

  /** Gives the key of the target back where no lane has a part of it: kept keys have a bound. */
  dropUselessTarget({ rkeys }: Connection): void {
    const { target } = this;
    if (target === undefined || target.parts.some((part) => part !== undefined)) return;
    rkeys.release(target);
    this.target = undefined;
  }

  /** Ends the message, once nothing reads its memory any more: the peer has said so, or is gone. */
  end(status: Status): void {
    if (!this.ended) {
      this.ended = true;
      this.#outcome = status;
    }
    this.settle();
  }

  /** Ends both sides of the message: the receiver is told when nothing writes its memory any more. */
  endBoth(connection: Connection, peerRequest: number, status: Status): void {
    if (this.ended) return;
    this.#answerTo = connection;
    this.#peerRequest = peerRequest;
    // What the peer says to it now is ignored; flushes and closes wait for the end.
    if (this.request.requestId !== 0) connection.renew(this.request);
    this.end(status);
  }

  /** Ends the request if it has an outcome and nothing is under way. */
  settle(): void {
    if (!this.ended || this.open > 0 || this.#isSettled) return;
    this.#isSettled = true;
    if (this.#answerTo !== undefined) {
      postReply(this.#answerTo, this.#peerRequest, this.#outcome, 0, 0, this.request);
    }
    this.request.end(this.#outcome);
  }

  /** Gives back what the message holds; when its request ends, however that comes. */
  release(): void {
    this.ended = true;
    this.#isSettled = true;
    this.key?.release();
    if (this.target !== undefined) this.request.connection!.rkeys.release(this.target, this.#outcome < 0);
    this.target = undefined;
  }
}

/** Memory of the receiver that a window may be written to. */
export interface Destination {
  readonly rkey: RemoteKey;
  /** Byte of it at which the window begins. */
  readonly offset: number;
  /** It is the memory that is received into, not a fragment. */
  readonly isTarget: boolean;
}

/** A window that the receiver has asked for. */
export class SendWindow {
  readonly transfer: SendTransfer;
  readonly connection: Connection;
  readonly peerRequest: number;
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
  /** Where it may be written, the best first. */
  readonly destinations: readonly Destination[];
  /** The key of the receiver's fragment: given back with the last part. */
  readonly #fragment: RemoteKey | undefined;
  /** One for who starts the parts. */
  #parts = 1;

  constructor(
    transfer: SendTransfer,
    connection: Connection,
    asked: { readonly peerRequest: number; readonly from: number; readonly byteLength: number },
    fragment: RemoteKey | undefined,
  ) {
    this.transfer = transfer;
    this.connection = connection;
    this.peerRequest = asked.peerRequest;
    this.from = asked.from;
    this.byteLength = asked.byteLength;
    this.#fragment = fragment;
    const destinations: Destination[] = [];
    const { target, targetOffset } = transfer;
    if (target !== undefined) destinations.push({ rkey: target, offset: targetOffset + this.from, isTarget: true });
    if (fragment !== undefined) destinations.push({ rkey: fragment, offset: 0, isTarget: false });
    this.destinations = destinations;
  }

  /** A part of it is going to be sent. */
  addPart(): void {
    this.#parts += 1;
  }

  /** A part has been sent, or is not going to be; and all parts have been added. */
  partDone(): void {
    this.#parts -= 1;
    if (this.#parts === 0 && this.#fragment !== undefined) this.connection.rkeys.release(this.#fragment);
  }
}
