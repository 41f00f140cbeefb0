/**
 * Binds objects to the thread that made them: structuredClone, postMessage and workerData refuse them with an error that states the reason.
 *
 * The clone algorithm copies the fields of an object in order and refuses a symbol by its description, in every version of Node.js.
 * `markAsUncloneable` is not in all of them, and its error states no reason.
 */

/** The value of the first field of such an object: `readonly thread: symbol = THREAD_BOUND`. Node.js 24 omits the middle of descriptions of more than 100 characters. */
export const THREAD_BOUND: symbol = Symbol(
  'it belongs to the thread that made it: open a Context in every thread, and pass addresses and keys',
);
