/** What makes progress and has events, for those that drive it. */

import { throwLater } from '../../ucs/debug/uncaught.ts';

/** An object with events. */
export interface Sleeper {
  /**
   * Calls `wake`, once or more often, when there may be something to do: an operation has ended, or a message has arrived.
   * @param wake kept until then; passing the same function again has no further effect
   */
  sleepOn(wake: () => void): void;
}

/** An object with progress. */
export interface Progressable extends Sleeper {
  /** True in callbacks, in which progress is refused. */
  readonly isInProgress: boolean;
  progress(): number;
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
