/**
 * Received messages of a worker before the program consumes them: an active message with its header and data, valid during the call unless the handler
 * retains it; the queues behind `for await` over active messages; the notifications of puts.
 */

import { invalidParam, statusError, type UcxError } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { Status } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import { type AmMessage, checkAmId, type MessageDataOptions, type MessageQueue } from '../contract/active-message.ts';
import type { Endpoint } from '../contract/endpoint.ts';
import type { LocalBuffer, MessageBuffer } from '../contract/memory.ts';
import { checkParams, type Request, type RequestParams } from '../contract/request.ts';
import type { LoopOptions, Notification, NotificationHandler } from '../contract/worker.ts';
import type { GivenMemory } from '../memory/local.ts';
import type { ProgressDriver } from '../progress/progress-driver.ts';
import { LoopEnd } from './loop-end.ts';
import { signalOf } from './promises.ts';

const NO_BYTES = new Uint8Array(0);

/** Services of the engine that received a message; `S` and `W` as in {@link ReceivedMessage}. */
export interface MessageOwner<S extends object = object, W extends object = object> {
  /** The endpoint to the sender. */
  endpointTo(sender: S): Endpoint;
  /** Discards the data of a rendezvous and notifies the sender. */
  releaseData(message: ReceivedMessage<S, W>): void;
  /** Whether the sender has withdrawn a rendezvous. Engines without withdrawal omit it. */
  isWithdrawn?(message: ReceivedMessage<S, W>): boolean;
  /** Called when a message leaves its queue. Engines that do not count the memory of queues omit it. */
  messageTaken?(message: ReceivedMessage<S, W>): void;
  receiveData(message: ReceivedMessage<S, W>, given: GivenMemory, params: RequestParams | undefined): Status | Request;
  awaitData(message: ReceivedMessage<S, W>, local: MessageBuffer, signal: AbortSignal | undefined): Promise<number>;
}

/**
 * An active message. The object is reused for the next message: after the handler only the result of {@link retain} is valid. For the engine, `S` is the
 * connection to the sender, and `W` the state for fetching the data of a rendezvous.
 */
export class ReceivedMessage<S extends object = object, W extends object = object> {
  /** Handler id. */
  id = 0;
  /** The connection on which it arrived; for the engine. */
  sender: S | undefined = undefined;
  /** Memory with header and data. */
  source: Uint8Array = NO_BYTES;
  /** Offset of the header in `source`. */
  headerOffset = 0;
  /** Length of the header in bytes. */
  headerLength = 0;
  /** Offset of the data in `source`. */
  dataOffset = 0;
  /** Bytes of the data, received or not. */
  byteLength = 0;
  /** State for fetching the data while it is still at the sender. */
  waiting: W | undefined = undefined;
  /** True if the handler has started to fetch the data. */
  isTaken = false;
  /** True for the object that is passed to handlers; false for a retained one. */
  isView = true;
  /** True once the handler has returned: the object is reused for the next message. */
  isOver = false;
  /** Bytes of the sender's credit that it occupies; for the engine. */
  cost = 0;
  /** True while it is in a queue of the library: its memory counts until it leaves. */
  isQueued = false;
  /** True if a promise for the data is pending or was fulfilled. */
  #isAwaited = false;
  readonly #owner: MessageOwner<S, W>;

  constructor(owner: MessageOwner<S, W>) {
    this.#owner = owner;
  }

  /** True for a message whose data must be fetched with {@link into}: because it is long, or because this worker had no memory for it. */
  get isRendezvous(): boolean {
    return this.waiting !== undefined;
  }

  /** The header: a view that is valid during the call. @throws UcxError ERR_INVALID_PARAM after the handler, like the other members */
  get header(): Uint8Array {
    if (this.isOver) throw this.#over();
    return this.source.subarray(this.headerOffset, this.headerOffset + this.headerLength);
  }

  /** See EagerAmMessage. @throws UcxError ERR_INVALID_PARAM for a rendezvous, in programs without type checks */
  get data(): Uint8Array {
    if (this.isOver) throw this.#over();
    if (this.waiting !== undefined) {
      throw statusError(
        Status.INVALID_PARAM,
        'the data of this message is still with the sender (fetch it by bytes(), text() or into())',
      );
    }
    return this.source.subarray(this.dataOffset, this.dataOffset + this.byteLength);
  }

  /** The endpoint to the sender. */
  get replyEndpoint(): Endpoint {
    if (this.isOver) throw this.#over();
    return this.#owner.endpointTo(this.sender!);
  }

  /** Keeps the message after the handler (UCP_AM_FLAG_PERSISTENT_DATA): returns a copy that belongs to the caller. */
  retain(): ReceivedMessage<S, W> {
    if (this.isOver) throw this.#over();
    const copy = new ReceivedMessage<S, W>(this.#owner);
    copy.isView = false;
    copy.id = this.id;
    copy.sender = this.sender;
    copy.headerLength = this.headerLength;
    copy.dataOffset = this.headerLength;
    copy.byteLength = this.byteLength;
    copy.waiting = this.waiting;
    copy.cost = this.cost;
    const dataLength = this.waiting === undefined ? this.byteLength : 0;
    copy.source = new Uint8Array(this.headerLength + dataLength);
    copy.source.set(this.header);
    copy.source.set(this.source.subarray(this.dataOffset, this.dataOffset + dataLength), this.headerLength);
    this.isTaken = true;
    return copy;
  }

  /** Like {@link retain}, for a queue of the library: {@link leaveQueue} follows. */
  enqueue(): ReceivedMessage<S, W> {
    const copy = this.retain();
    copy.isQueued = true;
    this.isQueued = true;
    return copy;
  }

  /** Whether its sender has withdrawn it: a queue drops it. */
  get isWithdrawn(): boolean {
    return this.waiting !== undefined && this.#owner.isWithdrawn?.(this) === true;
  }

  /** Removes the message from the queue, for the application or because the queue is closed. */
  leaveQueue(): void {
    this.isQueued = false;
    this.#owner.messageTaken?.(this);
  }

  /**
   * Receives the data into local memory (ucp_am_recv_data_nbx), once.
   * @throws UcxError ERR_INVALID_PARAM for memory that is too short, or on the second call
   */
  receiveNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request {
    this.#checkFirst();
    checkParams(params);
    return this.#owner.receiveData(this, { local, localOffset, byteLength }, params);
  }

  /** See AmMessageBase. */
  async bytes(options: MessageDataOptions = {}): Promise<Uint8Array> {
    const bytes = roomFor(this.byteLength);
    await this.into(bytes, options);
    return bytes;
  }

  /** See AmMessageBase. */
  async text(options: MessageDataOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.bytes(options));
  }

  /** The awaited form of {@link receiveNbx}; resolves with the bytes received. */
  async into(local: MessageBuffer, options: MessageDataOptions = {}): Promise<number> {
    const signal = signalOf(options);
    this.#checkFirst();
    // The operation may have to wait, and this object may be reused meanwhile.
    const kept = this.isView ? this.retain() : this;
    if (kept === this) this.#isAwaited = true;
    else this.isReceived = true;
    try {
      return await this.#owner.awaitData(kept, local, signal);
    } catch (error) {
      // If the receive was rejected at its start, the data can be received again; a copy that only this call has is released.
      if (kept === this) this.#isAwaited = false;
      else kept.release();
      throw error;
    }
  }

  /** Discards a message kept by {@link retain}: the sender of a rendezvous waits until its data is received or discarded. */
  release(): void {
    if (this.isReceived || this.#isAwaited) return;
    this.isReceived = true;
    if (this.waiting !== undefined) this.#owner.releaseData(this);
  }

  #checkFirst(): void {
    if (this.isOver) throw this.#over();
    if (this.isReceived || this.#isAwaited) throw invalidParam('message', 'must be received only once', this.id);
  }

  #over(): UcxError {
    return invalidParam('message', 'must be read before its handler returns, or kept by retain()', this.id);
  }

  /** True after the data was received. */
  isReceived = false;
}

/** @throws UcxError ERR_NO_MEMORY if the length, which is chosen by the sender, cannot be allocated */
function roomFor(byteLength: number): Uint8Array {
  try {
    return new Uint8Array(byteLength);
  } catch (cause) {
    throw statusError(Status.NO_MEMORY, `receive a message of ${byteLength} bytes`, cause);
  }
}

showAs(ReceivedMessage, 'AmMessage', ({ id, isOver, headerLength, byteLength, isRendezvous }) =>
  // After its handler, the object belongs to the next message.
  isOver ? {} : { id, headerBytes: headerLength, byteLength, isRendezvous: isRendezvous ? 'yes' : undefined },
);

/** A handler as engines call it; an AmCallback is one. */
export type MessageHandler = (message: ReceivedMessage) => void;

/** Owner of the AM handlers. */
export interface MessageHandlers {
  handlerOf(id: number): MessageHandler | undefined;
  setHandler(id: number, handler: MessageHandler | undefined): void;
}

/** Arrived messages before the program consumes them: copies, whose memory is not returned to the sender's credit yet. */
class ArrivedMessages {
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
    this.#dropWithdrawn();
    return this.#messages.length === 0;
  }

  /** The first message; undefined if there is none. */
  take(): ReceivedMessage | undefined {
    this.#dropWithdrawn();
    const message = this.#messages.shift();
    message?.leaveQueue();
    return message;
  }

  #dropWithdrawn(): void {
    while (this.#messages[0]?.isWithdrawn === true) this.#messages.shift()?.leaveQueue();
  }

  /** Resolves with the next arrival, or with {@link wake}; drives progress meanwhile. */
  async arrival(): Promise<void> {
    // Before driving starts, because a message may arrive immediately.
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
  /** Marks the object as bound to the thread that created it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly #am: MessageHandlers;
  readonly #id: number;
  readonly #end: LoopEnd;
  readonly #onClose: (queue: KeptMessages) => void;
  readonly #arrived: ArrivedMessages;
  #closed = false;

  /** @throws UcxError ERR_INVALID_PARAM if the id has a handler */
  constructor(
    { am, driver }: { readonly am: MessageHandlers; readonly driver: ProgressDriver },
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

  /** The id of its messages. */
  get id(): number {
    return this.#id;
  }

  /** For {@link showAs}. */
  get facts(): { readonly id: number; readonly state: string } {
    return { id: this.#id, state: this.#closed ? 'closed' : 'open' };
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

  /** Whether the connection of the loop has ended, which closes the queue. @throws UcxError */
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

showAs(KeptMessages, 'MessageQueue', (queue) => queue.facts);

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
    const queue = new KeptMessages({ am: this.#am, driver: this.#driver }, id, options, (closed) =>
      this.#open.delete(closed),
    );
    this.#open.add(queue);
    return queue;
  }

  /** Rejects a handler for an id with an open queue. @throws UcxError ERR_INVALID_PARAM */
  checkHandler(id: number): void {
    for (const queue of this.#open) {
      if (queue.id === id)
        throw invalidParam('id', 'must not be the id of an open queue of worker.messages: close the queue first', id);
    }
  }

  /** Ends all loops. */
  close(): void {
    for (const queue of this.#open) queue.close();
  }
}

/** The notifications. */
export class Notifications {
  readonly #driver: ProgressDriver;
  readonly #arrived: ArrivedMessages;
  #handler: NotificationHandler | undefined = undefined;
  /** Number of loops that have begun. */
  #loops = 0;
  #closed = false;

  /** @param serve sets the handler of the messages with notifications in their headers */
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
    if (handler !== undefined && this.#loops > 0) {
      throw invalidParam('handler', 'must not be set while a loop over notifications runs', handler);
    }
    this.#handler = handler;
    while (this.#handler !== undefined) {
      const notification = this.#take();
      if (notification === undefined) return;
      try {
        this.#handler(notification);
      } catch (error) {
        // The remaining ones come before those that arrive later.
        this.#driver.onThrown(error);
      }
    }
  }

  /** See Worker.notifications. */
  async *loop(options: LoopOptions): AsyncGenerator<Notification, void, void> {
    using end = new LoopEnd(options, () => this.#arrived.wake());
    this.#loops += 1;
    try {
      for (;;) {
        end.throwIfAborted();
        if (this.#closed) return;
        const notification = this.#take();
        if (notification !== undefined) yield notification;
        else if (end.hasEnded()) return;
        else await this.#arrived.arrival();
      }
    } finally {
      this.#loops -= 1;
    }
  }

  #take(): Notification | undefined {
    const message = this.#arrived.take();
    // A rendezvous notification has no data, but its sender waits.
    message?.release();
    return message === undefined ? undefined : notificationOf(message);
  }

  /** Ends all loops, and discards unconsumed notifications. */
  close(): void {
    this.#closed = true;
    this.#arrived.clear();
    this.#arrived.wake();
  }
}

function notificationOf(message: ReceivedMessage): Notification {
  return { bytes: message.header, endpoint: message.replyEndpoint };
}
