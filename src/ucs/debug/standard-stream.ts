/** Writes text to standard output or standard error of the program. If the stream is broken or full, the text is lost: text about the program must not end it. */

import type { Writable } from 'node:stream';

/** Number of writes in progress to each stream, which has the listener {@link ignore} while there are any. */
const writes = new WeakMap<Writable, number>();

/**
 * Writes `text`. Node.js ends a program at an error of a stream without a listener; failures of the program's own writes are left to the program.
 * @param stream process.stdout or process.stderr
 */
export function writeStandard(stream: Writable, text: string): void {
  const others = writes.get(stream) ?? 0;
  writes.set(stream, others + 1);
  if (others === 0) stream.on('error', ignore);
  // Node.js reports the failure to the callback first, and then to listeners.
  stream.write(text, (error) => (error instanceof Error ? setImmediate(ended, stream) : ended(stream)));
}

function ended(stream: Writable): void {
  const left = writes.get(stream)! - 1;
  writes.set(stream, left);
  if (left === 0) stream.off('error', ignore);
}

function ignore(): void {}
