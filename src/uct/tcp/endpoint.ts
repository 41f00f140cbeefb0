/** An endpoint of tcp: turns operations into frames of a link. */

import { copyBytes } from '../../ucs/memory/bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmPacker, Completion, UctEndpoint } from '../api/iface.ts';
import type { RemoteKey } from '../api/memory.ts';
import { fitsMessage, isCompletion, isInBytes, isInside } from '../base/checks.ts';
import { Transfer, type TransferCounters } from '../base/counters.ts';
import { checkIov, type HostIovEntry } from '../base/host/memory.ts';
import { type TcpBuffers, TX_START } from './connection/buffers.ts';
import type { TcpConnection } from './connection/connection.ts';
import { NO_MEMORY, type TcpIovEntry } from './connection/operations.ts';
import { QUEUE_MAX } from './connection/sender.ts';
import { TCP_NAME, TcpKey } from './key.ts';
import {
  AFTER_PUTS_HEADER_BYTES,
  AM_ID_MASK,
  FRAME_BODY_BYTES_MAX,
  FrameType,
  GET_HEADER_BYTES,
  GETS_MAX,
  HEADER_BYTES,
  KEY_WORDS,
  PUT_HEADER_BYTES,
  PUTS_MAX,
  padded,
  setAfterPuts,
  writeAm,
  writeAmWords,
  writeGet,
  writePut,
} from './layout.ts';
import type { TcpShared } from './shared.ts';

const TX_WORD: number = TX_START >> 2;
/** Longer puts of a list are separate frames: a system call for each costs little compared with its bytes. */
const RUN_BODY_BYTES_MAX = 131_072;

export class TcpEndpoint implements UctEndpoint {
  readonly link: TcpConnection;
  readonly #buffers: TcpBuffers;
  readonly #counters: TransferCounters;
  readonly #shortBytesMax: number;
  readonly #onClose: (endpoint: TcpEndpoint) => void;
  #closed = false;

  /** @param shortBytesMax longest put and get that is copied */
  constructor(
    link: TcpConnection,
    { buffers, counters }: TcpShared,
    shortBytesMax: number,
    onClose: (endpoint: TcpEndpoint) => void,
  ) {
    this.#buffers = buffers;
    this.#counters = counters;
    this.#shortBytesMax = shortBytesMax;
    this.#onClose = onClose;
    this.link = link;
    link.users += 1;
  }

  get peerPlace(): string {
    return this.link.name;
  }

  putShort(
    source: Uint8Array,
    sourceOffset: number,
    byteLength: number,
    remoteOffset: number,
    key: RemoteKey,
    completion?: Completion,
  ): Status {
    if (byteLength > this.#shortBytesMax || !isInBytes(sourceOffset, byteLength, source)) {
      return Status.INVALID_PARAM;
    }
    if (completion !== undefined && !isCompletion(completion)) return Status.INVALID_PARAM;
    // Checked before the operation is counted, because acknowledgements are counted for all operations of this link.
    if (!(key instanceof TcpKey)) return Status.INVALID_PARAM;
    if (!isInside(remoteOffset, byteLength, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    const { link } = this;
    if (link.state !== 'up') return this.#notUp();
    const transmitter = link.transmitter;
    if (transmitter.isFull || link.puts.inFlight >= PUTS_MAX) return this.#counters.refused(Status.NO_RESOURCE);
    const { words, bytes } = this.#buffers.txFrame;
    writePut(words, TX_WORD, key.words, remoteOffset, byteLength);
    copyBytes(bytes, TX_START + PUT_HEADER_BYTES, source, sourceOffset, byteLength);
    const status = link.check(transmitter.sendBuilt(PUT_HEADER_BYTES + padded(byteLength)));
    if (status !== Status.OK) return this.#counters.refused(status);
    this.#counters.short(Transfer.PUT, byteLength);
    link.puts.sent += 1;
    if (completion === undefined) return Status.OK;
    link.puts.expect(1, completion, NO_MEMORY, this);
    return Status.INPROGRESS;
  }

  putZcopy(iov: readonly HostIovEntry[], remoteOffset: number, key: RemoteKey, completion: Completion): Status {
    const total = checkIov(iov, TCP_NAME);
    if (!(key instanceof TcpKey) || !isCompletion(completion)) return Status.INVALID_PARAM;
    if (!isInside(remoteOffset, total, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    const { link } = this;
    if (link.state !== 'up') return this.#notUp();
    const { transmitter } = link;
    const openRun = transmitter.openRunOf(this);
    const isInRun = transmitter.isCorked && total <= RUN_BODY_BYTES_MAX;
    const frames = framesOf(total);
    const queued = isInRun && openRun !== undefined ? 0 : frames;
    if (transmitter.length + queued > QUEUE_MAX || link.puts.inFlight + frames > PUTS_MAX) {
      return this.#counters.refused(Status.NO_RESOURCE);
    }
    const { pool } = this.#buffers;
    link.puts.sent += frames;
    link.puts.expect(frames, completion, iov, this);
    this.#counters.zcopy(Transfer.PUT, total);
    if (isInRun) {
      const run = openRun ?? pool.takeRun();
      run.owner = this;
      writePut(run.words, run.addRunHeader(), key.words, remoteOffset, total);
      run.addIov(iov, 0, total);
      run.addPadding(total, pool.zeros);
      if (openRun === undefined) link.check(transmitter.push(run));
      return Status.INPROGRESS;
    }
    for (let from = 0, i = 0; i < frames; i++, from += FRAME_BODY_BYTES_MAX) {
      const bytes = Math.min(FRAME_BODY_BYTES_MAX, total - from);
      const frame = pool.takeSmall();
      frame.owner = this;
      writePut(frame.words, 0, key.words, remoteOffset + from, bytes);
      frame.addHeader(PUT_HEADER_BYTES);
      frame.addIov(iov, from, bytes);
      frame.addPadding(bytes, pool.zeros);
      // If the link fails here, the operation ends through its completion.
      if (link.check(transmitter.push(frame)) !== Status.OK) break;
    }
    return Status.INPROGRESS;
  }

  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    key: RemoteKey,
    completion: Completion,
  ): Status {
    if (byteLength > this.#shortBytesMax || !isInBytes(targetOffset, byteLength, target)) {
      return Status.INVALID_PARAM;
    }
    const status = this.#beginGet(byteLength, remoteOffset, key, completion);
    if (status !== Status.OK) return status;
    const iov = this.link.gets.expectShort(completion, target, targetOffset, byteLength, this);
    this.#sendGet(iov, byteLength, remoteOffset, key as TcpKey);
    this.#counters.short(Transfer.GET, byteLength);
    return Status.INPROGRESS;
  }

  getZcopy(iov: readonly HostIovEntry[], remoteOffset: number, key: RemoteKey, completion: Completion): Status {
    const total = checkIov(iov, TCP_NAME);
    const status = this.#beginGet(total, remoteOffset, key, completion);
    if (status !== Status.OK) return status;
    const kept = this.link.gets.expect(framesOf(total), completion, iov, this);
    this.#sendGet(kept, total, remoteOffset, key as TcpKey);
    this.#counters.zcopy(Transfer.GET, total);
    return Status.INPROGRESS;
  }

  /** Checks a get, and counts its frames as sent; OK if the caller must send them. */
  #beginGet(total: number, remoteOffset: number, key: RemoteKey, completion: Completion): Status {
    if (!(key instanceof TcpKey) || !isCompletion(completion)) return Status.INVALID_PARAM;
    if (!isInside(remoteOffset, total, key.byteLength) || !key.live) return Status.INVALID_ADDR;
    const { link } = this;
    if (link.state !== 'up') return this.#notUp();
    const frames = framesOf(total);
    if (link.transmitter.length + frames > QUEUE_MAX || link.gets.inFlight + frames > GETS_MAX) {
      return this.#counters.refused(Status.NO_RESOURCE);
    }
    link.gets.sent += frames;
    return Status.OK;
  }

  #sendGet(iov: readonly TcpIovEntry[], total: number, remoteOffset: number, key: TcpKey): void {
    const { link } = this;
    for (let from = 0, left = framesOf(total); left > 0; left--, from += FRAME_BODY_BYTES_MAX) {
      const bytes = Math.min(FRAME_BODY_BYTES_MAX, total - from);
      link.inbound.expectGet(iov, from, bytes, this);
      const frame = this.#buffers.pool.takeSmall();
      writeGet(frame.words, 0, key.words, remoteOffset + from, bytes);
      frame.addHeader(GET_HEADER_BYTES);
      // If the link fails here, the operation ends through its completion.
      if (link.check(link.transmitter.push(frame)) !== Status.OK) break;
    }
  }

  cork(): void {
    if (this.link.state === 'up') this.link.transmitter.isCorked = true;
  }

  uncork(): void {
    const { link } = this;
    if (link.state !== 'up') return;
    const transmitter = link.transmitter;
    transmitter.isCorked = false;
    // If the link fails here, the operations end through their completions.
    if (!transmitter.isEmpty) link.check(transmitter.sendMore());
  }

  flush(completion: Completion | undefined): Status {
    if (completion !== undefined && !isCompletion(completion)) return Status.INVALID_PARAM;
    return this.#counters.flush(this.link.flush(completion, this));
  }

  cancel(): void {
    this.link.cancel(this);
  }

  /** Frames stay in order; the caller waits for other lanes. */
  fence(): Status {
    const { puts, gets } = this.link;
    return this.#counters.fence(puts.inFlight + gets.inFlight > 0 ? Status.INPROGRESS : Status.OK);
  }

  amShort(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    if (!isMessageId(id)) return Status.INVALID_PARAM;
    const total = headerWords * 4 + payloadLength;
    const { txBytesMax } = this.#buffers;
    if (!fitsMessage(headerWords, payload, payloadOffset, payloadLength, txBytesMax)) return Status.INVALID_PARAM;
    const { link } = this;
    if (link.state !== 'up') return this.#notUp();
    const transmitter = link.transmitter;
    if (transmitter.isFull) return this.#counters.refused(Status.NO_RESOURCE);
    const { words, bytes } = this.#buffers.txFrame;
    writeAm(words, TX_WORD, FrameType.AM, id, total);
    writeAmWords(words, TX_WORD, header, headerWords);
    if (payload !== undefined) {
      copyBytes(bytes, TX_START + HEADER_BYTES + headerWords * 4, payload, payloadOffset, payloadLength);
    }
    const status = link.check(transmitter.sendBuilt(HEADER_BYTES + padded(total)));
    if (status !== Status.OK) return this.#counters.refused(status);
    this.#counters.short(Transfer.AM, total);
    return Status.OK;
  }

  amBcopy(id: number, packer: AmPacker): Status {
    if (!isMessageId(id)) return Status.INVALID_PARAM;
    const { link } = this;
    if (link.state !== 'up') return this.#notUp();
    const transmitter = link.transmitter;
    if (transmitter.isFull) return this.#counters.refused(Status.NO_RESOURCE);
    const frame = this.#buffers.txFrame;
    frame.offset = TX_START + HEADER_BYTES;
    frame.byteLength = this.#buffers.txBytesMax;
    const total = packer.pack(frame);
    // The length is passed to a system call.
    if (!isInside(0, total, this.#buffers.txBytesMax)) return Status.INVALID_PARAM;
    writeAm(frame.words, TX_WORD, FrameType.AM, id, total);
    const status = link.check(transmitter.sendBuilt(HEADER_BYTES + padded(total)));
    if (status !== Status.OK) return this.#counters.refused(status);
    this.#counters.bcopy(Transfer.AM, total);
    return Status.OK;
  }

  get putsStarted(): number {
    return this.link.puts.sent;
  }

  /** The message follows the frames of the puts in the stream; their memory can be detached until the kernel has all of them. */
  amAfterPuts(id: number, failedId: number, packer: AmPacker, puts: number): Status {
    if (!isMessageId(id) || !isMessageId(failedId)) return Status.INVALID_PARAM;
    const { link } = this;
    if (link.state !== 'up') return this.#notUp();
    const { transmitter } = link;
    const { sent } = link.puts;
    const begun = transmitter.isEmpty ? Status.OK : link.check(transmitter.sendMore());
    if (begun !== Status.OK) return this.#counters.refused(begun);
    // A completion may have started another put.
    if (!transmitter.isEmpty || link.puts.sent !== sent) return this.#counters.refused(Status.NO_RESOURCE);
    const frame = this.#buffers.txFrame;
    frame.offset = TX_START + AFTER_PUTS_HEADER_BYTES;
    frame.byteLength = this.#buffers.txBytesMax;
    const total = packer.pack(frame);
    if (!isInside(0, total, this.#buffers.txBytesMax)) return Status.INVALID_PARAM;
    writeAm(frame.words, TX_WORD, FrameType.AM_AFTER_PUTS, id, total);
    setAfterPuts(frame.words, TX_WORD, puts, failedId);
    const status = link.check(transmitter.sendBuilt(AFTER_PUTS_HEADER_BYTES + padded(total)));
    if (status !== Status.OK) return this.#counters.refused(status);
    this.#counters.bcopy(Transfer.AM, total);
    return Status.OK;
  }

  amZcopy(
    id: number,
    header: Int32Array,
    headerWords: number,
    iov: readonly HostIovEntry[],
    completion: Completion,
  ): Status {
    if (!isMessageId(id)) return Status.INVALID_PARAM;
    const total = headerWords * 4 + checkIov(iov, TCP_NAME);
    const { link } = this;
    if (link.state !== 'up') return this.#notUp();
    const isSound = isInside(0, headerWords, KEY_WORDS + 4) && total <= link.peerBytesMax;
    if (!isSound || !isCompletion(completion)) return Status.INVALID_PARAM;
    if (link.transmitter.length >= QUEUE_MAX) return this.#counters.refused(Status.NO_RESOURCE);
    const frame = this.#buffers.pool.takeSmall();
    writeAm(frame.words, 0, FrameType.AM_ZCOPY, id, total);
    writeAmWords(frame.words, 0, header, headerWords);
    frame.addHeader(HEADER_BYTES + headerWords * 4);
    frame.addIov(iov, 0, total - headerWords * 4);
    frame.addPadding(total, this.#buffers.pool.zeros);
    frame.addEnd(Status.OK);
    frame.owner = this;
    frame.completion = completion;
    this.#counters.zcopy(Transfer.AM, total);
    // If the link fails here, the operation ends through its completion.
    link.check(link.transmitter.push(frame));
    return Status.INPROGRESS;
  }

  /** tcp has no atomic operations: ucp sends messages that the peer executes. */
  atomic(): Status {
    return Status.UNSUPPORTED;
  }

  check(): Status {
    return this.link.checkPeer();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.link.users -= 1;
    this.#onClose(this);
    if (this.link.users === 0) this.link.retire();
  }

  #notUp(): Status {
    return this.#counters.refused(this.#closed ? Status.CANCELED : this.link.begin());
  }
}

/** Other bits would change the type of the frame. The peer would then close the link, which endpoints share. */
function isMessageId(id: number): boolean {
  return (id & AM_ID_MASK) === id;
}

/** Number of frames of a put or get. */
function framesOf(byteLength: number): number {
  return Math.max(1, Math.ceil(byteLength / FRAME_BODY_BYTES_MAX));
}
