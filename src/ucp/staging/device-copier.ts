/** The port by which staging copies between device memory and fragments, and the context and worker that offer it to another engine. Types only. */

import type { Status } from '../../ucs/type/status.ts';
import type { Context } from '../api/context.ts';
import type { MemoryHandle } from '../api/memory.ts';
import type { Worker, WorkerOptions } from '../api/worker.ts';

/** Called at the end of a copy; `error` says more of a failure if something is known. */
export type CopyDone = (status: Status, error?: unknown) => void;

/** Copies between device memory and host memory that the card reaches. */
export interface DeviceCopier {
  /**
   * Copies `byteLength` bytes between `device` at `offset` and `fragment` at `fragmentOffset`.
   * @param isToDevice false to read the device memory
   * @param done called when the bytes are there, or the copy has failed; during this call if that is known at once, else from progress of the worker
   */
  copy(
    isToDevice: boolean,
    device: MemoryHandle,
    offset: number,
    fragment: MemoryHandle,
    fragmentOffset: number,
    byteLength: number,
    done: CopyDone,
  ): void;
}

/** A worker that copies. */
export interface CopyingWorker extends Worker {
  readonly copier: DeviceCopier;
}

/** A context whose workers copy. */
export interface CopyingContext<Device = unknown> extends Context<Device> {
  worker(options?: WorkerOptions): CopyingWorker;
}
