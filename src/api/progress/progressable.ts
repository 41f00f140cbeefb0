/** The interface of an object with progress and events. */

import { throwLater } from '../../ucs/debug/uncaught.ts';

/** A worker, as those see it that drive it. */
export interface Progressable {
  /** True in callbacks, in which progress is refused. */
  readonly isInProgress: boolean;
  /** Changes with every call of progress. */
  readonly progressCalls: number;
  progress(): number;
  /** Tells a program that waits for an event that there was progress. */
  signal(): void;
  /**
   * Calls `wake`, once or more often, when there may be something to do: an operation has ended, or a message has arrived.
   * @param wake kept until then; passing the same function again has no further effect
   */
  sleepOn(wake: () => void): void;
}

/**
 * Makes progress outside of the calls of the application: an error that a callback of it has thrown becomes an uncaught exception.
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
