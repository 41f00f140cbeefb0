/**
 * A message that is sent by rendezvous: its memory, its operations in flight, and its end. It sends nothing by itself.
 *
 * ```
 * OFFERED --first write to the receiver--> WRITING --first ATP--> NAMED
 *    |                                        |                     |
 *    '----------------------------------------+---------------------+-- REPLY, failure or loss --> ENDING --nothing in flight--> ENDED
 * ```
 *
 * A request that ends for another reason takes the message from every state to ENDED.
 */

import { areHost, bytesOf } from '../../api/memory/local.ts';
import { CountedCompletion } from '../../api/operation/completion.ts';
import type { WindowPipeline } from '../../api/staging/transfer.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection, Request, RequestTransfer } from '../base/request/request.ts';
import type { LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { OwnKey } from './own-key.ts';
import { type RemoteRange, releaseRanges } from './remote-ranges.ts';
import { postReply } from './reply.ts';

/** The states of a message: see the diagram above. */
export const SendState = {
  /** The receiver may read the memory, or ask for windows; windows may go in messages. */
  OFFERED: 0,
  /** Windows are written to memory of the receiver. */
  WRITING: 1,
  /** The same, and the receiver knows what carries the bytes. */
  NAMED: 2,
  /** The outcome is known: nothing more is started. */
  ENDING: 3,
  /** The request has ended. */
  ENDED: 4,
} as const;
export type SendState = (typeof SendState)[keyof typeof SendState];

/**
 * One message. One part is the peer, until the outcome is known; the others are writes and windows in flight: transports, or the worker itself, read the
 * memory or a fragment.
 */
export class SendTransfer extends CountedCompletion implements RequestTransfer {
  override count = 1;
  readonly request: Request;
  readonly pieces: readonly LocalPiece[];
  /** The key of the memory, for a receiver that can read it. */
  readonly key: OwnKey | undefined;
  readonly byteLength: number;
  readonly isHost: boolean;
  /** First byte that the receiver has not asked for. */
  asked = 0;
  /** The memory of the receiver, if it has given keys of it. */
  target: readonly RemoteRange[] | undefined = undefined;
  /** Fragments that are waited for. */
  waiting = 0;
  /** Windows in flight that go through fragments. */
  readonly staged: WindowPipeline<MemoryHandle>[] = [];
  state: SendState = SendState.OFFERED;
  /** The receiver and its request, if it must be notified of the outcome. */
  #answerTo: Connection | undefined = undefined;
  #peerRequest = 0;

  constructor(request: Request, pieces: readonly LocalPiece[], key: OwnKey | undefined) {
    super();
    this.request = request;
    this.pieces = pieces;
    this.key = key;
    this.byteLength = bytesOf(pieces);
    this.isHost = areHost(pieces);
  }

  /** Whether the receiver has not asked for anything yet, as far as is known here. */
  get isUnanswered(): boolean {
    return this.state === SendState.OFFERED && this.asked === 0;
  }

  /** Nothing more is started. */
  get isEnding(): boolean {
    return this.state >= SendState.ENDING;
  }

  /** The one range of the target, to which windows are written; undefined for several. */
  get window(): RemoteRange | undefined {
    return this.target?.length === 1 ? this.target[0] : undefined;
  }

  /** Releases the keys of the target if no window is written there: the number of kept keys is bounded. */
  dropUselessTarget(connection: Connection): void {
    if (this.target === undefined || this.window?.rkey.parts.some((part) => part !== undefined) === true) return;
    releaseRanges(connection, this.target);
    this.target = undefined;
  }

  onReply(status: Status): void {
    this.end(status);
  }

  onAbandoned(status: Status): void {
    this.end(status);
  }

  /** Ends the message, because the peer has ended it or is gone. The request ends when nothing reads its memory any more. */
  end(status: Status): void {
    if (this.isEnding) return;
    this.state = SendState.ENDING;
    this.#stopWindows();
    this.complete(status);
  }

  /**
   * Takes the message back from a peer that cannot answer: the request ends, and the peer cannot read its memory any more. False if the peer has asked for
   * bytes, or the key cannot be taken back.
   */
  takeBack({ takenBack }: Connection): boolean {
    const { request } = this;
    if (!this.isUnanswered || this.key?.revoke() === false) return false;
    takenBack.add(request.requestId);
    request.end(Status.CANCELED);
    return true;
  }

  /** A window has ended. */
  unstage(window: WindowPipeline<MemoryHandle>): void {
    const at = this.staged.indexOf(window);
    if (at >= 0) this.staged.splice(at, 1);
  }

  #stopWindows(): void {
    if (this.staged.length === 0) return;
    for (const window of [...this.staged]) window.stop(Status.CANCELED);
  }

  /** Ends both sides of the message: the receiver is notified when nothing writes its memory any more. */
  endBoth(connection: Connection, peerRequest: number, status: Status): void {
    if (this.isEnding) return;
    this.#answerTo = connection;
    this.#peerRequest = peerRequest;
    // Messages of the peer to the old request id are ignored from here on; flushes and closes wait for the end.
    if (this.request.requestId !== 0) connection.renew(this.request);
    this.end(status);
  }

  /** Called when the message has ended and nothing is in flight: ends the request. */
  onComplete(): void {
    this.state = SendState.ENDED;
    if (this.#answerTo !== undefined) {
      postReply(this.#answerTo, this.#peerRequest, this.failure, 0, 0, this.request);
    }
    this.request.end(this.failure);
  }

  /** Releases the resources of the message, also if it is cancelled. */
  onEnded(): void {
    this.state = SendState.ENDED;
    this.#stopWindows();
    this.key?.release();
    if (this.target !== undefined) releaseRanges(this.request.connection!, this.target, this.failure < 0);
    this.target = undefined;
  }
}
