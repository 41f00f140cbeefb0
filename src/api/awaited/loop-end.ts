/** The end of a loop over messages of peers: by a signal, or when the connection of an endpoint ends. */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam, statusError, throwIfAborted } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { addAbortListener, checkSignal } from '../contract/listener.ts';
import type { LoopOptions } from '../contract/worker.ts';
import { ClosableEndpoint } from './endpoint.ts';

/** Checks the options of a loop. @throws UcxError ERR_INVALID_PARAM */
export function checkLoopOptions(options: LoopOptions): LoopOptions {
  checkOptions(options, 'options', ['signal', 'until']);
  const { signal, until } = options;
  if (signal !== undefined) checkSignal(signal);
  if (until !== undefined && !ClosableEndpoint.isGenuine(until)) {
    throw invalidParam('until', 'must be an endpoint', until);
  }
  return options;
}

/** The end of one loop. */
export class LoopEnd implements Disposable {
  readonly #signal: AbortSignal | undefined;
  readonly #until: ClosableEndpoint | undefined;
  readonly #listeners: readonly Disposable[];

  /** @param wake called when the connection ends @param onAbort called when the signal fires */
  constructor({ signal, until }: LoopOptions, wake: () => void, onAbort: () => void = wake) {
    this.#signal = signal;
    this.#until = until as ClosableEndpoint | undefined;
    const listeners: Disposable[] = [];
    if (signal !== undefined) listeners.push(addAbortListener(signal, onAbort));
    if (this.#until !== undefined) listeners.push(this.#until.onEnded(wake));
    this.#listeners = listeners;
  }

  /** @throws AbortError */
  throwIfAborted(): void {
    throwIfAborted(this.#signal);
  }

  /**
   * Whether the connection has ended: closed by either side.
   * @throws UcxError with the failure of the connection
   */
  hasEnded(): boolean {
    const endpoint = this.#until;
    if (endpoint === undefined) return false;
    const { closed, closedByPeer, status } = endpoint;
    if (closed || closedByPeer === true) return true;
    if (status !== Status.OK) throw statusError(status, 'the connection failed before the loop ended');
    return false;
  }

  [Symbol.dispose](): void {
    for (const listener of this.#listeners) listener[Symbol.dispose]();
  }
}
