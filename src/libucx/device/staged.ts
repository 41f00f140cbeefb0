/**
 * Messages from or to memory of which at least a part is on cards. For a send, libucp requests ranges of bytes by callbacks, which must return the bytes
 * at once: fragments are read ahead. For a receive, delivered ranges are gathered in fragments, which the cards copy meanwhile; the receive ends with the
 * last copy. Ranges arrive in any order and cannot wait for a fragment, unlike the slices of api/staging/transfer.ts.
 */

import { eachPart, holdsBytes, hostBytes, type LocalRange, type Piece } from '../../api/memory/local.ts';
import { CountedCompletion } from '../../api/operation/completion.ts';
import { addressOf, memcpy, memset } from '../../sys/index.ts';
import { Status, statusString } from '../../ucs/type/status.ts';
import type { LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import { addressIn, isHost } from '../request/local.ts';
import type { UcpRequest } from '../request/request.ts';
import type { CardSteps } from './steps.ts';

/** Its count is the number of fragments that a card is copying or that wait for it; its failure is the reason why bytes could not be copied. */
export abstract class CopiedMessage extends CountedCompletion {
  /** Counts libucp until it has ended the message. */
  override count = 1;
  readonly byteLength: number;
  protected readonly staging: CardSteps;
  protected readonly pieces: readonly Piece<LocalMemory>[];
  /** The request, if libucp has ended it while bytes are still being copied. */
  #ended: UcpRequest | undefined;
  #status: Status = Status.OK;

  constructor(staging: CardSteps, pieces: readonly Piece<LocalMemory>[], byteLength: number) {
    super();
    this.staging = staging;
    this.pieces = pieces;
    this.byteLength = byteLength;
  }

  /**
   * Called when libucp has ended the message and requests no more bytes.
   * @returns false if no copies are in flight; otherwise the request ends after the last copy
   */
  deferEnd(request: UcpRequest, status: Status): boolean {
    this.finish();
    if (this.count === 1) return false;
    this.#ended = request;
    this.#status = status;
    this.complete(Status.OK);
    return true;
  }

  onComplete(): void {
    const request = this.#ended;
    if (request !== undefined) this.staging.schedule(() => request.end(this.#status));
  }

  /** The final status of a request that ends with a status. */
  abstract settle(request: UcpRequest, status: Status): Status;

  /** Starts the last copies, or releases unused fragments. */
  protected abstract finish(): void;

  /** The address of host bytes of the message. Fails the message and returns undefined if their ArrayBuffer was detached. */
  protected hostAddress(memory: LocalMemory, offset: number, byteLength: number): number | undefined {
    if (holdsBytes(hostBytes(memory), offset, byteLength)) return addressIn(memory, offset);
    if (this.failure === Status.OK) this.failure = Status.INVALID_ADDR;
    return undefined;
  }

  /** Releases a fragment after its copy. */
  protected release(fragment: UcpMemory, status: Status): void {
    this.staging.release(fragment);
    this.complete(status);
  }
}

/**
 * Bytes that are read before the message is passed to libucp, so that a failed card fails the send, and a short message never contains zeros. A larger
 * head would hold memory for long messages that no receive has matched.
 */
const HEAD_BYTES = 4096;
/** Fragments per message: libucp reads one while the card fills the other. */
const WINDOWS_MAX = 2;

/** A range of a message that was read, or is being read, into a fragment. */
interface ReadWindow {
  readonly begin: number;
  readonly end: number;
  readonly fragment: UcpMemory;
  /** INPROGRESS while the card copies. */
  status: Status;
  /** Whether libucp no longer needs it: its fragment is released when the card has finished. */
  isDropped: boolean;
}

/** An outgoing message. Bytes after its head that could not be read are sent as zeros. */
export class OutgoingMessage extends CopiedMessage {
  /** The first bytes; those of device memory are copies. */
  readonly #head: Uint8Array;
  /** Contiguous, in message order. */
  readonly #windows: ReadWindow[] = [];

  constructor(staging: CardSteps, pieces: readonly Piece<LocalMemory>[], byteLength: number) {
    super(staging, pieces, byteLength);
    this.#head = new Uint8Array(Math.min(byteLength, HEAD_BYTES));
  }

  /** Reads the head. Called once, before the message is passed to libucp. @returns OK, or the status with which a card failed */
  readHead(): Status {
    let status: Status = Status.OK;
    const address = addressOf(this.#head);
    eachPart(this.pieces, 0, this.#head.byteLength, (memory, at, bytes, position) => {
      if (isHost(memory) || status < 0) return;
      const { nativeHandle: device } = memory as UcpMemory;
      status = this.staging.copyNow(false, { device, offset: at, address: address + position, byteLength: bytes });
    });
    return status;
  }

  /** Copies bytes from `[offset, offset + max)` of the message to an address; returns their number. */
  pack(offset: number, address: number, max: number): number {
    const rest = this.byteLength - offset;
    // For an unfragmented message, libucp passes the maximum size_t (1.18), which is -1 here.
    const byteLength = max < 0 ? rest : Math.min(max, rest);
    eachPart(this.pieces, offset, byteLength, (memory, at, bytes, position) => {
      const to = address + position;
      if (isHost(memory)) return this.#readHost(memory, at, bytes, to);
      const begin = offset + position;
      const known = Math.min(Math.max(this.#head.byteLength - begin, 0), bytes);
      if (known > 0) memcpy(to, addressOf(this.#head) + begin, known);
      const rest = { local: memory as UcpMemory, localOffset: at + known, byteLength: bytes - known };
      this.#read(rest, begin + known, to + known);
    });
    return byteLength;
  }

  /**
   * Fails the connection of a message that could not be read: it cannot be withdrawn, and the receiver must not treat its zeros as data. Internal messages
   * have no sender here: their reply reports the failure.
   */
  override settle({ sender }: UcpRequest, status: Status): Status {
    if (this.failure === Status.OK) return status;
    if (sender === undefined) return this.failure;
    const { log } = this.staging.core.context;
    const what = `cannot read device memory of a message of ${this.byteLength} bytes`;
    log.error(
      `${what} (${statusString(this.failure).toLowerCase()}): its receiver gets zeros, so the connection is closed`,
    );
    sender.onFailed(this.failure);
    return this.failure;
  }

  protected override finish(): void {
    this.#drop(this.#windows.splice(0));
  }

  /** Releases the fragment of a dropped window, once the card has finished. */
  #retire({ fragment, status, isDropped }: ReadWindow): void {
    if (isDropped && status !== Status.INPROGRESS) this.release(fragment, Status.OK);
  }

  #drop(windows: readonly ReadWindow[]): void {
    for (const window of windows) {
      window.isDropped = true;
      this.#retire(window);
    }
  }

  #readHost(memory: LocalMemory, offset: number, byteLength: number, address: number): void {
    const from = this.hostAddress(memory, offset, byteLength);
    if (from === undefined) memset(address, 0, byteLength);
    else memcpy(address, from, byteLength);
  }

  /** @param position message offset at which the range begins */
  #read(range: LocalRange<UcpMemory>, position: number, address: number): void {
    const { local: memory, localOffset: offset, byteLength } = range;
    const isWhole = byteLength === memory.byteLength || byteLength === this.byteLength;
    for (let done = 0; done < byteLength; ) {
      const window = isWhole ? undefined : this.#windowAt(position + done);
      let bytes = byteLength - done;
      let status: Status;
      if (window === undefined) {
        status =
          this.failure < 0
            ? this.failure
            : this.staging.copyNow(false, {
                device: memory.nativeHandle,
                offset: offset + done,
                address: address + done,
                byteLength: bytes,
              });
      } else {
        bytes = Math.min(bytes, window.end - position - done);
        status = this.staging.wait(() => window.status);
        if (status === Status.OK)
          memcpy(address + done, window.fragment.ucpAddress + position + done - window.begin, bytes);
        if (position + done + bytes === window.end) this.#drop(this.#windows.splice(0, 1));
      }
      if (status < 0) {
        this.failure = status;
        memset(address + done, 0, bytes);
      }
      done += bytes;
    }
    if (!isWhole && this.failure === Status.OK) this.#readAhead();
  }

  /** The window that contains a byte of the message; undefined if no fragment is free. */
  #windowAt(position: number): ReadWindow | undefined {
    const [first] = this.#windows;
    if (first !== undefined && position >= first.begin && position < first.end) return first;
    // libucp may request bytes out of order, over several lanes.
    this.#drop(this.#windows.splice(0));
    return this.#open(position);
  }

  /** Reads a fragment of the first device memory at or after a message offset. */
  #open(position: number): ReadWindow | undefined {
    const piece = this.pieces.find(({ memory, start, byteLength }) => position < start + byteLength && !isHost(memory));
    if (piece === undefined) return undefined;
    const fragment = this.staging.fragments.tryAcquire();
    if (fragment === undefined) return undefined;
    const begin = Math.max(position, piece.start);
    const bytes = Math.min(fragment.byteLength, piece.start + piece.byteLength - begin);
    const window: ReadWindow = { begin, end: begin + bytes, fragment, status: Status.INPROGRESS, isDropped: false };
    this.#windows.push(window);
    this.count += 1;
    const offset = piece.offset + begin - piece.start;
    const device = (piece.memory as UcpMemory).nativeHandle;
    const copy = { device, offset, host: fragment.nativeHandle, hostOffset: 0, byteLength: bytes };
    this.staging.startCopy(false, copy, (status) => {
      window.status = status;
      this.#retire(window);
    });
    return window;
  }

  #readAhead(): void {
    let last = this.#windows.at(-1);
    while (last !== undefined && this.#windows.length < WINDOWS_MAX) last = this.#open(last.end);
  }
}

/** Contiguous bytes gathered in a fragment, and their destination. */
interface Gathered {
  readonly fragment: UcpMemory;
  readonly memory: UcpMemory;
  readonly offset: number;
  byteLength: number;
}

export class IncomingMessage extends CopiedMessage {
  #gathered: Gathered | undefined;

  /** Receives `[offset, offset + byteLength)` of the message from an address. */
  unpack(offset: number, address: number, byteLength: number): void {
    eachPart(this.pieces, offset, byteLength, (memory, at, bytes, position) => {
      const from = address + position;
      if (isHost(memory)) this.#writeHost(memory, at, bytes, from);
      else if (this.failure === Status.OK) this.#write(memory as UcpMemory, at, bytes, from);
    });
  }

  override settle(_request: UcpRequest, status: Status): Status {
    if (this.#gathered !== undefined) this.staging.release(this.#gathered.fragment);
    this.#gathered = undefined;
    return status >= 0 && this.failure < 0 ? this.failure : status;
  }

  /** Starts the copy of the gathered bytes to the card. */
  protected override finish(): void {
    if (this.#gathered === undefined) return;
    const { fragment, memory, offset, byteLength } = this.#gathered;
    this.#gathered = undefined;
    this.count += 1;
    const copy = { device: memory.nativeHandle, offset, host: fragment.nativeHandle, hostOffset: 0, byteLength };
    this.staging.startCopy(true, copy, (status) => this.release(fragment, status));
  }

  #writeHost(memory: LocalMemory, offset: number, byteLength: number, address: number): void {
    const to = this.hostAddress(memory, offset, byteLength);
    if (to !== undefined) memcpy(to, address, byteLength);
  }

  #write(memory: UcpMemory, offset: number, byteLength: number, address: number): void {
    for (let done = 0; done < byteLength; ) {
      const gathered = this.#gatheredAt(memory, offset + done);
      if (gathered === undefined) {
        const rest = {
          device: memory.nativeHandle,
          offset: offset + done,
          address: address + done,
          byteLength: byteLength - done,
        };
        const status = this.staging.copyNow(true, rest);
        if (status < 0) this.failure = status;
        return;
      }
      const { fragment } = gathered;
      const bytes = Math.min(byteLength - done, fragment.byteLength - gathered.byteLength);
      memcpy(fragment.ucpAddress + gathered.byteLength, address + done, bytes);
      gathered.byteLength += bytes;
      done += bytes;
      if (gathered.byteLength === fragment.byteLength) this.finish();
    }
  }

  /** The gathered bytes to which the next byte can be appended, or a new fragment; undefined if no fragment is free. */
  #gatheredAt(memory: UcpMemory, offset: number): Gathered | undefined {
    const current = this.#gathered;
    if (current?.memory === memory && current.offset + current.byteLength === offset) return current;
    this.finish();
    const fragment = this.staging.fragments.tryAcquire();
    this.#gathered = fragment && { fragment, memory, offset, byteLength: 0 };
    return this.#gathered;
  }
}
