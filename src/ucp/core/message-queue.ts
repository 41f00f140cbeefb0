/**
 * Active messages as an async iterable: a handler that keeps what arrives until the loop of the application asks for it.
 */

import { addAbortListener } from 'node:events';
import { AbortError, invalidParam } from '../../ucs/error.ts';
import type { ActiveMessages } from '../am/active-message.ts';
import type { AmMessage } from '../am/message-view.ts';
import type { ProgressDriver } from './progress-driver.ts';

/** Yields the messages of one id until the signal fires or the loop is left. Messages are copies that belong to the loop. */
export async function* messagesOf<E>(
  am: ActiveMessages<E>,
  driver: ProgressDriver,
  id: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<AmMessage<E>, void, void> {
  if (am.handlerOf(id) !== undefined) throw invalidParam('id', 'must have no handler', id);
  const queue: AmMessage<E>[] = [];
  let wake: () => void = () => {};
  am.setHandler(id, (message) => {
    queue.push(message.retain());
    wake();
  });
  const listener = signal === undefined ? undefined : addAbortListener(signal, () => wake());
  driver.begin();
  try {
    for (;;) {
      if (signal?.aborted === true) throw new AbortError(signal);
      const message = queue.shift();
      if (message !== undefined) yield message;
      else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  } finally {
    driver.end();
    listener?.[Symbol.dispose]();
    am.setHandler(id, undefined);
  }
}
