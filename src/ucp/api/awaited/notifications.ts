/** The notifications of one worker: kept from their arrival until a loop or a handler takes them, the same for every engine. */

import { invalidParam } from '../../../ucs/type/error.ts';
import type { ProgressDriver } from '../progress/progress-driver.ts';
import type { LoopOptions, Notification, NotificationHandler } from '../worker.ts';
import { LoopEnd } from './loop-end.ts';
import { ArrivedMessages, type MessageHandler } from './message-queue.ts';
import type { ReceivedMessage } from './received-message.ts';

/** The notifications. */
export class Notifications {
  readonly #driver: ProgressDriver;
  readonly #arrived: ArrivedMessages;
  #handler: NotificationHandler | undefined = undefined;
  #closed = false;

  /** @param serve sets the handler of the messages that carry notifications in their headers */
  constructor(driver: ProgressDriver, serve: (handler: MessageHandler) => void) {
    this.#driver = driver;
    this.#arrived = new ArrivedMessages(driver);
    serve((message) => {
      if (this.#handler === undefined) this.#arrived.add(message);
      else this.#handler(notificationOf(message));
    });
  }

  /** See Worker.setNotificationHandler. @throws UcxError ERR_INVALID_PARAM */
  setHandler(handler: NotificationHandler | undefined): void {
    if (handler !== undefined && typeof handler !== 'function') {
      throw invalidParam('handler', 'must be a function, or undefined to remove it', handler);
    }
    this.#handler = handler;
    while (this.#handler !== undefined) {
      const notification = this.#take();
      if (notification === undefined) return;
      try {
        this.#handler(notification);
      } catch (error) {
        // The others come before those that arrive from now on.
        this.#driver.onThrown(error);
      }
    }
  }

  /** See Worker.notifications. */
  async *loop(options: LoopOptions): AsyncGenerator<Notification, void, void> {
    using end = new LoopEnd(options, () => this.#arrived.wake());
    for (;;) {
      end.throwIfAborted();
      if (this.#closed) return;
      const notification = this.#take();
      if (notification !== undefined) yield notification;
      else if (end.hasEnded()) return;
      else await this.#arrived.arrival();
    }
  }

  #take(): Notification | undefined {
    const message = this.#arrived.take();
    // One that has come as an offer has no data, but its sender waits.
    message?.release();
    return message === undefined ? undefined : notificationOf(message);
  }

  /** Ends all loops, and discards the notifications that were not taken. */
  close(): void {
    this.#closed = true;
    this.#arrived.clear();
    this.#arrived.wake();
  }
}

function notificationOf(message: ReceivedMessage): Notification {
  return { bytes: message.header, endpoint: message.replyEndpoint };
}
