/**
 * Callbacks of AbortSignals: one listener per signal, shared by all operations, because Node warns about a signal with
 * more than ten.
 */

/** The operations that can be aborted. */
export class AbortListeners {
  readonly #bySignal: Map<AbortSignal, Set<() => void>> = new Map();
  readonly #onAbort = (event: Event): void => {
    const cancels = this.#bySignal.get(event.target as AbortSignal);
    for (const cancel of [...(cancels ?? [])]) cancel();
  };

  /** Calls `cancel` when the signal fires, until {@link remove}. */
  add(signal: AbortSignal, cancel: () => void): void {
    let cancels = this.#bySignal.get(signal);
    if (cancels === undefined) {
      cancels = new Set();
      this.#bySignal.set(signal, cancels);
      signal.addEventListener('abort', this.#onAbort);
    }
    cancels.add(cancel);
  }

  remove(signal: AbortSignal, cancel: () => void): void {
    const cancels = this.#bySignal.get(signal);
    if (cancels === undefined) return;
    cancels.delete(cancel);
    if (cancels.size > 0) return;
    this.#bySignal.delete(signal);
    signal.removeEventListener('abort', this.#onAbort);
  }
}
