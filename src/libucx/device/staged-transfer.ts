/**
 * Put and get between local device memory and remote host memory, through fragments: while libucp sends one slice, the card copies the next. The slices
 * are those of api/staging/transfer.ts.
 */

import { Operation } from '../../api/operation/call.ts';
import type { CopyDone } from '../../api/staging/device-copier.ts';
import { type Slice, TransferMachine, type TransferPort, Verb } from '../../api/staging/transfer.ts';
import { Status } from '../../ucs/type/status.ts';
import type { RemoteTransfer } from '../engine/engine.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';

/** Slices in flight per operation. */
const DEPTH = 4;

/** How a put and a get move a slice. */
const ROUTES = {
  [Operation.PUT]: { fill: Verb.COPY, drain: Verb.PUT },
  [Operation.GET]: { fill: Verb.GET, drain: Verb.COPY },
} as const;

type CardVerb = typeof Verb.PUT | typeof Verb.GET | typeof Verb.COPY;

export class StagedTransfer extends DeviceOperation implements TransferPort<UcpMemory, CardVerb> {
  readonly #transfer: RemoteTransfer;
  readonly #device: UcpMemory;
  readonly #machine: TransferMachine<UcpMemory, CardVerb>;

  constructor(tracker: OperationTracker, request: UcpRequest, transfer: RemoteTransfer, device: UcpMemory) {
    super(tracker, transfer.endpoint, request);
    this.#transfer = transfer;
    this.#device = device;
    const { staging } = this;
    const { fragmentBytes: sliceLength } = staging.fragments;
    const route = { ...ROUTES[transfer.operation], fragments: staging, sliceLength, depth: DEPTH };
    this.#machine = new TransferMachine<UcpMemory, CardVerb>(this, route, [0, transfer.byteLength]);
  }

  protected override begin(): void {
    this.count += 1;
    this.#machine.advance();
  }

  protected override onFailed(): void {
    this.#machine.stop(this.failure);
  }

  put(slice: Slice<UcpMemory>, done: CopyDone): void {
    this.#move(slice, done);
  }

  get(slice: Slice<UcpMemory>, done: CopyDone): void {
    this.#move(slice, done);
  }

  /** Copies between the card and a fragment. */
  copy({ fragment, from, length: byteLength }: Slice<UcpMemory>, done: CopyDone): void {
    const { operation, localOffset } = this.#transfer;
    const offset = localOffset + from;
    const copy = { device: this.#device.nativeHandle, offset, host: fragment.nativeHandle, hostOffset: 0, byteLength };
    this.staging.copy(operation === Operation.GET, copy, done);
  }

  ended(status: Status, error: unknown): void {
    this.fail(status, error);
    this.complete(Status.OK);
  }

  /** Moves a slice between its fragment and the peer. */
  #move({ fragment, from, length: byteLength }: Slice<UcpMemory>, done: CopyDone): void {
    const { operation, rkey, remoteOffset, endpoint } = this.#transfer;
    const slice = { local: fragment, localOffset: 0, byteLength, rkey, remoteOffset: remoteOffset + from };
    this.run((params) => (rkey.released ? Status.CANCELED : endpoint.moveKnown(operation, slice, params)), done);
  }
}
