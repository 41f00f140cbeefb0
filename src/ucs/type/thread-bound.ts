/**
 * Binds objects to the thread that made them: structuredClone, postMessage and workerData reject them with an error that states the reason.
 *
 * The clone algorithm copies the fields of an object in order and rejects a symbol with its description, in every version of Node.js. `markAsUncloneable` is
 * not in all of them, and its error does not state a reason.
 */

/**
 * Value of the first field of such an object: `readonly thread: symbol = THREAD_BOUND`. At most 100 characters, because Node.js 24 omits the middle of longer
 * ones.
 */
export const THREAD_BOUND: symbol = Symbol(
  'gaudi-ucx objects belong to one thread: open a Context in each, and pass addresses and packed keys',
);
