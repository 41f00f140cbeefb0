/**
 * The receiving side of a rendezvous whose bytes the sender moves: it requests windows, one for each free fragment that
 * peers may fill, and stores arriving bytes at their offsets.
 *
 * ```
 * ASKING --first DATA--> IN_MESSAGES
 *    |                       |
 *    '-----------+-----------'
 *                |-- last byte, or a failure here --> FINISHED    the sender gets a REPLY once no copy to device memory is in flight
 *                |-- REPLY of the sender ----------> ANSWERED    nothing of the sender is in flight
 *                '-- connection lost --------------> LOST        the sender may still write: the fragments of which it has keys are not used again
 * ```
 *
 * The windows are slices of staging/transfer.ts: sent by the peer, then copied to device memory.
 */

import { MessageId } from '../../api/layout/message.ts';
import { ATP_IN_TARGET, RTR_BYTES, writeRtr } from '../../api/layout/rendezvous.ts';
import { areHost, areMapped, bytesOf, scatter } from '../../api/memory/local.ts';
import type { Operation } from '../../api/operation/call.ts';
import type { CopyDone } from '../../api/staging/device-copier.ts';
import { type Fragments, fragmentBytesOf } from '../../api/staging/fragment-pool.ts';
import { type Slice, TransferMachine, type TransferPort, Verb } from '../../api/staging/transfer.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import type { ContextCore } from '../base/context-core.ts';
import { WorkerCounter } from '../base/observation.ts';
import type { SentKey } from '../base/request/operation-requests.ts';
import type { Request, RequestTransfer } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import type { LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { transfersOf } from '../transfer/move.ts';
import type { Staging } from '../transfer/staging.ts';
import type { Transfer } from '../transfer/transfer.ts';
import { KEY_LIST, type KeyRange, type OwnKey, unpackKeyList } from './own-key.ts';
import { nameProtocol, postReply } from './reply.ts';

/** Windows that are requested before the first reply. With a key of the memory, the sender may write all of it at once: more windows would be useless. */
const FIRST_WINDOWS = 2;

/** The fragment of a window; undefined if the CPU, or the sender, accesses the memory directly. */
type Fragment = MemoryHandle | undefined;

/** A requested window that is not full yet. */
interface OpenWindow {
  readonly window: Slice<Fragment>;
  /** True if the sender has a key of the fragment. */
  readonly isShared: boolean;
  readonly done: CopyDone;
  received: number;
}

/** A message to receive. */
export interface OfferedMessage {
  readonly request: Request;
  readonly connection: Connection;
  /** Request id of the sender. */
  readonly peerRequest: number;
  readonly pieces: readonly LocalPiece[];
}

/** See the diagram above. Windows are requested in the first two states only. */
const ReceiveState = { ASKING: 0, IN_MESSAGES: 1, FINISHED: 2, ANSWERED: 3, LOST: 4 } as const;
type ReceiveState = (typeof ReceiveState)[keyof typeof ReceiveState];

/** States in which nothing more is accepted from the sender. */
type ClosedState = typeof ReceiveState.FINISHED | typeof ReceiveState.ANSWERED | typeof ReceiveState.LOST;

type ReceiveVerb = typeof Verb.SEND | typeof Verb.COPY;

export class ReceiveTransfer implements RequestTransfer, TransferPort<Fragment, ReceiveVerb> {
  readonly request: Request;
  readonly byteLength: number;
  readonly #host: WorkerCore;
  readonly #staging: Staging;
  readonly #connection: Connection;
  readonly #peerRequest: number;
  readonly #pieces: readonly LocalPiece[];
  /** Key of the local memory, for a sender that can write it. */
  readonly #key: OwnKey | undefined;
  readonly #machine: TransferMachine<Fragment, ReceiveVerb>;
  readonly #open: OpenWindow[] = [];
  /** Windows with some bytes in their fragment. */
  readonly #staged: Set<Slice<Fragment>> = new Set();
  /** Fragments to which the sender may still write. */
  readonly #exposed: Set<Fragment> = new Set();
  #state: ReceiveState = ReceiveState.ASKING;

  /** @param key of the memory, for a sender that can write it; released by the receive */
  constructor(host: WorkerCore, staging: Staging, message: OfferedMessage, key: OwnKey | undefined) {
    this.#host = host;
    this.#staging = staging;
    this.request = message.request;
    this.#connection = message.connection;
    this.#peerRequest = message.peerRequest;
    this.#pieces = message.pieces;
    this.byteLength = bytesOf(message.pieces);
    this.#key = key;
    const route = {
      fill: Verb.SEND,
      drain: Verb.COPY,
      ...(areHost(message.pieces) ? {} : { fragments: this.#fragments() }),
      sliceLength: staging.fragmentBytes,
      depth: key === undefined ? staging.windowsMax : FIRST_WINDOWS,
    };
    this.#machine = new TransferMachine<Fragment, ReceiveVerb>(this, route, [0, this.byteLength]);
  }

  /** Requests the first windows. */
  start(): void {
    const { request } = this;
    request.joinRendezvous(this);
    request.lane = this.#connection.amLane;
    nameProtocol(request, 'rndv/am');
    // A software get already has a request id.
    if (request.requestId === 0) this.#connection.expect(request);
    else this.#connection.renew(request);
    this.#machine.advance();
  }

  /** Ends the receive without waiting for the sender. False if the sender has a key of the memory, because it may be writing to it. */
  stop(status: Status): boolean {
    if (this.#key !== undefined) return false;
    this.#close(status, ReceiveState.FINISHED);
    return true;
  }

  onReply(status: Status): void {
    this.#close(status, ReceiveState.ANSWERED);
  }

  onAbandoned(status: Status): void {
    this.#close(status, ReceiveState.LOST);
  }

  /** Nothing to do: {@link #close} releases all resources. */
  onEnded(): void {}

  /** Called when the sender has written a range. False for a range that was not requested. */
  onWritten(from: number, byteLength: number, flags: number): boolean {
    const open = this.#windowOf(from, byteLength);
    const inTarget = (flags & ATP_IN_TARGET) !== 0;
    const isPossible = inTarget ? this.#key !== undefined : open?.isShared === true;
    if (open === undefined || !isPossible) return false;
    this.#received(open, byteLength, !inTarget);
    return true;
  }

  /** Called when bytes of the message have arrived. */
  onData(from: number, byteLength: number, bytes: Uint8Array, start: number): void {
    const open = this.#windowOf(from, byteLength);
    if (open === undefined) return;
    if (this.#state === ReceiveState.ASKING) {
      this.#state = ReceiveState.IN_MESSAGES;
      this.#host.counters.count(WorkerCounter.RNDV_AM);
    }
    const { fragment, from: begin } = open.window;
    if (fragment !== undefined) fragmentBytesOf(fragment).set(bytes.subarray(start, start + byteLength), from - begin);
    else if (areMapped(this.#pieces)) scatter(this.#pieces, from, byteLength, bytes, start);
    this.#received(open, byteLength, fragment !== undefined);
  }

  /** Requests a window from the sender. */
  send(window: Slice<Fragment>, done: CopyDone): void {
    const { fragment, from, length: byteLength } = window;
    const connection = this.#connection;
    const key = this.#key;
    // The first window gives the sender the key of the target, which it keeps.
    const target = from === 0 ? key?.packed : undefined;
    const targetBytes = target?.byteLength ?? 0;
    const isKeyless = fragment === undefined || this.#host.context.scheme === 'am';
    const packed = isKeyless ? undefined : this.#host.context.memory.packedRkeyOf(fragment);
    const isShared = packed !== undefined && RTR_BYTES + targetBytes + packed.byteLength <= connection.amBcopyMax;
    this.#open.push({ window, isShared, done, received: 0 });
    this.#host.counters.count(fragment === undefined ? WorkerCounter.RNDV_RTR : WorkerCounter.RNDV_RTR_MTYPE);
    const header = writeRtr(connection.remoteId, {
      request: this.#peerRequest,
      peerRequest: this.request.requestId,
      targetBytes,
      from,
      byteLength,
      targetOffset: key?.offset ?? 0,
    });
    connection.post(MessageId.RTR, header, joined(target, isShared ? packed : undefined));
  }

  /** Copies a full fragment to device memory. */
  copy(window: Slice<Fragment>, done: CopyDone): void {
    const { fragment, from, length: byteLength } = window;
    if (fragment === undefined || !this.#staged.delete(window)) {
      done(areMapped(this.#pieces) ? Status.OK : Status.INVALID_ADDR);
      return;
    }
    this.#staging.write({ pieces: this.#pieces, from, byteLength }, fragment, done);
  }

  stopped(status: Status, error: unknown): void {
    if (error !== undefined) this.request.error ??= error;
    this.#close(status, ReceiveState.FINISHED);
  }

  ended(status: Status): void {
    this.#close(status, ReceiveState.FINISHED);
    if (this.#state === ReceiveState.FINISHED) postReply(this.#connection, this.#peerRequest, status);
    this.request.end(status);
  }

  /** The half of the fragments that peers fill. A fragment to which the sender may still write is retired. */
  #fragments(): Fragments<Fragment> {
    return {
      acquire: (run) => this.#staging.acquireToReceive(run),
      release: (fragment) => {
        if (fragment === undefined) return;
        if (this.#exposed.has(fragment)) this.#staging.retireReceived(fragment);
        else this.#staging.releaseReceived(fragment);
      },
    };
  }

  #received(open: OpenWindow, byteLength: number, isStaged: boolean): void {
    open.received += byteLength;
    if (isStaged) this.#staged.add(open.window);
    // The sender works window by window, so more windows in flight are useful.
    this.#machine.depth = this.#staging.windowsMax;
    if (open.received < open.window.length) {
      this.#machine.advance();
      return;
    }
    this.#open.splice(this.#open.indexOf(open), 1);
    open.done(Status.OK);
  }

  /** The window of a range; undefined if the range was not requested, or exceeds the window. */
  #windowOf(from: number, byteLength: number): OpenWindow | undefined {
    if (byteLength <= 0) return undefined;
    const isIn = ({ window }: OpenWindow): boolean =>
      from >= window.from && from + byteLength <= window.from + window.length;
    const open = this.#open.find(isIn);
    return open !== undefined && open.received + byteLength <= open.window.length ? open : undefined;
  }

  /** Accepts nothing more from the sender; the request ends when all writes to device memory have ended. */
  #close(status: Status, state: ClosedState): void {
    if (this.#state >= ReceiveState.FINISHED) return;
    this.#state = state;
    const { request } = this;
    if (request.requestId !== 0) this.#connection.forget(request);
    this.#key?.release();
    this.#machine.stop(status);
    for (const { window, isShared, done } of this.#open.splice(0)) {
      // Unless the sender has finished, it may still write to a fragment whose key it has, so no other message gets that fragment.
      if (isShared && state !== ReceiveState.ANSWERED) this.#exposed.add(window.fragment);
      done(Status.CANCELED);
    }
  }
}

/** Concatenates two keys. */
function joined(first: Uint8Array | undefined, second: Uint8Array | undefined): Uint8Array | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  const both = new Uint8Array(first.byteLength + second.byteLength);
  both.set(first);
  both.set(second, first.byteLength);
  return both;
}

/* Memory of the peer for a message, by the keys from the peer: one range, or several in the order of the message. */

/** A range of peer memory, whose key the connection keeps. */
export interface KeyedRange {
  readonly rkey: RemoteKey;
  /** Offset of the range in the memory of the key. */
  readonly offset: number;
  /** Range of the message. */
  readonly from: number;
  readonly byteLength: number;
}

/** Acquires the ranges for a message of this length; undefined if no lane can use the keys. {@link releaseRanges} releases them. */
export function acquireRanges(
  context: ContextCore,
  connection: Connection,
  { packed, offset }: SentKey,
  byteLength: number,
): readonly KeyedRange[] | undefined {
  const sent: readonly KeyRange[] | undefined =
    offset === KEY_LIST ? unpackKeyList(packed, byteLength) : [{ packed, offset, byteLength }];
  if (sent === undefined) return undefined;
  const ranges: KeyedRange[] = [];
  let from = 0;
  for (const range of sent) {
    const rkey = acquirePeerKey(context, connection, range.packed);
    if (rkey === undefined) {
      releaseRanges(connection, ranges);
      return undefined;
    }
    ranges.push({ rkey, offset: range.offset, from, byteLength: range.byteLength });
    from += range.byteLength;
  }
  return ranges;
}

/** Releases keys. @param isStale true if their memory may have been freed: then they are not cached */
export function releaseRanges({ rkeys }: Connection, ranges: readonly KeyedRange[], isStale = false): void {
  for (const { rkey } of ranges) rkeys.release(rkey, isStale);
}

/** The transfers between the memory of a message and all ranges; undefined if the lanes alone cannot move all of the bytes. */
export function rangeTransfers(
  host: WorkerCore,
  [operation, connection]: readonly [Operation, Connection],
  pieces: readonly LocalPiece[],
  ranges: readonly KeyedRange[],
): readonly Transfer[] | undefined {
  const transfers: Transfer[] = [];
  for (const range of ranges) {
    const found = transfersOf(host, { operation, connection, pieces, ...range });
    if (found === undefined) return undefined;
    transfers.push(...found);
  }
  return transfers;
}

/** Acquires a key of the peer, cached or unpacked now, for lanes only; `connection.rkeys.release` releases it. Undefined if no lane can use it. */
export function acquirePeerKey(
  context: ContextCore,
  connection: Connection,
  packed: Uint8Array,
): RemoteKey | undefined {
  try {
    return connection.rkeys.acquire(packed, (kept) => context.unpackRkey(kept, connection, { messages: false }));
  } catch {
    // Without a usable key, the bytes come in messages.
    return undefined;
  }
}
