/**
 * Objects that an interface creates on a device: slots of registered memory, a reader of completion queues, parameters of queue pairs, and the translation of
 * work completion statuses. Objects are destroyed in the reverse order of their creation, also if a creation fails.
 */

import {
  allocateScratch,
  Errno,
  isSyscallError,
  type MappedMemory,
  mapAnonymous,
  type ScratchBlock,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { AccessFlag, QpType, Wc, WcStatus } from '../../../verbs/abi.ts';
import type { CompletionQueue, MemoryRegion, QpInit } from '../../../verbs/port.ts';
import type { IbDevice } from './device.ts';

/** Registered memory in slots of one length, for received messages and for bytes that are copied before they are sent. */
export class SlotMemory {
  readonly slotBytes: number;
  readonly count: number;
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  readonly lkey: number;
  readonly #memory: MappedMemory;
  readonly #region: MemoryRegion;
  readonly #free: Int32Array;
  #numFree: number;

  /** @throws SyscallError ENOMEM */
  constructor({ pd }: IbDevice, count: number, slotBytes: number) {
    this.slotBytes = slotBytes;
    this.count = count;
    this.#memory = mapAnonymous(count * slotBytes);
    this.bytes = this.#memory.u8;
    this.words = new Int32Array(this.#memory.buffer, 0, (count * slotBytes) / 4);
    const { address, byteLength } = this.#memory;
    try {
      this.#region = pd.regMr(address, byteLength, address, AccessFlag.LOCAL_WRITE);
    } catch (error) {
      this.#memory.close();
      throw error;
    }
    this.lkey = this.#region.lkey;
    this.#free = Int32Array.from({ length: count }, (_, i) => count - 1 - i);
    this.#numFree = count;
  }

  get numFree(): number {
    return this.#numFree;
  }

  /** Takes a slot; -1 if there is none. */
  take(): number {
    if (this.#numFree === 0) return -1;
    this.#numFree -= 1;
    return this.#free[this.#numFree]!;
  }

  give(slot: number): void {
    this.#free[this.#numFree] = slot;
    this.#numFree += 1;
  }

  /** Address of a slot, for work requests. */
  addressOf(slot: number): number {
    return this.#memory.address + slot * this.slotBytes;
  }

  close(): void {
    this.#region.close();
    this.#memory.close();
  }
}

const BATCH = 16;

/** Reads a completion queue in batches. Completions that were found before a sleep are processed after it. */
export class CqReader {
  readonly cq: CompletionQueue;
  readonly #block: ScratchBlock = allocateScratch(BATCH * Wc.WORDS * 4);
  /** Words of {@link next}. */
  readonly words: Uint32Array;
  #count = 0;
  #taken = 0;

  constructor(cq: CompletionQueue) {
    this.cq = cq;
    this.words = this.#block.words;
  }

  /** Number of completions that were read and not taken; reads more if there are none. */
  fill(): number {
    if (this.#taken < this.#count) return this.#count - this.#taken;
    this.#taken = 0;
    this.#count = Math.max(0, this.cq.poll(this.#block, BATCH));
    return this.#count;
  }

  /** Takes the next completion: the index of its first word. Only after {@link fill} returned more than 0. */
  next(): number {
    return Wc.WORDS * this.#taken++;
  }

  close(): void {
    this.cq.close();
    this.#block.free();
  }
}

/** Closes objects in the reverse order of their creation. */
export class Opened {
  /** The close functions of the objects. */
  readonly #closes: (() => void)[] = [];

  /** Adds an object. */
  keep<T extends { close(): void }>(object: T): T {
    this.#closes.push(() => object.close());
    return object;
  }

  close(): void {
    for (const close of this.#closes.splice(0).reverse()) close();
  }
}

/** Maximum number of entries of a list; the header of a message may be before them. */
export const IB_IOV_MAX = 4;
/** Entries of the list of a work request. */
export const SGE_MAX: number = IB_IOV_MAX + 1;

/** The completion and receive queues of a queue pair, and the length of its send queue. */
type QpQueues = Pick<QpInit, 'sendCq' | 'receiveCq' | 'srq' | 'maxSendWr'>;

/** The parameters of the queue pair of a connection. */
export function qpInitOf({ attributes }: IbDevice, queues: QpQueues, maxInlineBytes: number): QpInit {
  const maxSendSge = Math.min(SGE_MAX, attributes.maxSge);
  const { sendCq, receiveCq, srq, maxSendWr } = queues;
  return {
    type: QpType.RC,
    sendCq,
    receiveCq,
    srq,
    maxSendWr,
    maxReceiveWr: 0,
    maxSendSge,
    maxReceiveSge: 0,
    maxInlineBytes,
  };
}

/**
 * Inline data of queue pairs: `wanted` bytes (UCX_RC_TX_MIN_INLINE), or less if the device does not support that many. Verbs cannot query the limit, so this
 * function tries to create a queue pair.
 * @throws SyscallError
 */
export function inlineBytesOf(device: IbDevice, queues: QpQueues, wanted: number): number {
  for (let bytes = wanted; ; bytes = (bytes >> 1) & ~7) {
    try {
      device.pd.createQp(qpInitOf(device, queues, bytes)).close();
      return bytes;
    } catch (error) {
      if (bytes === 0 || !isSyscallError(error, Errno.EINVAL)) throw error;
    }
  }
}

/** Status of an operation whose work request has ended with this status. */
export function statusOfWc(status: number): Status {
  switch (status) {
    case WcStatus.SUCCESS:
      return Status.OK;
    case WcStatus.REM_ACCESS_ERR:
    case WcStatus.REM_INV_REQ_ERR:
    case WcStatus.REM_INV_RD_REQ_ERR:
    case WcStatus.LOC_PROT_ERR:
      return Status.INVALID_ADDR;
    case WcStatus.RETRY_EXC_ERR:
    case WcStatus.RNR_RETRY_EXC_ERR:
    case WcStatus.RESP_TIMEOUT_ERR:
      return Status.ENDPOINT_TIMEOUT;
    case WcStatus.WR_FLUSH_ERR:
    case WcStatus.REM_ABORT_ERR:
    case WcStatus.REM_OP_ERR:
      return Status.CONNECTION_RESET;
    default:
      return Status.IO_ERROR;
  }
}

/** Status of the connection, and of its other operations, after a work request has ended with this status. */
export function connectionStatusOfWc(status: number): Status {
  const own = statusOfWc(status);
  return own === Status.INVALID_ADDR ? Status.CONNECTION_RESET : own;
}
