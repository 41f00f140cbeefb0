/**
 * The loopback interface: every operation is a copy that is complete when the call returns. As the smallest transport it also serves as an executable
 * specification of the interface contract.
 */

import { moveBytes } from '../../ucs/memory/bytes.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Sleeper } from '../../ucs/sys/sleeper.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { Status, statusOf } from '../../ucs/type/status.ts';
import {
  type AmHandler,
  type AmPacker,
  type AtomicCall,
  type Iface,
  type IfaceAttributes,
  IfaceFlag,
  type IovEntry,
  type UctEndpoint,
} from '../api/iface.ts';
import { checkAmHandler, checkTimeout, fitsMessage, isInBytes } from '../base/checks.ts';
import { Transfer, TransferCounters } from '../base/counters.ts';
import { hostIfaceAttributes } from '../base/host/domain.ts';
import { IOV_MAX } from '../base/host/memory.ts';
import { identityText, sameAddress, UNIQUE_ADDRESS_BYTES, uniqueAddress, unreachable } from '../base/iface.ts';
import { SELF_RESOURCE, type SelfKey, SelfMemory } from './memory.ts';
import { LoopbackQueue } from './queue.ts';

/** Longest short operation: the default of the self transport of UCX (SEG_SIZE 8k). */
const SHORT_BYTES_MAX = 8192;
/** Bandwidth of a copy on one core for the cost model: the estimate of UCX for its self transport. */
const BANDWIDTH: number = 19360 * 2 ** 20;

const ATTRIBUTES: IfaceAttributes = hostIfaceAttributes({
  resource: SELF_RESOURCE,
  flags:
    IfaceFlag.PUT_SHORT |
    IfaceFlag.PUT_ZCOPY |
    IfaceFlag.GET_SHORT |
    IfaceFlag.GET_ZCOPY |
    IfaceFlag.AM_SHORT |
    IfaceFlag.AM_BCOPY |
    IfaceFlag.ATOMIC32 |
    IfaceFlag.ATOMIC64 |
    IfaceFlag.CPU_ACCESS |
    IfaceFlag.EP_CHECK |
    IfaceFlag.EVENT |
    IfaceFlag.CONNECT_TO_IFACE |
    IfaceFlag.ERRHANDLE_REMOTE_MEM,
  shortBytesMax: SHORT_BYTES_MAX,
  am: { shortBytesMax: SHORT_BYTES_MAX, bcopyBytesMax: SHORT_BYTES_MAX },
  latencyNs: 0,
  overheadNs: 10,
  bandwidth: BANDWIDTH,
  ifaceAddressBytes: UNIQUE_ADDRESS_BYTES,
  errorHandling: ['remote access'],
});

/** An endpoint from this process to itself. */
class SelfEndpoint implements UctEndpoint {
  readonly #messages: LoopbackQueue;
  readonly #counters: TransferCounters;

  constructor(messages: LoopbackQueue, counters: TransferCounters) {
    this.#messages = messages;
    this.#counters = counters;
  }

  putShort(source: Uint8Array, sourceOffset: number, byteLength: number, remoteOffset: number, rkey: SelfKey): Status {
    if (!isShort(source, sourceOffset, byteLength)) return Status.INVALID_PARAM;
    const remote = remoteBytes(rkey, remoteOffset, byteLength);
    if (typeof remote === 'number') return remote;
    moveBytes(remote, remoteOffset, source, sourceOffset, byteLength);
    this.#counters.short(Transfer.PUT, byteLength);
    return Status.OK;
  }

  getShort(target: Uint8Array, targetOffset: number, byteLength: number, remoteOffset: number, rkey: SelfKey): Status {
    if (!isShort(target, targetOffset, byteLength)) return Status.INVALID_PARAM;
    const remote = remoteBytes(rkey, remoteOffset, byteLength);
    if (typeof remote === 'number') return remote;
    moveBytes(target, targetOffset, remote, remoteOffset, byteLength);
    this.#counters.short(Transfer.GET, byteLength);
    return Status.OK;
  }

  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: SelfKey): Status {
    return this.#moved(Transfer.PUT, moveEntries(iov, remoteOffset, rkey, true));
  }

  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: SelfKey): Status {
    return this.#moved(Transfer.GET, moveEntries(iov, remoteOffset, rkey, false));
  }

  flush(): Status {
    return this.#counters.flush(Status.OK);
  }

  fence(): Status {
    return this.#counters.fence(Status.OK);
  }

  amShort(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    if (!fitsMessage(headerWords, payload, payloadOffset, payloadLength, SHORT_BYTES_MAX)) return Status.INVALID_PARAM;
    const status = this.#messages.push(id, header, headerWords, payload, payloadOffset, payloadLength);
    if (status !== Status.OK) return this.#counters.refused(status);
    this.#counters.short(Transfer.AM, headerWords * 4 + payloadLength);
    return status;
  }

  amBcopy(id: number, packer: AmPacker): Status {
    const bytes = this.#messages.pack(id, packer);
    if (bytes < 0) return this.#counters.refused(statusOf(bytes));
    this.#counters.bcopy(Transfer.AM, bytes);
    return Status.OK;
  }

  atomic(call: AtomicCall, remoteOffset: number, rkey: SelfKey): Status {
    const remote = remoteBytes(rkey, remoteOffset, call.wordBytes);
    if (typeof remote === 'number') return remote;
    const status = rkey.memory.atomics.run(call, remoteOffset);
    if (status === Status.OK) this.#counters.atomic();
    return status;
  }

  check(): Status {
    return Status.OK;
  }

  close(): void {}

  /** @param moved number of bytes, or the failure */
  #moved(transfer: Transfer, moved: number): Status {
    if (moved < 0) return statusOf(moved);
    this.#counters.zcopy(transfer, moved);
    return Status.OK;
  }
}

export class SelfIface implements Iface {
  readonly attributes: IfaceAttributes = ATTRIBUTES;
  readonly address: Uint8Array = uniqueAddress();
  readonly #counters: TransferCounters = new TransferCounters();
  readonly #messages: LoopbackQueue;
  readonly #sleeper: Sleeper;
  #closed = false;

  constructor(clock: Clock) {
    this.#sleeper = new Sleeper(clock);
    const source = identityText(this.address);
    this.#messages = new LoopbackQueue(SHORT_BYTES_MAX, this.#counters, source, () => this.#sleeper.wake());
  }

  /** Number of messages that are not delivered yet. */
  get outstanding(): number {
    return this.#messages.length;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    return sameAddress(address, this.address) ? undefined : 'connects only to the worker itself';
  }

  identityOf(address: Uint8Array): string | undefined {
    return sameAddress(address, this.address) ? identityText(address) : undefined;
  }

  connect(address: Uint8Array): UctEndpoint {
    const reason = this.unreachableReason(address);
    if (reason !== undefined) throw unreachable('self', reason);
    return new SelfEndpoint(this.#messages, this.#counters);
  }

  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
    this.#messages.handler = handler;
  }

  progress(): number {
    return this.#messages.deliver();
  }

  errorOf(): undefined {
    return undefined;
  }

  stats(): StatsNode {
    return this.#counters.node(ATTRIBUTES.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    if (this.#closed || this.#messages.handler === undefined || this.#messages.length > 0) return Promise.resolve();
    return this.#sleeper.sleep(timeoutNs);
  }

  close(): void {
    this.#closed = true;
    this.#sleeper.wake();
  }
}

/** Whether a local range is valid for a short operation. */
function isShort(bytes: Uint8Array, offset: number, byteLength: number): boolean {
  return byteLength <= SHORT_BYTES_MAX && isInBytes(offset, byteLength, bytes);
}

/** The remote bytes of a key if it is valid and contains the range, else the status of the failure. */
function remoteBytes(rkey: SelfKey, offset: number, byteLength: number): Uint8Array | Status {
  const { memory } = rkey;
  if (!memory.live) return Status.INVALID_ADDR;
  if (!isInBytes(offset, byteLength, memory.bytes)) return Status.INVALID_ADDR;
  return memory.bytes;
}

/** Copies a list to or from remote memory; returns its bytes, or a failure. */
function moveEntries(iov: readonly IovEntry[], remoteOffset: number, rkey: SelfKey, isPut: boolean): number {
  if (iov.length > IOV_MAX) throw invalidParam('iov', `must have at most ${IOV_MAX} entries`, iov.length);
  const total = iov.reduce((sum, entry) => sum + entry.byteLength, 0);
  const remote = remoteBytes(rkey, remoteOffset, total);
  if (typeof remote === 'number') return remote;
  for (const { memory, offset, byteLength } of iov) {
    if (!(memory instanceof SelfMemory))
      throw invalidParam('iov', 'must hold memory of memory domain self', memory.mdName);
    if (!memory.live || !isInBytes(offset, byteLength, memory.bytes)) {
      throw invalidParam(
        'iov',
        `must be inside memory of ${memory.byteLength} bytes that is not freed`,
        `${byteLength} at ${offset}`,
      );
    }
  }
  let at = remoteOffset;
  for (const { memory, offset, byteLength } of iov) {
    const local = (memory as SelfMemory).bytes;
    if (isPut) moveBytes(remote, at, local, offset, byteLength);
    else moveBytes(local, offset, remote, at, byteLength);
    at += byteLength;
  }
  return total;
}
