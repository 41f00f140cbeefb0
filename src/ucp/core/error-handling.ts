/** What an endpoint does when its connection ends without being closed here. Ending the requests is the connection's business. */

import { invalidParam } from '../../ucs/error.ts';
import type { Status } from '../../ucs/status.ts';

/** What the application wants to know. */
export interface ErrorHandlingOptions<E> {
  /**
   * What happens when the peer is gone: `peer` (the default) ends every operation with its status within UCX_KEEPALIVE_INTERVAL and calls
   * `onError`; with `none` nobody looks after the peer, and nobody is told.
   */
  readonly errorHandling?: 'peer' | 'none';
  /** Called once when the connection has ended without being closed here: CONNECTION_RESET or ENDPOINT_TIMEOUT. */
  readonly onError?: (endpoint: E, status: Status) => void;
}

/**
 * Checks options before anything is done with them.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkErrorHandling<E>(options: ErrorHandlingOptions<E>): void {
  if (typeof options !== 'object' || options === null) throw invalidParam('options', 'must be an object', options);
  const { errorHandling = 'peer', onError } = options;
  if (errorHandling !== 'peer' && errorHandling !== 'none') {
    throw invalidParam('errorHandling', 'must be peer or none', errorHandling);
  }
  if (onError !== undefined && typeof onError !== 'function') {
    throw invalidParam('onError', 'must be a function', onError);
  }
}

/** The error handling of one endpoint. */
export class ErrorHandling<E> {
  #options: ErrorHandlingOptions<E> = {};
  #hasReported = false;

  /** True where the peer is looked after. */
  get watchesPeer(): boolean {
    return this.#options.errorHandling !== 'none';
  }

  /** Takes options that {@link checkErrorHandling} has accepted. */
  set(options: ErrorHandlingOptions<E>): void {
    this.#options = { ...options };
  }

  /** Tells the application, once. */
  report(endpoint: E, status: Status): void {
    if (this.#hasReported) return;
    this.#hasReported = true;
    if (this.watchesPeer) this.#options.onError?.(endpoint, status);
  }
}
