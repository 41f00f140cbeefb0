/** The interface of an object with progress and events. */

import { throwLater } from '../../ucs/debug/uncaught.ts';

/** A worker, as seen by the code that drives it. */
export interface Progressable {
  /** True in callbacks, in which progress is rejected. */
  readonly isInProgress: boolean;
  /** Number of progress calls. */
  readonly progressCalls: number;
  progress(): number;
  /** Notifies a program that waits for an event of progress. */
  signal(): void;
  /**
   * Calls `wake`, at least once, when there may be something to do: an operation has ended, or a message has arrived.
   * @param wake kept until then; passing the same function again has no further effect
   */
  sleepOn(wake: () => void): void;
}

/**
 * Makes progress outside of calls of the application: an error thrown by one of its callbacks becomes an uncaught exception.
 * @returns like `progress`
 */
export function progressInBackground(worker: Pick<Progressable, 'progress'>): number {
  try {
    return worker.progress();
  } catch (error) {
    throwLater(error);
    return 1;
  }
}
