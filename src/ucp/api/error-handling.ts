/** What an endpoint does when its connection ends without being closed here. Ending the requests is the connection's business. */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { Endpoint, EndpointOptions } from './endpoint.ts';

/**
 * Checks options before anything is done with them.
 * @param others names of what the options have beside
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkErrorHandling(options: EndpointOptions, others: readonly string[] = []): void {
  checkOptions(options, 'options', ['errorHandling', 'onError', ...others]);
  const { errorHandling = 'peer', onError } = options;
  if (errorHandling !== 'peer' && errorHandling !== 'none') {
    throw invalidParam('errorHandling', 'must be peer or none', errorHandling);
  }
  if (onError !== undefined && typeof onError !== 'function') {
    throw invalidParam('onError', 'must be a function', onError);
  }
}

/** The error handling of one endpoint. */
export class ErrorHandling {
  #options: EndpointOptions = {};
  #hasReported = false;

  /** True where the peer is looked after. */
  get watchesPeer(): boolean {
    return this.#options.errorHandling !== 'none';
  }

  /** Takes options that {@link checkErrorHandling} has accepted. */
  set(options: EndpointOptions): void {
    this.#options = { ...options };
  }

  /** Tells the application, once. */
  report(endpoint: Endpoint, status: Status): void {
    if (this.#hasReported) return;
    this.#hasReported = true;
    if (this.watchesPeer) this.#options.onError?.(endpoint, status);
  }
}
