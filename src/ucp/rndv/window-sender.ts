/**
 * The sending side of the rendezvous: answers what receivers ask for. It writes the whole message at once if lanes reach the memory of the receiver, else window by
 * window. It asks for nothing by itself.
 */

import { Status } from '../../ucs/type/status.ts';
import { areMapped } from '../api/memory/local-bytes.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection, Request } from '../base/request/request.ts';
import { WorkerCounter } from '../base/worker-counters.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import { Operation } from '../proto/selection.ts';
import type { Staging } from '../staging/staging.ts';
import type { OwnKey } from './own-key.ts';
import { acquirePeerKey } from './peer-keys.ts';
import { moveRemote, transfersOf } from './remote-move.ts';
import { nameProtocol } from './reply.ts';
import { SendTransfer } from './send-transfer.ts';
import { type AskedRange, SendWindow } from './send-window.ts';

/** Longest window: windows are fragments of the receiver, and UCX_RNDV_FRAG_SIZE allows no longer ones. */
const WINDOW_BYTES_MAX: number = 16 * 2 ** 20;
/** Fragments that one message may wait for; a receiver that keeps to the protocol needs no more. */
const WAITING_MAX = 16_384;

/** The window that an RTR asks for. */
export interface AskedWindow extends AskedRange {
  /** Key of the memory that is received into, with the first window only, and the byte of it at which the message begins. */
  readonly targetKey: Uint8Array | undefined;
  readonly targetOffset: number;
  /** Key of the fragment that takes the window. */
  readonly fragmentKey: Uint8Array | undefined;
}

/** The sending side of one worker. */
export class WindowSender {
  readonly #host: ProtocolHost;
  readonly #staging: Staging;

  constructor(host: ProtocolHost, staging: Staging) {
    this.#host = host;
    this.#staging = staging;
  }

  /** Makes a request the sender of a rendezvous: it ends with the answer of the peer, and when nothing reads its memory any more. */
  offer(request: Request, pieces: readonly LocalPiece[], key: OwnKey | undefined): void {
    request.joinRendezvous(new SendTransfer(request, pieces, key));
  }

  /** The peer asks for the next window of a message. A window out of order or out of bounds is ignored. */
  onRtr(transfer: SendTransfer, connection: Connection, asked: AskedWindow): void {
    const { from, byteLength, peerRequest, targetKey, targetOffset, fragmentKey } = asked;
    const parts = transfer.isHost ? 1 : Math.ceil(byteLength / this.#staging.fragmentBytes);
    const isNext = from === transfer.asked && byteLength > 0 && from + byteLength <= transfer.byteLength;
    const isBounded = byteLength <= WINDOW_BYTES_MAX && transfer.waiting + parts <= WAITING_MAX;
    if (transfer.isEnding || !isNext || !isBounded) return;
    if (!areMapped(transfer.pieces)) {
      transfer.endBoth(connection, peerRequest, Status.INVALID_ADDR);
      return;
    }
    const { context } = this.#host;
    const isWriter = context.scheme !== 'am';
    if (from === 0 && targetKey !== undefined && isWriter) {
      transfer.target = acquirePeerKey(context, connection, targetKey);
      transfer.targetOffset = targetOffset;
      if (context.scheme !== 'put_ppln' && this.#writeAll(transfer, connection, peerRequest)) return;
      transfer.dropUselessTarget(connection);
    }
    transfer.asked += byteLength;
    const fragment =
      fragmentKey === undefined || !isWriter ? undefined : acquirePeerKey(context, connection, fragmentKey);
    new SendWindow(this.#host, this.#staging, [transfer, connection], asked, fragment).start();
  }

  /** Writes the receiver's memory at once if lanes can: true when the transfer has started or ended. */
  #writeAll(transfer: SendTransfer, connection: Connection, peerRequest: number): boolean {
    const { request, target, targetOffset, pieces, byteLength } = transfer;
    if (target === undefined) return false;
    const operation = Operation.PUT;
    const write = { operation, connection, pieces, from: 0, byteLength, rkey: target, offset: targetOffset };
    const transfers = transfersOf(this.#host, write);
    if (transfers === undefined) return false;
    // The receiver may have asked for more windows already: they are ignored. Flushes and closes wait for the end.
    connection.renew(request);
    transfer.asked = byteLength;
    this.#host.counters.count(WorkerCounter.RNDV_PUT_ZCOPY);
    nameProtocol(request, 'rndv/put');
    transfer.inFlight += 1;
    moveRemote(this.#host, request, write, transfers, (status) => {
      transfer.inFlight -= 1;
      transfer.endBoth(connection, peerRequest, status);
      transfer.settle();
    });
    return true;
  }
}
