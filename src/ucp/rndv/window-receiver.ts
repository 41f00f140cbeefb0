/**
 * The receiving side of a rendezvous whose data the sender moves: asks for windows, as many at a time as there are fragments for, and puts what comes
 * to its place. How the sender moves a window is the sender's choice.
 */

import { Status } from '../../ucs/type/status.ts';
import { areHost, areMapped, bytesOf, scatter } from '../api/local-bytes.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection, Request, RequestTransfer } from '../base/request.ts';
import { WorkerCounter } from '../base/worker-counters.ts';
import type { LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { Staging } from '../staging/staging.ts';
import { MessageId } from '../wire/message.ts';
import { RTR_BYTES, writeRtr } from '../wire/rtr.ts';
import { ATP_IN_TARGET } from '../wire/window.ts';
import type { OwnKey } from './own-key.ts';
import { nameProtocol, postReply } from './reply.ts';

/** Windows that are asked for before the sender has shown its way, where it may write everything at once. */
const FIRST_WINDOWS = 2;

/** A window that is being filled. */
interface ReceiveWindow {
  readonly offset: number;
  readonly byteLength: number;
  /** Takes what is for device memory; undefined where the CPU or the sender reaches the memory. */
  readonly fragment: MemoryHandle | undefined;
  /** The sender has a key of the fragment. */
  isShared: boolean;
  received: number;
  /** Some of it is in the fragment. */
  isStaged: boolean;
}

/** What a receiver keeps of one message. */
export class ReceiveTransfer implements RequestTransfer {
  readonly request: Request;
  readonly connection: Connection;
  readonly peerRequest: number;
  readonly pieces: readonly LocalPiece[];
  readonly byteLength: number;
  readonly isHost: boolean;
  /** Key of the own memory, for a sender that can write it. */
  key: OwnKey | undefined = undefined;
  /** Windows that are not full. */
  readonly windows: ReceiveWindow[] = [];
  /** Windows at most that are not finished. */
  depth = 0;
  /** First byte that nobody has asked for. */
  asked = 0;
  finished = 0;
  /** Fragments that are waited for, and those that are being written to device memory. */
  waiting = 0;
  writing = 0;
  isCounted = false;
  /** Nothing more is taken from the sender; the request ends with `outcome` when nothing is being written. */
  ended = false;
  outcome: Status = Status.OK;
  /** The sender waits for an answer. */
  answers = false;

  constructor(request: Request, connection: Connection, peerRequest: number, pieces: readonly LocalPiece[]) {
    this.request = request;
    this.connection = connection;
    this.peerRequest = peerRequest;
    this.pieces = pieces;
    this.byteLength = bytesOf(pieces);
    this.isHost = areHost(pieces);
  }
}

/** Who ends a receive: this worker, the sender, which has nothing under way then, or the loss of it, which may have. */
type Cause = 'own' | 'sender' | 'loss';

/** The receiving side of one worker. */
export class WindowReceiver {
  readonly #host: ProtocolHost;
  readonly #staging: Staging;

  constructor(host: ProtocolHost, staging: Staging) {
    this.#host = host;
    this.#staging = staging;
  }

  /** Receives a message. @param key of its memory, for a sender that can write it: given back here */
  receive(transfer: ReceiveTransfer, key: OwnKey | undefined): void {
    const { request, connection } = transfer;
    transfer.key = key;
    transfer.depth = key === undefined ? this.#staging.windowsMax : FIRST_WINDOWS;
    request.transfer = transfer;
    request.lane = connection.amLane;
    nameProtocol(request, 'rndv/am');
    request.replyHandler = (_request, status) => this.#end(transfer, status, 'sender');
    request.abandon = (_request, status) => this.#end(transfer, status, 'loss');
    // A get through messages has asked already.
    if (request.requestId === 0) connection.expect(request);
    else connection.renew(request);
    this.#askMore(transfer);
  }

  /** The sender has written a part. False for one that was not asked for. */
  onWritten(transfer: ReceiveTransfer, from: number, byteLength: number, flags: number): boolean {
    const window = openWindow(transfer, from, byteLength);
    const inTarget = (flags & ATP_IN_TARGET) !== 0;
    const isPossible = inTarget ? transfer.key !== undefined : window?.isShared === true;
    if (window === undefined || !isPossible) return false;
    this.#received(transfer, window, byteLength, !inTarget);
    return true;
  }

  /** Bytes of a message have come. */
  onData(transfer: ReceiveTransfer, from: number, byteLength: number, bytes: Uint8Array, start: number): void {
    const window = openWindow(transfer, from, byteLength);
    if (window === undefined) return;
    if (!transfer.isCounted) this.#host.counters.count(WorkerCounter.RNDV_AM);
    transfer.isCounted = true;
    const { fragment } = window;
    if (fragment !== undefined) fragment.bytes!.set(bytes.subarray(start, start + byteLength), from - window.offset);
    else if (areMapped(transfer.pieces)) scatter(transfer.pieces, from, byteLength, bytes, start);
    this.#received(transfer, window, byteLength, fragment !== undefined);
  }

  #received(transfer: ReceiveTransfer, window: ReceiveWindow, byteLength: number, isStaged: boolean): void {
    window.received += byteLength;
    window.isStaged ||= isStaged;
    // The sender goes by windows: now they are worth having.
    transfer.depth = this.#staging.windowsMax;
    if (window.received === window.byteLength) this.#full(transfer, window);
    else this.#askMore(transfer);
  }

  #full(transfer: ReceiveTransfer, window: ReceiveWindow): void {
    const { fragment, offset, byteLength, isStaged } = window;
    transfer.windows.splice(transfer.windows.indexOf(window), 1);
    if (fragment === undefined || !isStaged) {
      if (fragment !== undefined) this.#staging.releaseReceived(fragment);
      this.#finished(transfer, byteLength, areMapped(transfer.pieces) ? Status.OK : Status.INVALID_ADDR);
      return;
    }
    transfer.writing += 1;
    this.#staging.write(transfer.pieces, offset, fragment, byteLength, (status, error) => {
      if (error !== undefined) transfer.request.error ??= error;
      transfer.writing -= 1;
      this.#staging.releaseReceived(fragment);
      this.#finished(transfer, byteLength, status);
    });
  }

  #finished(transfer: ReceiveTransfer, byteLength: number, status: Status): void {
    transfer.finished += byteLength;
    if (transfer.ended) settle(transfer);
    else if (status < 0 || transfer.finished === transfer.byteLength) this.#end(transfer, status, 'own');
    else this.#askMore(transfer);
  }

  /** Asks for windows as long as there are bytes and room. */
  #askMore(transfer: ReceiveTransfer): void {
    const { fragmentBytes } = this.#staging;
    while (!transfer.ended && transfer.asked + transfer.waiting * fragmentBytes < transfer.byteLength) {
      if (transfer.windows.length + transfer.waiting + transfer.writing >= transfer.depth) return;
      if (transfer.isHost) this.#ask(transfer, undefined);
      else this.#askInto(transfer);
    }
  }

  /** Asks for a window when there is a fragment for it. */
  #askInto(transfer: ReceiveTransfer): void {
    transfer.waiting += 1;
    this.#staging.acquireToReceive((fragment, refusal) => {
      transfer.waiting -= 1;
      if (fragment === undefined) this.#end(transfer, refusal, 'own');
      else if (transfer.ended) this.#staging.releaseReceived(fragment);
      else this.#ask(transfer, fragment);
    });
  }

  #ask(transfer: ReceiveTransfer, fragment: MemoryHandle | undefined): void {
    const { connection, request, key, asked: offset } = transfer;
    const byteLength = Math.min(this.#staging.fragmentBytes, transfer.byteLength - offset);
    transfer.asked += byteLength;
    // The sender keeps the key of the target from the first window on.
    const target = offset === 0 ? key?.packed : undefined;
    const targetBytes = target?.byteLength ?? 0;
    const isKeyless = fragment === undefined || this.#host.context.scheme === 'am';
    const packed = isKeyless ? undefined : this.#staging.packedKeyOf(fragment);
    const isShared = packed !== undefined && RTR_BYTES + targetBytes + packed.byteLength <= connection.amBcopyMax;
    transfer.windows.push({ offset, byteLength, fragment, isShared, received: 0, isStaged: false });
    const isInto = fragment !== undefined;
    this.#host.counters.count(isInto ? WorkerCounter.RNDV_RTR_MTYPE : WorkerCounter.RNDV_RTR);
    const header = writeRtr(connection.remoteId, {
      request: transfer.peerRequest,
      peerRequest: request.requestId,
      targetBytes,
      from: offset,
      byteLength,
      targetOffset: key?.offset ?? 0,
    });
    connection.post(MessageId.RTR, header, joined(target, isShared ? packed : undefined));
  }

  #end(transfer: ReceiveTransfer, status: Status, cause: Cause): void {
    if (transfer.ended) return;
    const { request, connection } = transfer;
    transfer.ended = true;
    transfer.outcome = status;
    transfer.answers = cause === 'own';
    if (request.requestId !== 0) connection.forget(request);
    transfer.key?.release();
    for (const { fragment, isShared } of transfer.windows.splice(0)) {
      if (fragment === undefined) continue;
      // Whoever has the key of the fragment may be writing to it: nobody else gets it then.
      if (isShared && cause !== 'sender') this.#staging.retireReceived(fragment);
      else this.#staging.releaseReceived(fragment);
    }
    settle(transfer);
  }
}

/** The window that a part is of; undefined for a part that was not asked for, or that is too much. */
function openWindow({ windows, ended }: ReceiveTransfer, from: number, byteLength: number): ReceiveWindow | undefined {
  if (ended || byteLength <= 0) return undefined;
  const window = windows.find((open) => from >= open.offset && from + byteLength <= open.offset + open.byteLength);
  return window !== undefined && window.received + byteLength <= window.byteLength ? window : undefined;
}

/** Ends the request if it has an outcome and nothing is being written. */
function settle({ request, connection, peerRequest, ended, writing, outcome, answers }: ReceiveTransfer): void {
  if (!ended || writing > 0) return;
  if (answers) postReply(connection, peerRequest, outcome);
  request.end(outcome);
}

/** Two keys behind each other. */
function joined(first: Uint8Array | undefined, second: Uint8Array | undefined): Uint8Array | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  const both = new Uint8Array(first.byteLength + second.byteLength);
  both.set(first);
  both.set(second, first.byteLength);
  return both;
}
