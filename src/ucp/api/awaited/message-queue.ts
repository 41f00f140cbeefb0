/** Active messages as an async iterable: a handler that queues messages until the loop of the application takes them. */

import { invalidParam } from '../../../ucs/type/error.ts';
import { THREAD_BOUND } from '../../../ucs/type/thread-bound.ts';
import { type AmMessage, checkAmId, type MessageQueue } from '../active-message.ts';
import type { ProgressDriver } from '../progress/progress-driver.ts';
import type { LoopOptions } from '../worker.ts';
import { LoopEnd } from './loop-end.ts';
import type { ReceivedMessage } from './received-message.ts';

/** A handler as engines call it; an AmCallback is one. */
export type MessageHandler = (message: ReceivedMessage) => void;

/** Owner of the AM handlers. */
export interface MessageHandlers {
  handlerOf(id: number): MessageHandler | undefined;
  setHandler(id: number, handler: MessageHandler | undefined): void;
}

/** Messages that have arrived, until they are taken: copies, whose memory counts as the sender's credit meanwhile. */
export class ArrivedMessages {
  readonly #driver: ProgressDriver;
  readonly #messages: ReceivedMessage[] = [];
  /** Pending calls of {@link arrival}. */
  readonly #waiting: (() => void)[] = [];

  constructor(driver: ProgressDriver) {
    this.#driver = driver;
  }

  /** Adds a copy of a message of a handler. */
  add(message: ReceivedMessage): void {
    this.#messages.push(message.enqueue());
    this.#waiting.shift()?.();
  }

  get isEmpty(): boolean {
    return this.#messages.length === 0;
  }

  /** The first message; undefined if there is none. */
  take(): ReceivedMessage | undefined {
    const message = this.#messages.shift();
    message?.leaveQueue();
    return message;
  }

  /** Resolves with the next arrival, or with {@link wake}; drives progress meanwhile. */
  async arrival(): Promise<void> {
    // Before driving starts, because a message may arrive at once.
    const arrival = new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
    });
    this.#driver.begin();
    await arrival;
    this.#driver.end();
  }

  /** Ends all calls of {@link arrival}. */
  wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Discards the messages. */
  clear(): void {
    for (let message = this.take(); message !== undefined; message = this.take()) message.release();
  }
}

/** The messages of one id, from its creation until the loop ends or the signal fires. Messages are copies that belong to the loop. */
class KeptMessages implements MessageQueue {
  /** Marks the object as bound to the thread that made it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly #am: MessageHandlers;
  readonly #id: number;
  readonly #end: LoopEnd;
  readonly #onClose: (queue: KeptMessages) => void;
  readonly #arrived: ArrivedMessages;
  #closed = false;

  /** @throws UcxError ERR_INVALID_PARAM if the id has a handler */
  constructor(
    am: MessageHandlers,
    driver: ProgressDriver,
    id: number,
    options: LoopOptions,
    onClose: (queue: KeptMessages) => void,
  ) {
    checkAmId(id);
    if (am.handlerOf(id) !== undefined) throw invalidParam('id', 'must have no handler', id);
    this.#am = am;
    this.#id = id;
    this.#onClose = onClose;
    this.#arrived = new ArrivedMessages(driver);
    am.setHandler(id, (message) => this.#arrived.add(message));
    this.#end = new LoopEnd(
      options,
      () => this.#arrived.wake(),
      () => this.close(),
    );
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<AmMessage, void>> {
    while (this.#arrived.isEmpty && !this.#closed) {
      if (this.#hasEnded()) break;
      await this.#arrived.arrival();
    }
    this.#end.throwIfAborted();
    const value = this.#closed ? undefined : this.#arrived.take();
    return value === undefined ? { done: true, value: undefined } : { done: false, value };
  }

  return(): Promise<IteratorResult<AmMessage, void>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  /** Whether its connection has ended, which closes it. @throws UcxError */
  #hasEnded(): boolean {
    try {
      if (!this.#end.hasEnded()) return false;
    } catch (error) {
      this.close();
      throw error;
    }
    this.close();
    return true;
  }

  /** Ends the loop. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#end[Symbol.dispose]();
    this.#am.setHandler(this.#id, undefined);
    this.#arrived.clear();
    this.#arrived.wake();
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
  open(id: number, options: LoopOptions): MessageQueue {
    const queue = new KeptMessages(this.#am, this.#driver, id, options, (closed) => this.#open.delete(closed));
    this.#open.add(queue);
    return queue;
  }

  /** Ends all loops. */
  close(): void {
    for (const queue of this.#open) queue.close();
  }
}
