/** The API request of a collective operation. It is not pooled: an operation needs one request for many messages. */

import type { AwaitedWorker } from '../../../api/awaited/worker.ts';
import {
  checkCallback,
  type Request,
  type RequestCallback,
  type RequestParams,
} from '../../../api/contract/request.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

export class CollRequest implements Request {
  status: Status = Status.INPROGRESS;
  error: unknown = undefined;
  readonly userData: unknown;
  readonly byteLength: number;
  readonly protocol: string;
  readonly receivedBytes: number = 0;
  readonly senderTag: bigint = 0n;
  readonly atomicResult: bigint = 0n;
  readonly transport: undefined = undefined;
  readonly device: undefined = undefined;
  /** Cancels the operation; returns false if it is too late. */
  onCancel: () => boolean = () => false;
  readonly #worker: Pick<AwaitedWorker, 'onThrown'>;
  #callback: RequestCallback | undefined;
  #isFree = false;

  /** @param worker reports errors that the application's callback throws */
  constructor(
    params: RequestParams | undefined,
    byteLength: number,
    protocol: string,
    worker: Pick<AwaitedWorker, 'onThrown'>,
  ) {
    this.#callback = params?.callback;
    this.userData = params?.userData;
    this.byteLength = byteLength;
    this.protocol = protocol;
    this.#worker = worker;
  }

  get callback(): RequestCallback | undefined {
    return this.#callback;
  }

  set callback(callback: RequestCallback | undefined) {
    checkCallback('callback', callback);
    this.#callback = callback;
  }

  get isCompleted(): boolean {
    return this.status !== Status.INPROGRESS;
  }

  /** Called by the operation when it has ended. */
  end(status: Status, error: unknown): void {
    this.status = status;
    this.error = error;
    try {
      this.#callback?.(this, status);
    } catch (thrown) {
      this.#worker.onThrown(thrown);
    }
  }

  free(): void {
    if (this.#isFree) throw invalidParam('request', 'must not be freed twice', this.protocol);
    if (!this.isCompleted)
      throw statusError(Status.BUSY, 'cannot free a request that has not ended (wait for it, or cancel it first)');
    this.#isFree = true;
    this.callback = undefined;
  }

  cancel(): boolean {
    return !this.isCompleted && this.onCancel();
  }
}
