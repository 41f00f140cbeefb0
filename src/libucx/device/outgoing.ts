/**
 * A message that is sent from memory of cards, at least in part: libucp asks for its bytes piece by piece, from inside its calls, and fragments are read
 * ahead. Which messages are sent so is decided in request/buffers.ts.
 */

import { memcpy, memset } from '../../sys/index.ts';
import { eachPart } from '../../ucp/api/local-bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { addressIn, isHost } from '../request/buffers.ts';
import { CopiedMessage } from './copied-message.ts';

/** Fragments of one message: one that libucp empties, and one that the card fills meanwhile. */
const WINDOWS_MAX = 2;

/** Bytes of a message that are read, or being read, into a fragment. */
interface ReadWindow {
  readonly begin: number;
  readonly end: number;
  readonly fragment: UcpMemory;
  /** INPROGRESS while the card reads. */
  status: Status;
  /** libucp needs it no more: its fragment goes back when the card has read. */
  isDropped: boolean;
}

/** The message. The peer gets zeros in the place of bytes that could not be read. */
export class OutgoingMessage extends CopiedMessage {
  /** In the order of the message, one behind the other. */
  readonly #windows: ReadWindow[] = [];

  /** Copies `[offset, offset + max)` of the message, as far as it goes, to an address; returns the bytes. */
  pack(offset: number, address: number, max: number): number {
    const rest = this.byteLength - offset;
    // Where a message goes as one piece, libucp sets no bound (1.18): all ones, which is -1 here.
    const byteLength = max < 0 ? rest : Math.min(max, rest);
    eachPart(this.pieces, offset, byteLength, (memory, at, bytes, position) => {
      const to = address + position;
      if (isHost(memory)) memcpy(to, addressIn(memory, at), bytes);
      else this.#read(memory as UcpMemory, at, bytes, offset + position, to);
    });
    return byteLength;
  }

  protected override finish(): void {
    this.#drop(this.#windows.splice(0));
  }

  /** Gives the fragment of a dropped window back, once the card has read. */
  #retire({ fragment, status, isDropped }: ReadWindow): void {
    if (isDropped && status !== Status.INPROGRESS) this.release(fragment);
  }

  #drop(windows: readonly ReadWindow[]): void {
    for (const window of windows) {
      window.isDropped = true;
      this.#retire(window);
    }
  }

  #read(memory: UcpMemory, offset: number, byteLength: number, position: number, address: number): void {
    const isWhole = byteLength === memory.byteLength || byteLength === this.byteLength;
    for (let done = 0; done < byteLength; ) {
      const window = isWhole ? undefined : this.#windowAt(position + done);
      let bytes = byteLength - done;
      let status: Status;
      if (window === undefined) {
        status =
          this.failure < 0 ? this.failure : this.staging.copyNow(false, memory, offset + done, address + done, bytes);
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

  /** The window with a byte of the message; undefined when there is no fragment for it. */
  #windowAt(position: number): ReadWindow | undefined {
    const [first] = this.#windows;
    if (first !== undefined && position >= first.begin && position < first.end) return first;
    // libucp may ask for bytes out of order, over several lanes.
    this.#drop(this.#windows.splice(0));
    return this.#open(position);
  }

  /** Reads a fragment of the device memory at, or next after, a byte of the message. */
  #open(position: number): ReadWindow | undefined {
    const piece = this.pieces.find(({ memory, start, byteLength }) => position < start + byteLength && !isHost(memory));
    if (piece === undefined) return undefined;
    const fragment = this.staging.fragments.tryAcquire();
    if (fragment === undefined) return undefined;
    const begin = Math.max(position, piece.start);
    const bytes = Math.min(fragment.byteLength, piece.start + piece.byteLength - begin);
    const window: ReadWindow = { begin, end: begin + bytes, fragment, status: Status.INPROGRESS, isDropped: false };
    this.#windows.push(window);
    this.fragmentsInUse += 1;
    const offset = piece.offset + begin - piece.start;
    const copy = { device: piece.memory as UcpMemory, offset, fragment, fragmentOffset: 0, byteLength: bytes };
    this.staging.startCopy(false, copy, (status) => {
      window.status = status;
      this.#retire(window);
    });
    return window;
  }

  #readAhead(): void {
    while (this.#windows.length > 0 && this.#windows.length < WINDOWS_MAX) {
      if (this.#open(this.#windows.at(-1)!.end) === undefined) return;
    }
  }
}
