/**
 * Put and get between memory of a card here and host memory elsewhere: through fragments, several of which are on their way at once, so that the card copies while
 * libucp sends.
 */

import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Fragment, FragmentWaiter } from '../mem/device-fragments.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';
import { CardCopy, type CopyOwner } from './copies.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import type { RemoteTransfer } from './transfer.ts';

/** Fragments of one operation at most. */
const DEPTH = 4;

/** A part of the operation, which has one fragment. */
class Part implements CopyOwner {
  readonly pipeline: Pipeline;
  readonly fragment: Fragment;
  readonly offset: number;
  readonly byteLength: number;

  constructor(pipeline: Pipeline, fragment: Fragment, offset: number, byteLength: number) {
    this.pipeline = pipeline;
    this.fragment = fragment;
    this.offset = offset;
    this.byteLength = byteLength;
  }

  copyEnded(copy: CardCopy): void {
    this.pipeline.copied(this, copy);
  }
}

/** A put or get. */
export class Pipeline extends DeviceOperation implements FragmentWaiter {
  readonly #transfer: RemoteTransfer;
  /** The byte at which the next part begins. */
  #next = 0;
  /** Parts under way. */
  #underWay = 0;
  #isWaiting = false;
  #lent: Fragment | undefined;
  /** Copied between card and fragment, not looked at. */
  readonly #copied: Part[] = [];
  /** To be moved between fragment and peer. */
  readonly #unsent: Part[] = [];

  constructor(tracker: OperationTracker, request: UcpRequest, transfer: RemoteTransfer) {
    super(tracker, transfer.endpoint, request);
    this.#transfer = transfer;
  }

  fragmentLent(fragment: Fragment): void {
    this.#isWaiting = false;
    this.#lent = fragment;
    this.wake();
  }

  /** For {@link Part}. */
  copied(part: Part, { status, error }: CardCopy): void {
    if (status < 0) this.#fail(status, error);
    this.#copied.push(part);
    this.wake();
  }

  protected override advance(): void {
    for (const part of this.#copied.splice(0)) {
      if (this.#transfer.isPut) this.#unsent.push(part);
      else this.#partEnded(part);
    }
    try {
      this.#beginParts();
    } catch (error) {
      this.#fail(isUcxError(error) ? (error.status as Status) : Status.NO_MEMORY, error);
    }
    for (const part of this.#unsent.splice(0)) this.#send(part);
    if (this.failure !== Status.OK) this.#giveUp();
    const isOver = this.failure !== Status.OK || this.#next === this.#transfer.byteLength;
    if (isOver && this.#underWay === 0) this.end();
  }

  #beginParts(): void {
    const { byteLength } = this.#transfer;
    while (this.#next < byteLength && this.#underWay < DEPTH && this.failure === Status.OK && !this.#isWaiting) {
      const fragment = this.#lent ?? this.staging.fragments.take();
      this.#lent = undefined;
      if (fragment === undefined) {
        this.#isWaiting = true;
        this.staging.fragments.await(this);
        return;
      }
      const part = new Part(this, fragment, this.#next, Math.min(fragment.byteLength, byteLength - this.#next));
      this.#next += part.byteLength;
      this.#underWay += 1;
      if (this.#transfer.isPut) this.#copy(part, false);
      else this.#unsent.push(part);
    }
  }

  /** Waits for no fragment any more. */
  #giveUp(): void {
    if (this.#isWaiting) this.staging.fragments.forget(this);
    this.#isWaiting = false;
    if (this.#lent !== undefined) this.staging.fragments.give(this.#lent);
    this.#lent = undefined;
  }

  #copy(part: Part, isToCard: boolean): void {
    const { local, localOffset } = this.#transfer;
    const place = [local as UcpMemory, localOffset + part.offset] as const;
    this.staging.copies.start(new CardCopy(part, isToCard, place, [part.fragment, 0], part.byteLength));
  }

  /** Moves a part between fragment and peer. */
  #send(part: Part): void {
    const { isPut, rkey, remoteOffset, endpoint } = this.#transfer;
    const { requests, functions } = this.staging.worker;
    if (rkey.released) this.#fail(Status.CANCELED, undefined);
    if (this.failure !== Status.OK) {
      this.#partEnded(part);
      return;
    }
    const request = requests.begin(RequestKind.SEND, isPut ? 'put/libucp' : 'get/libucp');
    if (request === undefined) {
      this.#unsent.push(part);
      this.wake();
      return;
    }
    const { address, memory } = part.fragment;
    requests.setMemh(memory.memh);
    const remote = rkey.remoteAddress + remoteOffset + part.offset;
    const start = isPut ? functions.ucp_put_nbx : functions.ucp_get_nbx;
    const started = start(endpoint.handle, address, part.byteLength, remote, rkey.handle, requests.param);
    const status = requests.started(request, started, {
      callback: (ended, final) => {
        ended.free();
        this.#moved(part, final);
        this.wake();
      },
    });
    if (typeof status !== 'number') return;
    this.#moved(part, status);
    this.wake();
  }

  #moved(part: Part, status: Status): void {
    if (status < 0) this.#fail(status, undefined);
    if (this.#transfer.isPut || this.failure !== Status.OK) this.#partEnded(part);
    else this.#copy(part, true);
  }

  #partEnded({ fragment }: Part): void {
    this.staging.fragments.give(fragment);
    this.#underWay -= 1;
  }

  #fail(status: Status, error: unknown): void {
    if (this.failure !== Status.OK) return;
    this.failure = status;
    this.request!.error = error;
  }
}
