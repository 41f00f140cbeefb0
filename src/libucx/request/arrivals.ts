/**
 * Active messages that arrive at one worker. The callback of libucp copies them; handlers run after progress of libucp has returned, where every call is
 * permitted. The data of long messages stays with libucp until it is received.
 */

import {
  type MessageHandler,
  type MessageHandlers,
  type MessageOwner,
  ReceivedMessage,
} from '../../api/awaited/messages.ts';
import { AM_IDS } from '../../api/contract/active-message.ts';
import { addressOf, allocateScratch, memcpy, NativeCallback, type ScratchBlock } from '../../sys/index.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_AM_HANDLER_PARAM, UCP_AM_HANDLER_PARAM_FIELD, UCP_AM_RECV_ATTR, UCP_AM_RECV_PARAM } from '../c/abi.ts';
import { Fields } from '../c/fields.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { OperationCounters } from './counters.ts';

/** AM id of internal requests for device memory. */
export const STAGING_AM_ID = 65_534;
/**
 * AM id of close messages between endpoints of this engine: libucp does not notify endpoints created by worker address. With a header, the message is a
 * notice: see libucx/endpoint/unproven-peers.ts.
 */
export const CLOSE_AM_ID = 65_533;

/** AM id of notifications. */
export const NOTIFICATION_AM_ID = 65_532;
/** The ids reserved for this engine. */
const OWN_IDS: readonly number[] = [NOTIFICATION_AM_ID, CLOSE_AM_ID, STAGING_AM_ID];

/** Checks an AM id given by a program. @throws UcxError ERR_INVALID_PARAM */
export function checkProgramId(id: number): void {
  if (Number.isInteger(id) && id >= 0 && id < AM_IDS && !OWN_IDS.includes(id)) return;
  throw invalidParam('id', `must be an integer from 0 to ${AM_IDS - 1}, but not ${OWN_IDS.join(', ')}`, id);
}

const BYTES_MIN = 256;
/** Limits for buffers that are kept for later messages: their number, and the size of each. */
const KEPT_MAX = 64;
const KEPT_BYTES_MAX = 65_536;

/** The libucp descriptor of the data of a long message. */
export interface Descriptor {
  readonly address: number;
}

/** A received message and its copy. */
class Arrival {
  readonly message: ReceivedMessage;
  bytes: Uint8Array = new Uint8Array(BYTES_MIN);
  address: number = addressOf(this.bytes);

  constructor(owner: MessageOwner) {
    this.message = new ReceivedMessage(owner);
  }

  reserve(byteLength: number): void {
    if (byteLength <= this.bytes.byteLength) return;
    this.bytes = new Uint8Array(Math.max(byteLength, 2 * this.bytes.byteLength));
    this.address = addressOf(this.bytes);
  }
}

/** The worker that receives the messages. */
interface ArrivalUser {
  readonly owner: MessageOwner;
  readonly senderOf: (ep: number) => object;
  readonly onNotice: (ep: number, notice: number | undefined) => void;
}

export class Arrivals implements MessageHandlers {
  readonly #functions: LibucpFunctions;
  readonly #worker: number;
  readonly #owner: MessageOwner;
  readonly #handlers: (MessageHandler | undefined)[] = [];
  readonly #callback: NativeCallback;
  readonly #param: ScratchBlock = allocateScratch(UCP_AM_RECV_PARAM.size);
  readonly #free: Arrival[] = [];
  #waiting: Arrival[] = [];
  /** Addresses of the descriptors of long messages that libucp keeps. */
  readonly #held: Set<number> = new Set();
  readonly #senderOf: (ep: number) => object;
  readonly #onNotice: (ep: number, notice: number | undefined) => void;
  readonly #operations: OperationCounters;

  /**
   * @param worker the handle of libucp
   * @param owner senderOf: the endpoint of a libucp handle; onNotice: called inside a callback of C when the peer sends a notice (see
   * libucx/endpoint/unproven-peers.ts), with undefined when it closes its endpoint
   */
  constructor(
    functions: LibucpFunctions,
    worker: number,
    operations: OperationCounters,
    { owner, senderOf, onNotice }: ArrivalUser,
  ) {
    this.#senderOf = senderOf;
    this.#onNotice = onNotice;
    this.#operations = operations;
    this.#functions = functions;
    this.#worker = worker;
    this.#owner = owner;
    this.#callback = new NativeCallback({
      result: 'int8_t',
      parameters: ['uint64_t', 'uint64_t', 'uint64_t', 'uint64_t', 'uint64_t', 'uint64_t'],
      fallback: Status.OK,
      call: (id: number, header: number, headerLength: number, data: number, byteLength: number, param: number) =>
        this.#onMessage(id, header, headerLength, data, byteLength, param),
    });
  }

  /**
   * Registers the callback for every id, if the context has the feature: libucp fails long messages with unknown ids, and prints warnings for short ones.
   * If its table grows, new entries that were not set contain garbage (1.13).
   */
  open(): void {
    const { ID, CB, ARG } = UCP_AM_HANDLER_PARAM_FIELD;
    using param = new Fields(UCP_AM_HANDLER_PARAM);
    param.setU64('field_mask', ID | CB | ARG).setU64('cb', this.#callback.address);
    const { words } = param.block;
    const { id: idAt, arg: argAt } = UCP_AM_HANDLER_PARAM.at;
    // The highest id first: growing the table beyond 2^16 entries would lose existing ones (1.13).
    for (let id = AM_IDS - 1; id >= 0; id--) {
      words[idAt / 4] = id;
      words[argAt / 4] = id;
      const status = this.#functions.ucp_worker_set_am_recv_handler(this.#worker, param.address);
      if (status !== Status.OK) throw statusError(status, `cannot set the AM handler of id ${id}`);
    }
  }

  /** Whether messages wait for their handlers. */
  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  handlerOf(id: number): MessageHandler | undefined {
    return this.#handlers[id];
  }

  /** See Worker.setAmHandler. */
  setHandler(id: number, handler: MessageHandler | undefined): void {
    checkProgramId(id);
    if (handler !== undefined && typeof handler !== 'function') {
      throw invalidParam('handler', 'must be a function', handler);
    }
    this.serve(id, handler);
  }

  /** Sets a handler, also for internal ids. Messages without a handler are dropped. */
  serve(id: number, handler: MessageHandler | undefined): void {
    this.#handlers[id] = handler;
  }

  /** Runs the handlers of arrived messages. If one throws, the exception is passed on, and the others run in the next progress. */
  dispatch(): number {
    let count = 0;
    for (let arrival = this.#waiting.shift(); arrival !== undefined; arrival = this.#waiting.shift()) {
      count += 1;
      try {
        this.#handle(arrival.message);
      } finally {
        if (this.#free.length < KEPT_MAX && arrival.bytes.byteLength <= KEPT_BYTES_MAX) this.#free.push(arrival);
      }
    }
    return count;
  }

  /** Passes the data of a long message to its receive. @returns the libucp descriptor */
  take({ address }: Descriptor): number {
    this.#held.delete(address);
    return address;
  }

  /** Drops the data of a long message; without effect if the worker was closed. */
  release({ address }: Descriptor): void {
    if (this.#held.delete(address)) this.#functions.ucp_am_data_release(this.#worker, address);
  }

  /** Drops unreceived messages, before the libucp worker is destroyed. */
  drop(): void {
    this.#waiting = [];
    for (const address of this.#held) this.release({ address });
  }

  /** Call this when libucp can no longer call the callback. */
  close(): void {
    this.#callback.close();
    this.#param.free();
  }

  #handle(message: ReceivedMessage): void {
    const handler = this.#handlers[message.id];
    if (handler !== undefined && !OWN_IDS.includes(message.id)) this.#operations.countMessage();
    try {
      handler?.(message);
    } finally {
      message.isOver = true;
      // If the handler does not receive the data, it is released so that the sender completes.
      if (message.waiting !== undefined && !message.isTaken && !message.isReceived) {
        this.release(message.waiting as Descriptor);
      }
    }
  }

  /** The C callback. @returns INPROGRESS to keep the descriptor of a long message */
  #onMessage(
    id: number,
    header: number,
    headerLength: number,
    data: number,
    byteLength: number,
    param: number,
  ): Status {
    memcpy(this.#param.address, param, UCP_AM_RECV_PARAM.size);
    const { words } = this.#param;
    const attributes = words[0]!;
    const hasSender = (attributes & UCP_AM_RECV_ATTR.FIELD_REPLY_EP) !== 0;
    const sender = joinWords(words[2]!, words[3]!);
    // Endpoints of this engine send every message with the reply flag.
    if (!hasSender && OWN_IDS.includes(id)) return Status.OK;
    if (id === CLOSE_AM_ID) {
      if (headerLength > 0) memcpy(this.#param.address, header, 1);
      this.#onNotice(sender, headerLength > 0 ? this.#param.u8[0]! : undefined);
      return Status.OK;
    }
    const isLong = (attributes & UCP_AM_RECV_ATTR.FLAG_RNDV) !== 0;
    const arrival = this.#free.pop() ?? new Arrival(this.#owner);
    arrival.reserve(headerLength + (isLong ? 0 : byteLength));
    if (headerLength > 0) memcpy(arrival.address, header, headerLength);
    if (!isLong && byteLength > 0) memcpy(arrival.address + headerLength, data, byteLength);
    const { message } = arrival;
    message.id = id;
    message.sender = hasSender ? this.#senderOf(sender) : undefined;
    message.source = arrival.bytes;
    message.headerOffset = 0;
    message.headerLength = headerLength;
    message.dataOffset = headerLength;
    message.byteLength = byteLength;
    message.waiting = isLong ? ({ address: data } satisfies Descriptor) : undefined;
    message.isTaken = false;
    message.isOver = false;
    message.isReceived = false;
    if (isLong) this.#held.add(data);
    this.#waiting.push(arrival);
    return isLong ? Status.INPROGRESS : Status.OK;
  }
}
