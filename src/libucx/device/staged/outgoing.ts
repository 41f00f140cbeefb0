/**
 * A message that is sent from memory of cards, at least in part: libucp requests its bytes piece by piece, inside its calls, and fragments are read
 * ahead. The windows are not those of ucp/staging, which wait for fragments and begin in order: libucp asks for any bytes, and gets them before its call
 * returns. request/buffers.ts decides which messages are sent this way.
 */

import { eachPart, type Piece } from '../../../api/memory/local.ts';
import { addressOf, memcpy, memset } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { LocalMemory, UcpMemory } from '../../mem/memory-handle.ts';
import { isHost } from '../../request/buffers.ts';
import type { UcpRequest } from '../../request/request.ts';
import { CopiedMessage } from './copied-message.ts';
import type { Staging } from './staging.ts';

/**
 * Bytes that are read before libucp gets the message: a card that has failed refuses a send then, and a short message never has zeros. More would keep the memory
 * of long messages that no receive takes.
 */
const HEAD_BYTES = 4096;
/** Fragments per message: one that libucp reads, and one that the card fills meanwhile. */
const WINDOWS_MAX = 2;

/** Bytes of a message that are read, or being read, into a fragment. */
interface ReadWindow {
  readonly begin: number;
  readonly end: number;
  readonly fragment: UcpMemory;
  /** INPROGRESS while the card reads. */
  status: Status;
  /** Whether libucp needs it no more: its fragment is released when the card has finished. */
  isDropped: boolean;
}

/** An outgoing message. Bytes behind its head that could not be read are sent as zeros. */
export class OutgoingMessage extends CopiedMessage {
  /** The first bytes, of which those in memory of cards were read. */
  readonly #head: Uint8Array;
  /** Contiguous, in the order of the message. */
  readonly #windows: ReadWindow[] = [];

  constructor(staging: Staging, pieces: readonly Piece<LocalMemory>[], byteLength: number) {
    super(staging, pieces, byteLength);
    this.#head = new Uint8Array(Math.min(byteLength, HEAD_BYTES));
  }

  /** Reads the head. Called once, before libucp has the message. @returns OK; or the status with which a card has failed */
  readHead(): Status {
    let status: Status = Status.OK;
    const address = addressOf(this.#head);
    eachPart(this.pieces, 0, this.#head.byteLength, (memory, at, bytes, position) => {
      if (isHost(memory) || status < 0) return;
      status = this.staging.copyNow(false, (memory as UcpMemory).node, at, address + position, bytes);
    });
    return status;
  }

  /** Copies bytes from `[offset, offset + max)` of the message to an address; returns their number. */
  pack(offset: number, address: number, max: number): number {
    const rest = this.byteLength - offset;
    // For a message in one piece, libucp sets no limit (1.18): all ones, which is -1 here.
    const byteLength = max < 0 ? rest : Math.min(max, rest);
    eachPart(this.pieces, offset, byteLength, (memory, at, bytes, position) => {
      const to = address + position;
      if (isHost(memory)) return this.#readHost(memory, at, bytes, to);
      const begin = offset + position;
      const known = Math.min(Math.max(this.#head.byteLength - begin, 0), bytes);
      if (known > 0) memcpy(to, addressOf(this.#head) + begin, known);
      this.#read(memory as UcpMemory, at + known, bytes - known, begin + known, to + known);
    });
    return byteLength;
  }

  /**
   * Fails the connection of a message that could not be read: it cannot be withdrawn, and its receiver must not treat its zeros as data. The engine tells the
   * receivers of its own messages, which have no sender here.
   */
  override settle({ sender }: UcpRequest, status: Status): Status {
    if (this.failure === Status.OK) return status;
    if (sender === undefined) return this.failure;
    const { log } = this.staging.worker.context;
    log.error('the memory of a message could not be read, and its receiver gets zeros: the connection is given up');
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

  #read(memory: UcpMemory, offset: number, byteLength: number, position: number, address: number): void {
    const isWhole = byteLength === memory.byteLength || byteLength === this.byteLength;
    for (let done = 0; done < byteLength; ) {
      const window = isWhole ? undefined : this.#windowAt(position + done);
      let bytes = byteLength - done;
      let status: Status;
      if (window === undefined) {
        status =
          this.failure < 0
            ? this.failure
            : this.staging.copyNow(false, memory.node, offset + done, address + done, bytes);
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

  /** The window that contains a byte of the message; undefined if no fragment is available. */
  #windowAt(position: number): ReadWindow | undefined {
    const [first] = this.#windows;
    if (first !== undefined && position >= first.begin && position < first.end) return first;
    // libucp may request bytes out of order, over several lanes.
    this.#drop(this.#windows.splice(0));
    return this.#open(position);
  }

  /** Reads a fragment of the first device memory at or after a byte of the message. */
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
    const device = (piece.memory as UcpMemory).node;
    const copy = { device, offset, host: fragment.node, hostOffset: 0, byteLength: bytes };
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
