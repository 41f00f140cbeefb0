/**
 * Copies between memory of cards and fragments of host memory, by the DMA engines: what they are started with, and how their ends are found. The transports of
 * the node do them, on an endpoint of their worker to itself.
 */

import type { Endpoint } from '../../ucp/api/endpoint.ts';
import type { RemoteKey } from '../../ucp/api/memory.ts';
import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { isUcxError, type UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineWorker } from '../engine/engine.ts';
import type { Fragment } from '../mem/device-fragments.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';

/** Longest wait inside a call of C: a card that takes longer is taken for dead. */
const WAIT_NS_MAX = 20e9;

/** Who wants to know of the end of a copy. Called from anywhere, calls of C included: it may only be noted. */
export interface CopyOwner {
  copyEnded(copy: CardCopy): void;
}

/** A copy. */
export class CardCopy {
  readonly owner: CopyOwner;
  /** The card's memory is written. */
  readonly isToCard: boolean;
  readonly memory: UcpMemory;
  readonly offset: number;
  readonly fragment: Fragment;
  readonly fragmentOffset: number;
  readonly byteLength: number;
  status: Status = Status.INPROGRESS;
  /** What the transports have thrown. */
  error: unknown = undefined;

  constructor(
    owner: CopyOwner,
    isToCard: boolean,
    [memory, offset]: readonly [UcpMemory, number],
    [fragment, fragmentOffset]: readonly [Fragment, number],
    byteLength: number,
  ) {
    this.owner = owner;
    this.isToCard = isToCard;
    this.memory = memory;
    this.offset = offset;
    this.fragment = fragment;
    this.fragmentOffset = fragmentOffset;
    this.byteLength = byteLength;
  }
}

/** The copies of one worker. */
export class CardCopies {
  readonly #worker: EngineWorker;
  /** To the own worker, made at the first copy. */
  #loopback: Endpoint | undefined;
  /** Keys of fragments on {@link #loopback}. */
  readonly #keys: Map<Fragment, RemoteKey> = new Map();
  /** Found no request of the node's worker. */
  #unstarted: CardCopy[] = [];
  #outstanding = 0;

  constructor(worker: EngineWorker) {
    this.#worker = worker;
  }

  /** Copies that have not ended. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** Some could not be started: {@link progress} tries again. */
  get hasUnstarted(): boolean {
    return this.#unstarted.length > 0;
  }

  /** Starts a copy. Its owner hears of the end, within this call where it ends at once. */
  start(copy: CardCopy): void {
    this.#outstanding += 1;
    if (this.hasUnstarted || !this.#tryStart(copy)) this.#unstarted.push(copy);
  }

  /** Starts what found no request before. */
  progress(): void {
    while (this.#unstarted.length > 0 && this.#tryStart(this.#unstarted[0]!)) this.#unstarted.shift();
  }

  /** Waits for a copy, in calls of C and of the application: DMA takes microseconds. A card that does not answer has failed. */
  wait(copy: CardCopy): Status {
    const { context, node } = this.#worker;
    const deadline = context.clock.nowNs() + WAIT_NS_MAX;
    while (copy.status === Status.INPROGRESS) {
      node.progress();
      this.progress();
      if (copy.status === Status.INPROGRESS && context.clock.nowNs() > deadline) return Status.TIMED_OUT;
    }
    return copy.status;
  }

  /** Gives keys and endpoint back. */
  async close(): Promise<void> {
    for (const key of this.#keys.values()) key.release();
    this.#keys.clear();
    await this.#loopback?.close({ force: true });
  }

  /** @returns false when the node's worker has no request */
  #tryStart(copy: CardCopy): boolean {
    let status: Status | Request;
    try {
      status = this.#startOn(copy);
    } catch (error) {
      copy.error = error;
      status = isUcxError(error) ? (error.status as Status) : Status.IO_ERROR;
    }
    if (status === Status.NO_RESOURCE) return false;
    if (typeof status === 'number') this.#ended(copy, status);
    return true;
  }

  /** A get, whose end says that the bytes are there, or a put by DMA, which ends when the bytes are there, too. */
  #startOn(copy: CardCopy): Status | Request {
    const { node } = this.#worker;
    this.#loopback ??= node.endpoint(node.address(), { errorHandling: 'none' });
    const key = this.#keyOf(this.#loopback, copy.fragment);
    const { memory, offset, byteLength, fragmentOffset } = copy;
    if (!memory.mapped) return Status.INVALID_ADDR;
    const params: RequestParams = { userData: copy, callback: this.#onEnd };
    return copy.isToCard
      ? this.#loopback.getNbx(memory.node, offset, byteLength, key, fragmentOffset, params)
      : this.#loopback.putNbx(memory.node, offset, byteLength, key, fragmentOffset, params);
  }

  readonly #onEnd = (request: Request, status: Status): void => {
    const copy = request.userData as CardCopy;
    copy.error = request.error;
    request.free();
    this.#ended(copy, status);
  };

  #ended(copy: CardCopy, status: Status): void {
    this.#outstanding -= 1;
    copy.status = status;
    copy.owner.copyEnded(copy);
  }

  #keyOf(loopback: Endpoint, fragment: Fragment): RemoteKey {
    let key = this.#keys.get(fragment);
    if (key === undefined) {
      key = loopback.unpackRkey(this.#worker.context.node.packRkey(fragment.memory.node));
      this.#keys.set(fragment, key);
    }
    return key;
  }
}

/** Why a copy has failed, for a request. */
export function copyError(copy: CardCopy): UcxError | undefined {
  return isUcxError(copy.error) ? copy.error : undefined;
}
