/** Error handling of an endpoint: the callbacks for the end of its connection. */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { Endpoint, EndpointOptions } from './endpoint.ts';

/**
 * Checks the options of an endpoint.
 * @param others names of further options
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkErrorHandling(options: EndpointOptions, others: readonly string[] = []): void {
  checkOptions(options, 'options', ['errorHandling', 'onError', ...others]);
  const { errorHandling = 'peer', onError } = options;
  if (errorHandling !== 'peer' && errorHandling !== 'none') {
    throw invalidParam('errorHandling', "must be 'peer' or 'none'", errorHandling);
  }
  if (onError !== undefined && typeof onError !== 'function') {
    throw invalidParam('onError', 'must be a function', onError);
  }
}

/** The error handling of one endpoint. */
export class ErrorHandling {
  #options: EndpointOptions = {};
  #hasReported = false;
  readonly #onEnded: Set<() => void> = new Set();

  /** True if the peer is monitored. */
  get watchesPeer(): boolean {
    return this.#options.errorHandling !== 'none';
  }

  /** Sets options that {@link checkErrorHandling} has accepted. */
  set(options: EndpointOptions): void {
    this.#options = { ...options };
  }

  /** Calls back when the connection ends. */
  onEnded(callback: () => void): Disposable {
    this.#onEnded.add(callback);
    return { [Symbol.dispose]: () => this.#onEnded.delete(callback) };
  }

  /** Called when the connection has ended, or its endpoint is being closed. */
  end(): void {
    for (const callback of this.#onEnded) callback();
  }

  /** Calls the callback of the application, once. @param worker handles an error that it throws */
  report(endpoint: Endpoint, status: Status, worker: { onThrown(error: unknown): void }): void {
    if (this.#hasReported) return;
    this.#hasReported = true;
    this.end();
    if (!this.watchesPeer) return;
    try {
      this.#options.onError?.(endpoint, status);
    } catch (error) {
      worker.onThrown(error);
    }
  }
}
