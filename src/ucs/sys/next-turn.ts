/**
 * Turns of the event loop. Uses the functions that Node.js has when this module is loaded: a test runner that fakes timers later must not stop progress for the
 * rest of the process.
 */

const { setImmediate, clearImmediate } = globalThis;

/** Runs a function in the next turn; keeps the process alive until then. */
export function inNextTurn(run: () => void): NodeJS.Immediate {
  return setImmediate(run);
}

/** Cancels a function of {@link inNextTurn}; no effect after it has run. */
export function cancelTurn(turn: NodeJS.Immediate | undefined): void {
  clearImmediate(turn);
}

/** Resolves in the next turn. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
