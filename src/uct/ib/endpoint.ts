/** An endpoint of ib: checks operations, and posts them to its connection. The interface handles their completions. */

import { copyBytes } from '../../ucs/memory/bytes.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { SendFlag, SendWr, WrOpcode } from '../../verbs/abi.ts';
import { setAtomic, setRdma } from '../../verbs/work-request.ts';
import {
  type AmFrame,
  type AmPacker,
  type AtomicCall,
  AtomicOperation,
  type Completion,
  type IovEntry,
  type UctEndpoint,
} from '../api/iface.ts';
import type { RemoteKey } from '../api/memory.ts';
import { fitsMessage, isCompletion, isInBytes, isInside } from '../base/checks.ts';
import { Transfer } from '../base/counters.ts';
import { IB_NAME } from './base/config.ts';
import { IbKey } from './base/key.ts';
import { IbMemory } from './base/memory.ts';
import type { SlotMemory } from './base/queues.ts';
import type { Completions } from './connection/completions.ts';
import { type IbConnection, immediateOf, MessageKind } from './connection/connection.ts';
import { newWord } from './connection/work-request.ts';
import type { IbShared } from './shared.ts';

const AM_ID_MASK = 31;
const WORD_BYTES = 8;
const NO_IOV: readonly IovEntry[] = [];

/** The space for a message, passed to its packer. */
class PackFrame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  offset = 0;
  byteLength = 0;
  readonly source = '';

  constructor({ bytes, words }: SlotMemory) {
    this.bytes = bytes;
    this.words = words;
  }
}

export class IbEndpoint implements UctEndpoint {
  readonly connection: IbConnection;
  readonly peerDevice: number;
  readonly #shared: IbShared;
  readonly #completions: Completions;
  readonly #onClose: (endpoint: IbEndpoint) => void;
  readonly #frame: PackFrame;
  #isFenced = false;
  #closed = false;

  /** @param peerDevice index of the device of the peer, for remote keys */
  constructor(
    connection: IbConnection,
    peerDevice: number,
    completions: Completions,
    onClose: (endpoint: IbEndpoint) => void,
  ) {
    this.connection = connection;
    this.peerDevice = peerDevice;
    this.#completions = completions;
    this.#shared = completions.shared;
    this.#onClose = onClose;
    this.#frame = new PackFrame(completions.shared.tx);
  }

  putShort(
    source: Uint8Array,
    sourceOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion?: Completion,
  ): Status {
    const { tx, inlineBytes } = this.#shared;
    if (byteLength > tx.slotBytes || !isInBytes(sourceOffset, byteLength, source)) return Status.INVALID_PARAM;
    if (completion !== undefined && !isCompletion(completion)) return Status.INVALID_PARAM;
    const refusal = this.#refusal(rkey, remoteOffset, byteLength);
    if (refusal !== Status.OK) return refusal;
    if (byteLength === 0) return Status.OK;
    const { connection } = this;
    const isInline = byteLength <= inlineBytes;
    const slot = isInline ? -1 : tx.take();
    if (!isInline && slot < 0) return this.#shared.counters.refused(Status.NO_RESOURCE);
    const { entry } = connection.sends;
    const at = connection.begin(WrOpcode.RDMA_WRITE, !isInline || completion !== undefined, this.#fenceFlag());
    this.#setRemote(at, rkey as IbKey, remoteOffset);
    if (isInline) {
      copyBytes(connection.sends.bytes, connection.sends.inline(at, byteLength), source, sourceOffset, byteLength);
    } else {
      copyBytes(tx.bytes, slot * tx.slotBytes, source, sourceOffset, byteLength);
      this.#setSlot(at, slot, byteLength);
    }
    entry.completion = completion;
    this.#post(at, completion);
    this.#shared.counters.short(Transfer.PUT, byteLength);
    return completion === undefined ? Status.OK : Status.INPROGRESS;
  }

  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    return this.#zcopy(WrOpcode.RDMA_WRITE, iov, remoteOffset, rkey, completion);
  }

  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    return this.#zcopy(WrOpcode.RDMA_READ, iov, remoteOffset, rkey, completion);
  }

  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion: Completion,
  ): Status {
    const { tx, counters } = this.#shared;
    if (byteLength > tx.slotBytes || !isInBytes(targetOffset, byteLength, target)) return Status.INVALID_PARAM;
    if (!isCompletion(completion)) return Status.INVALID_PARAM;
    const refusal = this.#refusal(rkey, remoteOffset, byteLength);
    if (refusal !== Status.OK) return refusal;
    if (byteLength === 0) return Status.OK;
    const slot = tx.take();
    if (slot < 0) return counters.refused(Status.NO_RESOURCE);
    const { connection } = this;
    const { entry } = connection.sends;
    const at = connection.begin(WrOpcode.RDMA_READ, true, this.#fenceFlag());
    this.#setRemote(at, rkey as IbKey, remoteOffset);
    this.#setSlot(at, slot, byteLength);
    entry.target = target;
    entry.targetOffset = targetOffset;
    entry.targetBytes = byteLength;
    entry.completion = completion;
    this.#post(at, completion);
    counters.short(Transfer.GET, byteLength);
    return Status.INPROGRESS;
  }

  cancel(): void {
    this.connection.cancel();
  }

  flush(completion: Completion | undefined): Status {
    if (completion !== undefined && !isCompletion(completion)) return Status.INVALID_PARAM;
    const { connection } = this;
    const { counters } = this.#shared;
    if (!connection.isBusy) return counters.flush(connection.failure);
    const status = connection.flush(completion);
    if (status === Status.INPROGRESS && completion !== undefined) this.#shared.outstanding += 1;
    return counters.flush(status);
  }

  /** The device executes requests in order, except that later ones may overtake the responses of reads and atomic operations; the next request is fenced. */
  fence(): Status {
    this.#isFenced = true;
    return this.#shared.counters.fence(Status.OK);
  }

  amShort(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    const { inlineBytes, tx, counters } = this.#shared;
    if ((id & AM_ID_MASK) !== id || !isInside(0, headerWords, header.length)) return Status.INVALID_PARAM;
    if (!fitsMessage(headerWords, payload, payloadOffset, payloadLength, tx.slotBytes)) return Status.INVALID_PARAM;
    const refusal = this.#messageRefusal();
    if (refusal !== Status.OK) return refusal;
    const { connection } = this;
    const headerBytes = headerWords * 4;
    const total = headerBytes + payloadLength;
    const isInline = total <= inlineBytes;
    const slot = isInline ? -1 : tx.take();
    if (!isInline && slot < 0) return counters.refused(Status.NO_RESOURCE);
    const at = this.#beginMessage(id, !isInline);
    if (isInline) {
      const offset = connection.sends.inline(at, total);
      for (let i = 0; i < headerWords; i++) connection.sends.words[(offset >> 2) + i] = header[i]!;
      if (payload !== undefined) {
        copyBytes(connection.sends.bytes, offset + headerBytes, payload, payloadOffset, payloadLength);
      }
    } else {
      const offset = slot * tx.slotBytes;
      for (let i = 0; i < headerWords; i++) tx.words[(offset >> 2) + i] = header[i]!;
      if (payload !== undefined) copyBytes(tx.bytes, offset + headerBytes, payload, payloadOffset, payloadLength);
      this.#setSlot(at, slot, total);
    }
    this.#post(at, undefined);
    counters.short(Transfer.AM, total);
    return Status.OK;
  }

  amBcopy(id: number, packer: AmPacker): Status {
    const { tx, counters } = this.#shared;
    if ((id & AM_ID_MASK) !== id) return Status.INVALID_PARAM;
    const refusal = this.#messageRefusal();
    if (refusal !== Status.OK) return refusal;
    const slot = tx.take();
    if (slot < 0) return counters.refused(Status.NO_RESOURCE);
    const frame = this.#frame;
    frame.offset = slot * tx.slotBytes;
    frame.byteLength = tx.slotBytes;
    let total = -1;
    try {
      total = packer.pack(frame);
    } finally {
      // The packer may throw, and it may return an invalid length.
      if (!isInside(0, total, tx.slotBytes)) tx.give(slot);
    }
    if (!isInside(0, total, tx.slotBytes)) return Status.INVALID_PARAM;
    const at = this.#beginMessage(id, true);
    this.#setSlot(at, slot, total);
    this.#post(at, undefined);
    counters.bcopy(Transfer.AM, total);
    return Status.OK;
  }

  amZcopy(
    id: number,
    header: Int32Array,
    headerWords: number,
    iov: readonly IovEntry[],
    completion: Completion,
  ): Status {
    const { tx, counters } = this.#shared;
    const headerBytes = headerWords * 4;
    const total = headerBytes + checkIov(iov, this.#shared.attributes.put.iovMax);
    const isSound = (id & AM_ID_MASK) === id && isInside(0, headerWords, header.length) && total <= tx.slotBytes;
    if (!isSound || !isCompletion(completion)) return Status.INVALID_PARAM;
    const refusal = this.#messageRefusal();
    if (refusal !== Status.OK) return refusal;
    const slot = headerBytes === 0 ? -1 : tx.take();
    if (headerBytes > 0 && slot < 0) return counters.refused(Status.NO_RESOURCE);
    const { connection } = this;
    const { entry } = connection.sends;
    const at = this.#beginMessage(id, true);
    if (slot >= 0) {
      const offset = (slot * tx.slotBytes) >> 2;
      for (let i = 0; i < headerWords; i++) tx.words[offset + i] = header[i]!;
      this.#setSlot(at, slot, headerBytes);
    }
    this.#setIov(at, iov, slot >= 0 ? 1 : 0);
    entry.hold(iov, undefined);
    entry.completion = completion;
    this.#post(at, completion);
    counters.zcopy(Transfer.AM, total);
    return Status.INPROGRESS;
  }

  /** For 64-bit words. Operations that the device does not support are executed as compare and swap, repeated until the word has not changed meanwhile. */
  atomic(call: AtomicCall, remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    if (call.wordBytes !== WORD_BYTES) return Status.UNSUPPORTED;
    if (!isCompletion(completion)) return Status.INVALID_PARAM;
    if (!(rkey instanceof IbKey)) return Status.INVALID_PARAM;
    if (!isInside(remoteOffset, WORD_BYTES, rkey.byteLength) || !rkey.live) return Status.INVALID_ADDR;
    if ((rkey.iova + remoteOffset) % WORD_BYTES !== 0) return Status.INVALID_ADDR;
    const refusal = this.#unready();
    if (refusal !== Status.OK) return refusal;
    const status = this.postAtomic(call, remoteOffset, rkey, completion, 0n);
    if (status !== Status.OK) return status;
    this.#shared.outstanding += 1;
    this.#shared.counters.atomic();
    return Status.INPROGRESS;
  }

  /** Posts one attempt. @param assumed expected value of the word, for an operation that the device does not support */
  postAtomic(call: AtomicCall, remoteOffset: number, rkey: IbKey, completion: Completion, assumed: bigint): Status {
    const { connection } = this;
    if (connection.failure !== Status.OK) return connection.failure;
    if (connection.freeSlots <= 0) return this.#shared.counters.refused(Status.NO_RESOURCE);
    const isAdd = call.operation === AtomicOperation.ADD;
    const compareAdd = isAdd ? call.value64 : call.operation === AtomicOperation.CSWAP ? call.compare64 : assumed;
    const swap = isAdd ? 0n : newWord(call, assumed);
    // These throw for a value that is not a bigint, so they are called before a slot is taken.
    const compareLow = lowWord(compareAdd);
    const compareHigh = highWord(compareAdd);
    const swapLow = lowWord(swap);
    const swapHigh = highWord(swap);
    const slot = this.#shared.tx.take();
    if (slot < 0) return this.#shared.counters.refused(Status.NO_RESOURCE);
    const { entry, words } = connection.sends;
    const opcode = isAdd ? WrOpcode.ATOMIC_FETCH_AND_ADD : WrOpcode.ATOMIC_CMP_AND_SWP;
    const at = connection.begin(opcode, true, this.#fenceFlag());
    setAtomic(words, at, rkey.iova + remoteOffset, rkey.rkeys[this.peerDevice]!);
    words[at + SendWr.ATOMIC_COMPARE_ADD] = compareLow;
    words[at + SendWr.ATOMIC_COMPARE_ADD + 1] = compareHigh;
    words[at + SendWr.ATOMIC_SWAP] = swapLow;
    words[at + SendWr.ATOMIC_SWAP + 1] = swapHigh;
    this.#setSlot(at, slot, WORD_BYTES);
    entry.call = call;
    entry.remoteOffset = remoteOffset;
    entry.assumed = assumed;
    entry.completion = completion;
    entry.hold(NO_IOV, rkey);
    connection.post(at);
    return Status.OK;
  }

  cork(): void {
    this.connection.sends.cork();
  }

  uncork(): void {
    this.connection.uncork();
  }

  check(): Status {
    const { connection } = this;
    if (this.#closed) return Status.CANCELED;
    this.#completions.receive();
    if (connection.failure !== Status.OK) return connection.failure;
    // An acknowledgement shows that the peer's device still has the connection; progress detects the failure.
    if (!connection.isUp) return Status.OK;
    // Flush requests without a completion too: otherwise only their failure would be reported.
    if (connection.isBusy) connection.flush(undefined);
    else if (connection.freeSlots > 0) connection.probe();
    return Status.OK;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#onClose(this);
  }

  #zcopy(
    opcode: number,
    iov: readonly IovEntry[],
    remoteOffset: number,
    rkey: RemoteKey,
    completion: Completion,
  ): Status {
    const { attributes, counters } = this.#shared;
    const total = checkIov(iov, attributes.put.iovMax);
    if (!isCompletion(completion) || total > attributes.put.zcopyBytesMax) return Status.INVALID_PARAM;
    const refusal = this.#refusal(rkey, remoteOffset, total);
    if (refusal !== Status.OK) return refusal;
    if (total === 0) return Status.OK;
    const { connection } = this;
    const { entry } = connection.sends;
    const at = connection.begin(opcode, true, this.#fenceFlag());
    this.#setRemote(at, rkey as IbKey, remoteOffset);
    this.#setIov(at, iov, 0);
    entry.hold(iov, rkey as IbKey);
    entry.completion = completion;
    this.#post(at, completion);
    counters.zcopy(opcode === WrOpcode.RDMA_READ ? Transfer.GET : Transfer.PUT, total);
    return Status.INPROGRESS;
  }

  /** The reason why an operation on remote memory cannot be started; OK if it can. */
  #refusal(rkey: RemoteKey, remoteOffset: number, byteLength: number): Status {
    if (!(rkey instanceof IbKey)) return Status.INVALID_PARAM;
    if (!isInside(remoteOffset, byteLength, rkey.byteLength) || !rkey.live) return Status.INVALID_ADDR;
    return this.#unready();
  }

  #unready(): Status {
    const { connection } = this;
    if (this.#closed) return Status.CANCELED;
    if (connection.failure !== Status.OK) return connection.failure;
    return connection.isUp && connection.freeSlots > 0 ? Status.OK : this.#shared.counters.refused(Status.NO_RESOURCE);
  }

  #messageRefusal(): Status {
    const unready = this.#unready();
    if (unready !== Status.OK) return unready;
    return this.connection.credits > 0 ? Status.OK : this.#shared.counters.refused(Status.NO_RESOURCE);
  }

  #beginMessage(id: number, isSignaled: boolean): number {
    const { connection } = this;
    connection.credits -= 1;
    const at = connection.begin(WrOpcode.SEND_WITH_IMM, isSignaled, this.#fenceFlag() | SendFlag.SOLICITED);
    connection.sends.words[at + SendWr.IMM_DATA] = immediateOf(MessageKind.AM, id, 0);
    return at;
  }

  #fenceFlag(): number {
    if (!this.#isFenced) return 0;
    this.#isFenced = false;
    return SendFlag.FENCE;
  }

  #setRemote(at: number, { iova, rkeys }: IbKey, remoteOffset: number): void {
    setRdma(this.connection.sends.words, at, iova + remoteOffset, rkeys[this.peerDevice] ?? 0);
  }

  #setSlot(at: number, slot: number, byteLength: number): void {
    const { connection } = this;
    const { tx } = this.#shared;
    connection.sends.entry.slot = slot;
    connection.sends.setSge(at, 0, tx.addressOf(slot), byteLength, tx.lkey);
    connection.sends.setList(at, byteLength === 0 ? 0 : 1);
  }

  /** Sets the gather list to registered memory, after its first `first` entries. */
  #setIov(at: number, iov: readonly IovEntry[], first: number): void {
    const { connection } = this;
    let count = first;
    const { index } = this.#shared.port.device;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      if (byteLength === 0) continue;
      const { iova, lkeys } = memory as IbMemory;
      connection.sends.setSge(at, count, iova + offset, byteLength, lkeys[index]!);
      count += 1;
    }
    connection.sends.setList(at, count);
  }

  #post(at: number, completion: Completion | undefined): void {
    if (completion !== undefined) this.#shared.outstanding += 1;
    this.connection.post(at);
  }
}

/**
 * Checks a list and returns its total bytes.
 * @throws UcxError ERR_INVALID_PARAM for too many entries, memory of another domain, released memory, and ranges outside
 */
function checkIov(iov: readonly IovEntry[], max: number): number {
  let total = 0;
  let filled = 0;
  for (let i = 0; i < iov.length; i++) {
    const { memory, offset, byteLength } = iov[i]!;
    if (!(memory instanceof IbMemory)) {
      throw invalidParam('iov', `must hold memory of memory domain ${IB_NAME}`, memory?.mdName);
    }
    if (!memory.live || !isInside(offset, byteLength, memory.byteLength)) {
      const place = `${byteLength} at ${offset}`;
      throw invalidParam('iov', `must be inside memory of ${memory.byteLength} bytes that is not freed`, place);
    }
    if (byteLength > 0) filled += 1;
    total += byteLength;
  }
  if (filled > max) throw invalidParam('iov', `must have at most ${max} entries with bytes`, filled);
  return total;
}
