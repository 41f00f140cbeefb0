/**
 * The ports of staging: copies between device memory and fragments, the context and worker that offer them to another engine, and what an engine stages with. Types
 * only.
 */

import type { Status } from '../../ucs/type/status.ts';
import type { Context } from '../api/context.ts';
import type { MemoryHandle } from '../api/memory.ts';
import type { Worker, WorkerOptions } from '../api/worker.ts';
import type { FragmentUser } from './fragment-pool.ts';

/** Called at the end of a copy; `error` says more of a failure if something is known. */
export type CopyDone = (status: Status, error?: unknown) => void;

/** The two sides of a copy. */
export interface DeviceCopy<M> {
  /** Device memory, and the byte of it at which the copy begins. */
  readonly device: M;
  readonly offset: number;
  /** Host memory that the card reaches, and the byte of it at which the copy begins. */
  readonly fragment: M;
  readonly fragmentOffset: number;
  readonly byteLength: number;
}

/** Copies between device memory and fragments. */
export interface DeviceCopier<M = MemoryHandle> {
  /**
   * Starts a copy.
   * @param isToDevice false to read the device memory
   * @param done called when the bytes are there, or the copy has failed; during this call if that is known at once, else from progress of the worker
   */
  copy(isToDevice: boolean, copy: DeviceCopy<M>, done: CopyDone): void;
}

/** The port by which an engine stages: copies and fragments. */
export interface StagingPort<M> extends DeviceCopier<M> {
  /** See FragmentPool. */
  acquire(run: FragmentUser<M>): void;
  release(fragment: M): void;
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
