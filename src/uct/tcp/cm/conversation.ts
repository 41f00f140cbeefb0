/**
 * The frames on one connected socket of the connection manager: sends them in order, reads them one by one, and detects the end of the connection and
 * violations. The order of frames is checked by the two ends, in client-attempt.ts and server-client.ts.
 */

import { Errno, errnoText, ReadyFor } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Channel } from './channel.ts';
import { type Frame, FrameReader } from './frame.ts';
import type { Watch, Watched } from './watch.ts';

/** Bytes that are read from a peer that must not send any more: enough to detect a violation. */
const PROBE_BYTES = 1;

/** Reason for the absence of a frame. */
export type Silence =
  /** No complete frame has arrived. */
  | 'waiting'
  /** The peer has closed the connection regularly. */
  | 'ended';

/** The peer has violated the protocol, or the connection has failed. */
export interface Fault {
  readonly status: Status;
  /** Description of what the peer or the kernel did. */
  readonly reason: string;
}

/** A conversation. */
export class Conversation {
  readonly #watch: Watch;
  readonly #channel: Channel;
  readonly #token: number;
  readonly #output: Uint8Array[] = [];
  #sent = 0;
  #reader: FrameReader = new FrameReader();
  #isOpen = false;
  #events: number = ReadyFor.READ;
  /** Error of sending. Data that the peer sent earlier can still be read. */
  #brokenBy = 0;
  #closed = false;

  /**
   * Watches the channel for `watched`, and owns it.
   * @throws SyscallError ENOSPC; the channel is closed then
   */
  constructor(watch: Watch, channel: Channel, watched: Watched) {
    this.#watch = watch;
    this.#channel = channel;
    try {
      this.#token = watch.add(channel.fd, this.#events, watched);
    } catch (error) {
      channel.close();
      throw error;
    }
  }

  /** Whether frames can be exchanged. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether anything was received. */
  get hasReceived(): boolean {
    return this.#channel.hasReceived;
  }

  /** True if all frames were sent. */
  get isFlushed(): boolean {
    return this.#brokenBy !== 0 || (this.#isOpen && this.#output.length === 0 && !this.#channel.hasOutput);
  }

  /** Sends a frame, now or when there is room. */
  send(packed: Uint8Array): void {
    this.#output.push(packed);
    this.flush();
  }

  /** Sends as much as there is room for. */
  flush(): void {
    while (this.#isOpen && this.#output.length > 0 && this.#brokenBy === 0) {
      const head = this.#output[0]!;
      const sent = this.#channel.write(this.#sent === 0 ? head : head.subarray(this.#sent));
      if (sent === -Errno.EAGAIN) break;
      if (sent < 0) this.#brokenBy = -sent;
      else this.#sent += sent;
      if (this.#sent < head.byteLength) continue;
      this.#output.shift();
      this.#sent = 0;
    }
    this.#rearm();
  }

  /** Continues the handshake of the channel; returns its failure. */
  open(): Fault | undefined {
    if (this.#isOpen) return undefined;
    const status = this.#channel.handshake();
    if (status < 0) return { status, reason: this.#channel.failure };
    this.#isOpen = status === Status.OK;
    this.flush();
    return undefined;
  }

  /** Returns the next frame of the peer, or the reason for its absence. */
  receive(staging: Uint8Array): Frame | Silence | Fault {
    if (!this.#isOpen) return 'waiting';
    for (;;) {
      const received = this.#channel.read(staging.subarray(0, this.#reader.missing));
      if (received <= 0) return this.#nothing(received);
      this.#reader.take(staging.subarray(0, received));
      const { frame, fault } = this.#reader;
      if (fault !== undefined) return { status: Status.INVALID_PARAM, reason: `a frame ${fault}` };
      if (frame === undefined) continue;
      this.#reader = new FrameReader();
      return frame;
    }
  }

  /** Checks a peer that must not send any more. */
  silence(staging: Uint8Array): Silence | Fault {
    const received = this.#channel.read(staging.subarray(0, PROBE_BYTES));
    if (received <= 0) return this.#nothing(received);
    return { status: Status.INVALID_PARAM, reason: 'said more than it may' };
  }

  /** Reads and discards data of the peer; returns the number of bytes, or the reason for their absence. */
  discard(staging: Uint8Array): number | Silence | Fault {
    const received = this.#channel.read(staging);
    return received > 0 ? received : this.#nothing(received);
  }

  /** Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#watch.remove(this.#channel.fd, this.#token);
    this.#channel.close();
  }

  #nothing(received: number): Silence | Fault {
    if (received === 0) return 'ended';
    if (received !== -Errno.EAGAIN) return { status: Status.CONNECTION_RESET, reason: errnoText(-received) };
    if (this.#brokenBy === 0) return 'waiting';
    return { status: Status.CONNECTION_RESET, reason: errnoText(this.#brokenBy) };
  }

  #rearm(): void {
    if (this.#closed) return;
    const hasFrames = this.#isOpen && this.#brokenBy === 0 && this.#output.length > 0;
    const events = hasFrames || this.#channel.hasOutput ? ReadyFor.READ | ReadyFor.WRITE : ReadyFor.READ;
    if (events === this.#events) return;
    this.#events = events;
    this.#watch.modify(this.#channel.fd, events, this.#token);
  }
}
