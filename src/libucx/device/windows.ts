/**
 * Put and get between memory of a local card and host memory of the peer, through fragments: while libucp sends one window, the card copies the
 * next. The windows are those of api/staging.
 */

import { Operation } from '../../api/operation/call.ts';
import type { CopyDone } from '../../api/staging/device-copier.ts';
import type { FragmentUser } from '../../api/staging/fragment-pool.ts';
import { type StagedWindow, WindowPipeline, type WindowSteps } from '../../api/staging/transfer.ts';
import { Status } from '../../ucs/type/status.ts';
import type { RemoteTransfer } from '../engine/engine.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';

/** Maximum number of windows in flight of one operation. */
const DEPTH = 4;

/** A put or get. */
export class Pipeline extends DeviceOperation implements WindowSteps<UcpMemory> {
  readonly #transfer: RemoteTransfer;
  readonly #device: UcpMemory;
  readonly #windows: WindowPipeline<UcpMemory>;

  constructor(tracker: OperationTracker, request: UcpRequest, transfer: RemoteTransfer, device: UcpMemory) {
    super(tracker, transfer.endpoint, request);
    this.#transfer = transfer;
    this.#device = device;
    const { fragmentBytes: windowBytes } = this.staging.fragments;
    this.#windows = new WindowPipeline(this, [0, transfer.byteLength], { windowBytes, depth: DEPTH });
  }

  protected override begin(): void {
    this.count += 1;
    this.#windows.advance();
  }

  protected override onFailed(): void {
    this.#windows.stop(this.failure);
  }

  acquire(run: FragmentUser<UcpMemory>): void {
    this.staging.acquire(run);
  }

  fill(window: StagedWindow<UcpMemory>, done: CopyDone): void {
    if (this.#transfer.operation === Operation.PUT) this.#copy(window, done);
    else this.#move(window, done);
  }

  drain(window: StagedWindow<UcpMemory>, done: CopyDone): void {
    if (this.#transfer.operation === Operation.PUT) this.#move(window, done);
    else this.#copy(window, done);
  }

  release(fragment: UcpMemory): void {
    this.staging.release(fragment);
  }

  ended(status: Status, error: unknown): void {
    this.fail(status, error);
    this.complete(Status.OK);
  }

  /** Copies between the card and a fragment. */
  #copy({ fragment, from, byteLength }: StagedWindow<UcpMemory>, done: CopyDone): void {
    const { operation, localOffset } = this.#transfer;
    const copy = {
      device: this.#device.node,
      offset: localOffset + from,
      host: fragment.node,
      hostOffset: 0,
      byteLength,
    };
    this.staging.copy(operation === Operation.GET, copy, done);
  }

  /** Moves a window between its fragment and the peer. */
  #move({ fragment, from, byteLength }: StagedWindow<UcpMemory>, done: CopyDone): void {
    const { operation, rkey, remoteOffset, endpoint } = this.#transfer;
    const window = { local: fragment, localOffset: 0, byteLength, rkey, remoteOffset: remoteOffset + from };
    this.staging.run((params) => {
      if (this.failure !== Status.OK) return this.failure;
      return rkey.released ? Status.CANCELED : endpoint.moveKnown(operation, window, params);
    }, done);
  }
}
