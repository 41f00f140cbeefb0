/** Receives the data of an internal message into memory of any kind, also if the worker has no free request at the moment. */

import type { ReceivedMessage } from '../../../ucp/api/awaited/received-message.ts';
import type { Request } from '../../../ucp/api/request.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { LocalMemory } from '../../mem/memory-handle.ts';
import type { Staging } from './staging.ts';

/** A receive. Begin it with {@link run}. */
export class DataReceive {
  readonly #staging: Staging;
  #message: ReceivedMessage;
  readonly #memory: LocalMemory;
  readonly #offset: number;
  readonly #onEnd: (status: Status) => void;
  #isWaiting = true;

  /** @param onEnd called once at the end, inside {@link run} if it ends at once */
  constructor(
    staging: Staging,
    message: ReceivedMessage,
    [memory, offset]: readonly [LocalMemory, number],
    onEnd: (status: Status) => void,
  ) {
    this.#staging = staging;
    this.#message = message;
    this.#memory = memory;
    this.#offset = offset;
    this.#onEnd = onEnd;
  }

  run(): void {
    if (!this.#isWaiting) return;
    const started = this.#start();
    if (started === Status.NO_RESOURCE) {
      if (this.#message.isView) this.#message = this.#message.retain();
      this.#staging.schedule(() => this.run());
      return;
    }
    this.#isWaiting = false;
    if (typeof started === 'number') this.#onEnd(started);
  }

  /** Drops the data, unless it is being received. */
  cancel(): void {
    if (!this.#isWaiting) return;
    this.#isWaiting = false;
    this.#message.release();
    this.#onEnd(Status.CANCELED);
  }

  #start(): Status | Request {
    const { worker } = this.#staging;
    const callback = (ended: Request, status: Status): void => {
      ended.free();
      this.#onEnd(status);
    };
    try {
      const message = this.#message;
      // What the memory may be used for was checked: the operation of a peer does not need local access.
      return worker.receiveData(message, this.#memory, this.#offset, message.byteLength, { callback }, 0);
    } catch (error) {
      // Unmapped meanwhile, or the worker is closing.
      this.#message.release();
      return isUcxError(error) ? error.status : Status.IO_ERROR;
    }
  }
}
