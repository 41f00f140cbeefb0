/**
 * The sending side of a rendezvous: writes what the receiver asks for to where it asks for it, out of the memory of the message where a lane reaches
 * that, else out of fragments; sends it in messages where no lane writes the receiver's memory. It asks for nothing by itself.
 */

import { Status } from '../../ucs/type/status.ts';
import { areMapped } from '../api/local-bytes.ts';
import { sendPieces } from '../base/message-packer.ts';
import { SendRequest } from '../base/message-request.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection, Request } from '../base/request.ts';
import { WorkerCounter } from '../base/worker-counters.ts';
import { type LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { Staging } from '../staging/staging.ts';
import { MessageId } from '../wire/message.ts';
import { ATP_IN_TARGET, DATA_BYTES, writeAtp, writeData } from '../wire/window.ts';
import type { OwnKey } from './own-key.ts';
import { acquirePeerKey } from './peer-keys.ts';
import { canWrite, type RemoteWrite, writeRemote } from './remote-write.ts';
import { carrierOf, nameProtocol } from './reply.ts';
import { type Destination, SendTransfer, SendWindow } from './send-window.ts';

/** Windows are fragments of the receiver: no longer than UCX_RNDV_FRAG_SIZE may be. */
const WINDOW_BYTES_MAX: number = 16 * 2 ** 20;
/** Fragments that one message may wait for; windows of no receiver that keeps to the protocol need more. */
const WAITING_MAX = 16_384;

/** What an RTR asks for. */
export interface AskedWindow {
  /** Request of the receiver. */
  readonly peerRequest: number;
  readonly from: number;
  readonly byteLength: number;
  /** Key of the memory that is received into, with the first window only, and the byte of it at which the message begins. */
  readonly targetKey: Uint8Array | undefined;
  readonly targetOffset: number;
  /** Key of the fragment that takes the window. */
  readonly fragmentKey: Uint8Array | undefined;
}

/** A part of a window: the whole of it, or what a fragment takes. */
interface Part {
  readonly window: SendWindow;
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
  /** What it is sent from, and the byte of that at which it begins. */
  readonly pieces: readonly LocalPiece[];
  readonly start: number;
  /** The device whose bytes a fragment has. */
  readonly origin: number | undefined;
  /** Gives back what it is sent from, when nothing works on the part any more. */
  readonly release: (() => void) | undefined;
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
    const transfer = new SendTransfer(request, pieces, key);
    request.transfer = transfer;
    request.release = () => transfer.release();
    request.replyHandler = (_request, status) => transfer.end(status);
    request.abandon = (_request, status) => transfer.end(status);
  }

  /** The peer asks for the next window of a message. What is out of order or out of bounds is ignored. */
  onRtr(transfer: SendTransfer, connection: Connection, asked: AskedWindow): void {
    const { from, byteLength, peerRequest, targetKey, targetOffset, fragmentKey } = asked;
    const parts = transfer.isHost ? 1 : Math.ceil(byteLength / this.#staging.fragmentBytes);
    const isNext = from === transfer.asked && byteLength > 0 && from + byteLength <= transfer.byteLength;
    const isBounded = byteLength <= WINDOW_BYTES_MAX && transfer.waiting + parts <= WAITING_MAX;
    if (transfer.ended || !isNext || !isBounded) return;
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
    this.#sendWindow(new SendWindow(transfer, connection, asked, fragment));
  }

  /** Writes the receiver's memory at once if lanes can: true when the transfer is under way or over. */
  #writeAll(transfer: SendTransfer, connection: Connection, peerRequest: number): boolean {
    const { request, target, targetOffset, pieces, byteLength } = transfer;
    if (target === undefined) return false;
    const write = { connection, pieces, from: 0, byteLength, rkey: target, offset: targetOffset };
    if (!canWrite(write)) return false;
    // What else the receiver asks for meanwhile is on its way, and nobody waits for. Flushes and closes wait for the end.
    connection.renew(request);
    transfer.asked = byteLength;
    this.#host.counters.count(WorkerCounter.RNDV_PUT_ZCOPY);
    nameProtocol(request, 'rndv/put');
    transfer.open += 1;
    writeRemote(this.#host, request, write, (status) => {
      transfer.open -= 1;
      transfer.endBoth(connection, peerRequest, status);
      transfer.settle();
    });
    return true;
  }

  #sendWindow(window: SendWindow): void {
    const { transfer, from, byteLength } = window;
    const { pieces } = transfer;
    const whole: Part = { window, from, byteLength, pieces, start: from, origin: undefined, release: undefined };
    const direct = destinationOf(whole);
    if (direct !== undefined || transfer.isHost) {
      window.addPart();
      transfer.open += 1;
      this.#send(whole, direct);
    } else {
      const { fragmentBytes } = this.#staging;
      for (let at = 0; at < byteLength; at += fragmentBytes) {
        this.#stage(window, from + at, Math.min(fragmentBytes, byteLength - at));
      }
    }
    window.partDone();
  }

  /** Reads a part of a window into a fragment, when there is one, and sends it from there. */
  #stage(window: SendWindow, from: number, byteLength: number): void {
    const { transfer } = window;
    window.addPart();
    transfer.waiting += 1;
    this.#staging.acquire((fragment, refusal) => {
      transfer.waiting -= 1;
      if (fragment === undefined) {
        window.partDone();
        transfer.endBoth(window.connection, window.peerRequest, refusal);
        return;
      }
      if (transfer.ended) {
        this.#staging.release(fragment);
        window.partDone();
        return;
      }
      transfer.open += 1;
      this.#staging.read(transfer.pieces, from, fragment, byteLength, (status, error) => {
        if (error !== undefined) transfer.request.error ??= error;
        const release = (): void => this.#staging.release(fragment);
        const pieces = [{ memory: fragment, offset: 0, byteLength, start: 0 }];
        const origin = deviceAt(transfer.pieces, from);
        const part: Part = { window, from, byteLength, pieces, start: 0, origin, release };
        if (status === Status.OK && !transfer.ended) this.#send(part, destinationOf(part));
        else sent(part, status);
      });
    });
  }

  #send(part: Part, to: Destination | undefined): void {
    const { transfer, connection } = part.window;
    const { request } = transfer;
    if (to === undefined) {
      nameProtocol(request, 'rndv/am');
      this.#pump(part);
      return;
    }
    if (!transfer.isPipelined) {
      transfer.isPipelined = true;
      this.#host.counters.count(WorkerCounter.RNDV_PUT_MTYPE_ZCOPY);
    }
    nameProtocol(request, 'rndv/put-pipeline');
    writeRemote(this.#host, request, writeOf(connection, part, to), (status) => {
      if (status === Status.OK && !transfer.ended) announce(part, to);
      sent(part, status);
    });
  }

  /** Sends a part in as many messages as it takes, going on when there is room. */
  #pump(part: Part): void {
    const { window, byteLength, pieces } = part;
    const { transfer, connection } = window;
    const pump = new SendRequest(this.#host);
    pump.begin(connection, undefined);
    pump.pieces = pieces;
    const frameBytes = connection.amBcopyMax - DATA_BYTES;
    pump.callback = (_pump, status) => sent(part, status);
    pump.starter = () => {
      if (!areMapped(pieces)) return Status.INVALID_ADDR;
      while (pump.done < byteLength) {
        if (transfer.ended) return Status.CANCELED;
        const bytes = Math.min(frameBytes, byteLength - pump.done);
        const header = writeData(connection.remoteId, window.peerRequest, part.from + pump.done);
        const status = sendPieces(connection, MessageId.DATA, header, pieces, part.start + pump.done, bytes);
        if (status !== Status.OK) return status;
        pump.done += bytes;
      }
      return Status.OK;
    };
    connection.run(pump);
  }
}

/** Tells the receiver that a part has been written. */
function announce({ window, from, byteLength }: Part, { isTarget }: Destination): void {
  const { transfer, connection, peerRequest } = window;
  const flags = isTarget ? ATP_IN_TARGET : 0;
  const header = writeAtp(connection.remoteId, { request: peerRequest, from, byteLength, flags });
  connection.post(MessageId.ATP, header, transfer.isNamed ? undefined : carrierOf(transfer.request));
  transfer.isNamed = true;
}

/** Nothing works on a part any more. */
function sent({ window, release }: Part, status: Status): void {
  const { transfer } = window;
  release?.();
  transfer.open -= 1;
  window.partDone();
  if (status < 0) transfer.endBoth(window.connection, window.peerRequest, status);
  transfer.settle();
}

/** Where lanes write a part to out of the memory that it is in; undefined for nowhere. */
function destinationOf(part: Part): Destination | undefined {
  const { connection, destinations } = part.window;
  return destinations.find((to) => canWrite(writeOf(connection, part, to)));
}

function writeOf(
  connection: Connection,
  { window, from, start, byteLength, pieces, origin }: Part,
  to: Destination,
): RemoteWrite {
  return { connection, pieces, from: start, byteLength, rkey: to.rkey, offset: to.offset + from - window.from, origin };
}

/** The device with a byte of a message; undefined for host memory. */
function deviceAt(pieces: readonly LocalPiece[], at: number): number | undefined {
  const memory = pieces.find(({ start, byteLength }) => at < start + byteLength)?.memory;
  return memory instanceof MemoryHandle ? memory.sysDevice : undefined;
}
