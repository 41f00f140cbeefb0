/** The port of staging: copies between device memory and host memory, and the context and worker that offer them to another engine. Types only. */

import type { Status } from '../../ucs/type/status.ts';
import type { Context } from '../api/context.ts';
import type { LocalMemory, MemoryHandle } from '../api/operation/memory.ts';
import type { Worker, WorkerOptions } from '../api/worker.ts';

/** Called at the end of a copy; `error` says more of a failure if something is known. */
export type CopyDone = (status: Status, error?: unknown) => void;

/** The two sides of a copy. */
export interface DeviceCopy {
  /** Device memory, and the byte of it at which the copy begins. */
  readonly device: MemoryHandle;
  readonly offset: number;
  /** Host memory, best a fragment, and the byte of it at which the copy begins. */
  readonly host: LocalMemory;
  readonly hostOffset: number;
  readonly byteLength: number;
}

/** Copies between device memory and host memory. */
export interface DeviceCopier {
  /**
   * Starts a copy.
   * @param isToDevice false to read the device memory
   * @param done called when the bytes are there, or the copy has failed; during this call if that is known at once, else from progress of the worker
   */
  copy(isToDevice: boolean, copy: DeviceCopy, done: CopyDone): void;
}

/** A worker that copies. */
export interface CopyingWorker extends Worker {
  readonly copier: DeviceCopier;
  /** Reports of its operations to observers; none once `isTold` is false. */
  readonly observation: { isTold: boolean };
}

/** A context whose workers copy. */
export interface CopyingContext<Device = unknown> extends Context<Device> {
  worker(options?: WorkerOptions): CopyingWorker;
}
