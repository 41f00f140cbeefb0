/**
 * The parts of an endpoint that all engines share, except for awaited messages: awaited put and get, error handling, and closing. It moves no bytes.
 */

import { checkFlag, checkOptions } from '../../../ucs/type/check-options.ts';
import { closedError } from '../../../ucs/type/error.ts';
import { showAs } from '../../../ucs/type/inspect.ts';
import { Status, statusName } from '../../../ucs/type/status.ts';
import type { CloseOptions, PutOptions, TransferOptions, TransferResult } from '../endpoint.ts';
import { ErrorHandling } from '../error-handling.ts';
import { entriesOf } from '../list/entries.ts';
import { isList } from '../memory/local-bytes.ts';
import { checkParams } from '../operation/check-params.ts';
import type { LocalBuffer, LocalMemory, RemoteKey } from '../operation/memory.ts';
import type { RequestParams } from '../operation/request.ts';
import { AwaitedEndpoint } from './awaited-endpoint.ts';
import { resolveTransfer } from './awaited-options.ts';

/** An endpoint that can be closed. */
export abstract class ClosableEndpoint extends AwaitedEndpoint {
  protected readonly errorHandling: ErrorHandling = new ErrorHandling();
  /** Whether it is closed with `force`: operations that only the peer can end are not waited for. */
  protected isForced = false;
  #closed = false;
  #closing: Promise<void> | undefined = undefined;

  abstract readonly transports: readonly string[];

  get closed(): boolean {
    return this.#closed;
  }

  /** Runs an awaited put or get of one piece, without a notification. */
  protected abstract transfer(
    name: 'put' | 'get',
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult>;

  /** Whether a value is an endpoint, and not only an object with its prototype. */
  static isGenuine(value: unknown): value is ClosableEndpoint {
    return typeof value === 'object' && value !== null && #closing in value;
  }

  /** Calls back when its connection has ended, or when it is closed here. */
  onEnded(callback: () => void): Disposable {
    return this.errorHandling.onEnded(callback);
  }

  /** Closes the endpoint, which accepts no more operations; called once. */
  protected abstract shutDown(): Promise<void>;

  /** Called when it is closed with `force`, also while it is being closed. */
  protected abstract onForced(): void;

  put(local: LocalBuffer, rkey: RemoteKey, options: PutOptions = {}): Promise<TransferResult> {
    return this.track(() => {
      if (options?.notify === undefined && options?.notifyId === undefined && !isList(local))
        return this.transfer('put', local, rkey, options);
      return this.#transferList('put', local, rkey, options);
    });
  }

  get(local: LocalBuffer, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.track(() => {
      if (!isList(local)) return this.transfer('get', local, rkey, options);
      return this.#transferList('get', local, rkey, options);
    });
  }

  async #transferList(
    name: 'put' | 'get',
    local: LocalBuffer,
    rkey: RemoteKey,
    options: PutOptions,
  ): Promise<TransferResult> {
    this.checkOpen();
    const { notify, notifyId, signal, ...range } = options;
    const { localOffset, byteLength, remoteOffset } = resolveTransfer(local, rkey, range);
    const entries = entriesOf(local, localOffset, byteLength, rkey, remoteOffset);
    const aborted = signal === undefined ? {} : { signal };
    if (name === 'get') return await this.getList(entries, aborted);
    const told = { ...(notify !== undefined && { notify }), ...(notifyId !== undefined && { notifyId }) };
    return await this.putList(entries, { ...aborted, ...told });
  }

  close(options: CloseOptions = {}): Promise<void> {
    try {
      checkOptions(options, 'options', ['force']);
      checkFlag('force', options.force);
    } catch (error) {
      return Promise.reject(error);
    }
    this.#closed = true;
    if (options.force === true) {
      this.isForced = true;
      this.onForced();
    }
    this.errorHandling.end();
    this.#closing ??= this.shutDown();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @throws UcxError ERR_CLOSED */
  protected checkOpen(): void {
    if (this.#closed) throw closedError('endpoint');
  }

  /** Checks the parameters of nbx operations. @param names those of the operation, if it has more than a request has @throws UcxError ERR_CLOSED, ERR_INVALID_PARAM */
  protected check(params: RequestParams | undefined, names?: readonly string[]): void {
    if (this.#closed) throw closedError('endpoint');
    checkParams(params, names);
  }
}

showAs(ClosableEndpoint, 'Endpoint', ({ closed, status, closedByPeer, transports }) => ({
  transports: transports.length === 0 ? undefined : transports.join(' '),
  state: closed ? 'closed' : stateOf(status, closedByPeer),
}));

function stateOf(status: Status, closedByPeer: boolean | undefined): string {
  if (status === Status.OK) return 'open';
  return closedByPeer === true ? 'closed by the peer' : `failed with ${statusName(status)}`;
}
