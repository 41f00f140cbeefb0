/**
 * A window that the receiver of a rendezvous has asked for: written to where it asked for it, from the memory of the message if a lane reaches that, by the card
 * of the message if the memory of the receiver is mapped into this process, else from fragments; in messages if no lane writes the memory of the receiver.
 */

import { MessageId } from '../../api/layout/message.ts';
import { ATP_IN_TARGET, DATA_BYTES, writeAtp, writeData } from '../../api/layout/rendezvous.ts';
import { areMapped } from '../../api/memory/local.ts';
import type { CopyDone } from '../../api/staging/device-copier.ts';
import type { FragmentUser } from '../../api/staging/fragment-pool.ts';
import { type StagedWindow, WindowPipeline, type WindowSteps } from '../../api/staging/transfer.ts';
import { Status } from '../../ucs/type/status.ts';
import { sendPieces } from '../base/message-packer.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import { SendRequest } from '../base/request/message-request.ts';
import type { Connection } from '../base/request/request.ts';
import { WorkerCounter } from '../base/worker-counters.ts';
import { type LocalPiece, MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { Operation } from '../proto/selection.ts';
import type { Staging } from '../staging/staging.ts';
import { moveRemote, type RemoteMove, transfersOf } from './remote-move.ts';
import { carrierOf, nameProtocol } from './reply.ts';
import { SendState, type SendTransfer } from './send-transfer.ts';

/** What the receiver has asked for. */
export interface AskedWindow {
  /** Request of the receiver. */
  readonly peerRequest: number;
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
}

/** Memory of the receiver that the window may be written to. */
interface Destination {
  readonly rkey: RemoteKey;
  /** Byte of it at which the window begins. */
  readonly offset: number;
  /** It is the memory that is received into, not a fragment. */
  readonly isTarget: boolean;
}

/** A destination, and how a part gets there: `write`, called once, reports when it is there. */
interface Route {
  readonly to: Destination;
  readonly write: (done: CopyDone) => void;
}

/** A part of the window: all of it, or the bytes in a fragment. */
interface Part {
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
  /** Memory from which it is sent, and the byte of that memory at which it begins. */
  readonly pieces: readonly LocalPiece[];
  readonly start: number;
  /** The device whose bytes a fragment has. */
  readonly origin: number | undefined;
}

/** One window. */
export class SendWindow implements WindowSteps<MemoryHandle> {
  readonly #host: ProtocolHost;
  readonly #staging: Staging;
  readonly #transfer: SendTransfer;
  readonly #connection: Connection;
  readonly #asked: AskedWindow;
  /** The key of the fragment of the receiver: released at the end. */
  readonly #fragmentKey: RemoteKey | undefined;
  /** Where the window may be written, the best first. */
  readonly #destinations: readonly Destination[];
  readonly #pipeline: WindowPipeline<MemoryHandle>;

  constructor(
    host: ProtocolHost,
    staging: Staging,
    [transfer, connection]: readonly [SendTransfer, Connection],
    asked: AskedWindow,
    fragmentKey: RemoteKey | undefined,
  ) {
    this.#host = host;
    this.#staging = staging;
    this.#transfer = transfer;
    this.#connection = connection;
    this.#asked = asked;
    this.#fragmentKey = fragmentKey;
    const { from, byteLength } = asked;
    const { window: target } = transfer;
    const destinations: Destination[] = [];
    if (target !== undefined) destinations.push({ rkey: target.rkey, offset: target.offset + from, isTarget: true });
    if (fragmentKey !== undefined) destinations.push({ rkey: fragmentKey, offset: 0, isTarget: false });
    this.#destinations = destinations;
    const { fragmentBytes: windowBytes, windowsMax: depth } = staging;
    this.#pipeline = new WindowPipeline(this, [from, byteLength], { windowBytes, depth });
  }

  /** Sends the window. */
  start(): void {
    const { from, byteLength } = this.#asked;
    const transfer = this.#transfer;
    const part: Part = { from, byteLength, pieces: transfer.pieces, start: from, origin: undefined };
    const direct = this.#routeOf(part) ?? this.#mappedRouteOf(part);
    transfer.count += 1;
    if (direct !== undefined || transfer.isHost) {
      this.#send(part, direct, (status) => this.ended(status));
      return;
    }
    transfer.staged.push(this.#pipeline);
    this.#pipeline.advance();
  }

  acquire(run: FragmentUser<MemoryHandle>): void {
    const transfer = this.#transfer;
    transfer.waiting += 1;
    this.#staging.acquire((fragment, refusal) => {
      transfer.waiting -= 1;
      run(fragment, refusal);
    });
  }

  /** Reads a part into a fragment. */
  fill({ fragment, from, byteLength }: StagedWindow<MemoryHandle>, done: CopyDone): void {
    this.#staging.read(this.#transfer.pieces, from, fragment, byteLength, done);
  }

  /** Sends a part from its fragment. */
  drain({ fragment, from, byteLength }: StagedWindow<MemoryHandle>, done: CopyDone): void {
    const pieces = [{ memory: fragment, offset: 0, byteLength, start: 0 }];
    const part: Part = { from, byteLength, pieces, start: 0, origin: deviceAt(this.#transfer.pieces, from) };
    this.#send(part, this.#routeOf(part), done);
  }

  release(fragment: MemoryHandle): void {
    this.#staging.release(fragment);
  }

  stopped(status: Status, error: unknown): void {
    if (error !== undefined) this.#transfer.request.error ??= error;
    this.#transfer.endBoth(this.#connection, this.#asked.peerRequest, status);
  }

  ended(status: Status): void {
    const transfer = this.#transfer;
    transfer.unstage(this.#pipeline);
    if (this.#fragmentKey !== undefined) this.#connection.rkeys.release(this.#fragmentKey);
    if (status < 0) transfer.endBoth(this.#connection, this.#asked.peerRequest, status);
    transfer.complete(Status.OK);
  }

  #send(part: Part, route: Route | undefined, done: CopyDone): void {
    const transfer = this.#transfer;
    const { request } = transfer;
    if (route === undefined) {
      nameProtocol(request, 'rndv/am');
      this.#pump(part, done);
      return;
    }
    if (transfer.state === SendState.OFFERED) {
      transfer.state = SendState.WRITING;
      this.#host.counters.count(WorkerCounter.RNDV_PUT_MTYPE_ZCOPY);
    }
    nameProtocol(request, 'rndv/put-pipeline');
    route.write((status, error) => {
      if (status === Status.OK && !transfer.isEnding) this.#announce(part, route.to);
      done(status, error);
    });
  }

  /** Sends a part in as many messages as it takes, going on when there is room. */
  #pump({ from, byteLength, pieces, start }: Part, done: CopyDone): void {
    const transfer = this.#transfer;
    const connection = this.#connection;
    const pump = new SendRequest(this.#host);
    pump.begin(connection, undefined);
    pump.pieces = pieces;
    const frameBytes = connection.amBcopyMax - DATA_BYTES;
    pump.callback = (_pump, status) => done(status);
    pump.starter = () => {
      if (!areMapped(pieces)) return Status.INVALID_ADDR;
      while (pump.done < byteLength) {
        if (transfer.isEnding) return Status.CANCELED;
        const bytes = Math.min(frameBytes, byteLength - pump.done);
        const header = writeData(connection.remoteId, this.#asked.peerRequest, from + pump.done);
        const status = sendPieces(connection, MessageId.DATA, header, pieces, start + pump.done, bytes);
        if (status !== Status.OK) return status;
        pump.done += bytes;
      }
      return Status.OK;
    };
    connection.run(pump);
  }

  /** Tells the receiver that a part has been written. */
  #announce({ from, byteLength }: Part, { isTarget }: Destination): void {
    const transfer = this.#transfer;
    const isNamed = transfer.state === SendState.NAMED;
    const flags = isTarget ? ATP_IN_TARGET : 0;
    const fields = { request: this.#asked.peerRequest, from, byteLength, flags };
    const header = writeAtp(this.#connection.remoteId, fields);
    this.#connection.post(MessageId.ATP, header, isNamed ? undefined : carrierOf(transfer.request));
    transfer.state = SendState.NAMED;
  }

  /** How lanes write a part from the memory that it is in; undefined if they do not. */
  #routeOf(part: Part): Route | undefined {
    for (const to of this.#destinations) {
      const move = this.#moveOf(part, to);
      const transfers = transfersOf(this.#host, move);
      if (transfers !== undefined) {
        return { to, write: (done) => moveRemote(this.#host, this.#transfer.request, move, transfers, done) };
      }
    }
    return undefined;
  }

  /** How the cards of a message write a part to memory of the receiver that is mapped into this process (ucp_rkey_ptr); undefined for a message of host memory. */
  #mappedRouteOf(part: Part): Route | undefined {
    if (this.#transfer.isHost) return undefined;
    const to = this.#destinations.find(({ rkey }) => rkey.bytes !== undefined);
    if (to === undefined) return undefined;
    return { to, write: (done) => this.#writeMapped(part, to, done) };
  }

  #writeMapped({ from, start, byteLength, pieces }: Part, { rkey, offset }: Destination, done: CopyDone): void {
    const { bytes } = rkey;
    if (bytes === undefined || !rkey.live) {
      done(Status.INVALID_ADDR);
      return;
    }
    this.#transfer.request.lane = this.#connection.lanes.find(({ md }) => rkey.parts[md.index]?.bytes !== undefined);
    const at = offset + from - this.#asked.from;
    this.#staging.read(pieces, start, bytes.subarray(at, at + byteLength), byteLength, done);
  }

  #moveOf({ from, start, byteLength, pieces, origin }: Part, { rkey, offset }: Destination): RemoteMove {
    const connection = this.#connection;
    return {
      operation: Operation.PUT,
      connection,
      pieces,
      from: start,
      byteLength,
      rkey,
      offset: offset + from - this.#asked.from,
      origin,
    };
  }
}

/** The device with a byte of a message; undefined for host memory. */
function deviceAt(pieces: readonly LocalPiece[], at: number): number | undefined {
  const memory = pieces.find(({ start, byteLength }) => at < start + byteLength)?.memory;
  return memory instanceof MemoryHandle ? memory.sysDevice : undefined;
}
