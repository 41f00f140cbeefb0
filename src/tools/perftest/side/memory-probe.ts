/**
 * Access to mapped memory of a test, including device memory: sets and polls sequence numbers, and checks contents. Device memory is read and written by an
 * endpoint of the worker to itself, outside of measurements.
 */

import type { Context } from '../../../api/contract/context.ts';
import type { Endpoint } from '../../../api/contract/endpoint.ts';
import type { MemoryHandle, RemoteKey } from '../../../api/contract/memory.ts';
import type { Request } from '../../../api/contract/request.ts';
import type { Worker } from '../../../api/contract/worker.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { statusError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

/** Time limit for a card to copy a few bytes. */
const ACCESS_NS_MAX = 10e9;
const POLLS_MASK = 1023;

/** Access to a range of mapped memory. */
export class MemoryProbe {
  readonly memory: MemoryHandle;
  readonly #context: Context;
  readonly #worker: Worker;
  #access: { readonly endpoint: Endpoint; readonly rkey: RemoteKey } | undefined;
  readonly #byte: Uint8Array = new Uint8Array(1);
  #reading: Request | undefined;

  constructor(context: Context, worker: Worker, memory: MemoryHandle) {
    this.memory = memory;
    this.#context = context;
    this.#worker = worker;
  }

  /** Writes bytes and waits for completion. Must not be called in a callback. */
  write(offset: number, bytes: Uint8Array): void {
    const { bytes: host } = this.memory;
    if (host !== undefined) {
      host.set(bytes, offset);
      return;
    }
    const { endpoint, rkey } = this.#device;
    this.#finish(endpoint.putNbx(bytes, 0, bytes.byteLength, rkey, offset));
    this.#finish(endpoint.flushNbx());
  }

  /** Reads bytes. Must not be called in a callback. */
  read(offset: number, target: Uint8Array): void {
    const { bytes: host } = this.memory;
    if (host !== undefined) {
      target.set(host.subarray(offset, offset + target.byteLength));
      return;
    }
    const { endpoint, rkey } = this.#device;
    this.#finish(endpoint.getNbx(target, 0, target.byteLength, rkey, offset));
  }

  /** The byte at an offset of device memory once the read that an earlier call started has completed; otherwise undefined. */
  pollByte(offset: number): number | undefined {
    if (this.#reading === undefined) {
      const { endpoint, rkey } = this.#device;
      const started = endpoint.getNbx(this.#byte, 0, 1, rkey, offset);
      if (started === Status.OK) return this.#byte[0];
      if (started === Status.NO_RESOURCE) return undefined;
      if (typeof started === 'number') throw this.#failure(started, 'read of a sequence number');
      this.#reading = started;
    }
    if (!this.#reading.isCompleted) return undefined;
    const { status } = this.#reading;
    this.#reading.free();
    this.#reading = undefined;
    if (status < 0) throw this.#failure(status, 'read of a sequence number');
    return this.#byte[0];
  }

  /** Makes progress for a read of {@link pollByte}, unless other code calls progress. */
  progress(): number {
    return this.#worker.progress();
  }

  close(): void {
    this.#access?.rkey.release();
  }

  /** Created at the first access to device memory. */
  get #device(): { readonly endpoint: Endpoint; readonly rkey: RemoteKey } {
    if (this.#access === undefined) {
      const endpoint = this.#worker.endpoint(this.#worker.address());
      this.#access = { endpoint, rkey: endpoint.unpackRkey(this.#context.packRkey(this.memory)) };
    }
    return this.#access;
  }

  #failure(status: Status, what: string): UcxError {
    return statusError(status, what, this.#worker.causeOf(status));
  }

  #finish(started: Status | Request): void {
    if (typeof started === 'number') {
      if (started < 0) throw this.#failure(started, 'access to memory of the test');
      return;
    }
    const deadline = systemClock.nowNs() + ACCESS_NS_MAX;
    for (let poll = 1; !started.isCompleted; poll++) {
      this.#worker.progress();
      if ((poll & POLLS_MASK) === 0 && systemClock.nowNs() > deadline) {
        throw statusError(Status.TIMED_OUT, 'access to memory of the test');
      }
    }
    const { status } = started;
    started.free();
    if (status < 0) throw this.#failure(status, 'access to memory of the test');
  }
}
