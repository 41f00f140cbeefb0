/** Active messages as an async iterable: a handler that queues messages until the loop of the application takes them. */

import { addAbortListener } from 'node:events';
import { AbortError, invalidParam } from '../../../ucs/type/error.ts';
import { type AmMessage, checkAmId, type MessageQueue } from '../active-message.ts';
import type { ProgressDriver } from './progress-driver.ts';
import type { ReceivedMessage } from './received-message.ts';

/** A handler as engines call it; an AmCallback is one. */
export type MessageHandler = (message: ReceivedMessage) => void;

/** Owner of the AM handlers. */
export interface MessageHandlers {
  handlerOf(id: number): MessageHandler | undefined;
  setHandler(id: number, handler: MessageHandler | undefined): void;
}

/** The messages of one id, from its creation until the loop ends or the signal fires. Messages are copies that belong to the loop. */
class KeptMessages implements MessageQueue {
  readonly #am: MessageHandlers;
  readonly #driver: ProgressDriver;
  readonly #id: number;
  readonly #signal: AbortSignal | undefined;
  readonly #listener: Disposable | undefined;
  readonly #onClose: (queue: KeptMessages) => void;
  readonly #messages: ReceivedMessage[] = [];
  /** Pending calls of next. */
  readonly #waiting: (() => void)[] = [];
  #closed = false;

  /** @throws UcxError ERR_INVALID_PARAM if the id has a handler */
  constructor(
    am: MessageHandlers,
    driver: ProgressDriver,
    id: number,
    signal: AbortSignal | undefined,
    onClose: (queue: KeptMessages) => void,
  ) {
    checkAmId(id);
    if (am.handlerOf(id) !== undefined) throw invalidParam('id', 'must have no handler', id);
    this.#am = am;
    this.#driver = driver;
    this.#id = id;
    this.#signal = signal;
    this.#onClose = onClose;
    am.setHandler(id, (message) => {
      this.#messages.push(message.enqueue());
      this.#waiting.shift()?.();
    });
    if (signal !== undefined) this.#listener = addAbortListener(signal, () => this.close());
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<AmMessage, void>> {
    while (this.#messages.length === 0 && !this.#closed) await this.#arrival();
    if (this.#signal?.aborted === true) throw new AbortError(this.#signal);
    const value = this.#closed ? undefined : this.#messages.shift();
    value?.leaveQueue();
    return value === undefined ? { done: true, value: undefined } : { done: false, value };
  }

  return(): Promise<IteratorResult<AmMessage, void>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  async #arrival(): Promise<void> {
    // Before driving starts, because a message may arrive at once.
    const arrival = new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
    });
    this.#driver.begin();
    await arrival;
    this.#driver.end();
  }

  /** Ends the loop. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#listener?.[Symbol.dispose]();
    this.#am.setHandler(this.#id, undefined);
    for (const message of this.#messages.splice(0)) {
      message.leaveQueue();
      message.release();
    }
    for (const wake of this.#waiting.splice(0)) wake();
    this.#onClose(this);
  }
}

/** The message queues of one worker. */
export class MessageQueues {
  readonly #am: MessageHandlers;
  readonly #driver: ProgressDriver;
  readonly #open: Set<KeptMessages> = new Set();

  constructor(am: MessageHandlers, driver: ProgressDriver) {
    this.#am = am;
    this.#driver = driver;
  }

  /** See Worker.messages. */
  open(id: number, signal: AbortSignal | undefined): MessageQueue {
    const queue = new KeptMessages(this.#am, this.#driver, id, signal, (closed) => this.#open.delete(closed));
    this.#open.add(queue);
    return queue;
  }

  /** Ends all loops. */
  close(): void {
    for (const queue of this.#open) queue.close();
  }
}
