/** Parameters of operations (ucp_request_param_t), in memory that libucp reads; written before an operation is started. */

import { OwnedMemory } from '../../api/memory/owned.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { highOf } from '../../ucs/type/int64.ts';
import { UCP_OP_ATTR_FIELD, UCP_OP_ATTR_FLAG, UCP_REQUEST_PARAM } from '../c/abi.ts';
import type { LocalBuffer } from '../mem/memory-handle.ts';

const WORD = 4;
const { at: PARAM } = UCP_REQUEST_PARAM;
const MASK = PARAM.op_attr_mask / WORD;
const FLAGS = PARAM.flags / WORD;
const REQUEST = PARAM.request / WORD;
const CALLBACK = PARAM.cb / WORD;
const DATATYPE = PARAM.datatype / WORD;
const USER_DATA = PARAM.user_data / WORD;
const REPLY_BUFFER = PARAM.reply_buffer / WORD;
const MEMORY_TYPE = PARAM.memory_type / WORD;
const MEMH = PARAM.memh / WORD;
const RECV_INFO = PARAM.recv_info / WORD;
const CALLBACK_BITS = UCP_OP_ATTR_FIELD.CALLBACK | UCP_OP_ATTR_FIELD.USER_DATA;

/** The parameters of the operations of one worker, for one operation at a time. */
export class ParameterBlock {
  /** Address of the parameters of the operation that is being started. */
  readonly address: number;
  /** Address of empty parameters (bytes, no callback), for sends that usually complete at once and then need no request. */
  readonly plain: number;
  /** Like {@link plain}, with the handle of mapped memory. */
  readonly #mapped: number;
  readonly #mappedWords: Uint32Array;
  /** The memory handle in {@link #mapped}. */
  #memh = 0;
  readonly #words: Uint32Array;
  readonly #blocks: readonly ScratchBlock[];

  constructor() {
    const started = allocateScratch(UCP_REQUEST_PARAM.size);
    const plain = allocateScratch(UCP_REQUEST_PARAM.size);
    const mapped = allocateScratch(UCP_REQUEST_PARAM.size);
    this.#blocks = [started, plain, mapped];
    this.address = started.address;
    this.#words = started.words;
    this.plain = plain.address;
    this.#mapped = mapped.address;
    this.#mappedWords = mapped.words;
    this.#mappedWords[MASK] = UCP_OP_ATTR_FIELD.MEMH;
  }

  /** Begins new parameters, without a callback. */
  reset(): void {
    this.#words[MASK] = 0;
  }

  /** Begins new parameters. @param index index of the request, passed to the callback */
  resetTo(callback: number, index: number): void {
    const words = this.#words;
    words[MASK] = CALLBACK_BITS;
    words[CALLBACK] = callback;
    words[CALLBACK + 1] = highOf(callback);
    words[USER_DATA] = index;
  }

  /** Makes libucp return a request even if the operation completes at once. */
  requireRequest(): void {
    this.#words[MASK]! |= UCP_OP_ATTR_FLAG.NO_IMM_CMPL;
  }

  /** Sets the address for the result of a receive that completes at once. */
  setReceiveInfo(address: number): void {
    this.#setAddress(UCP_OP_ATTR_FIELD.RECV_INFO, RECV_INFO, address);
  }

  /** {@link plain}, with the libucp memory handle if there is one, so that libucp does not register the memory. */
  plainFor(local: LocalBuffer): number {
    if (!(local instanceof OwnedMemory) || local.operationMemh === 0) return this.plain;
    const { operationMemh } = local;
    if (operationMemh !== this.#memh) {
      this.#memh = operationMemh;
      this.#mappedWords[MEMH] = operationMemh;
      this.#mappedWords[MEMH + 1] = highOf(operationMemh);
    }
    return this.#mapped;
  }

  setFlags(flags: number): void {
    this.#words[MASK]! |= UCP_OP_ATTR_FIELD.FLAGS;
    this.#words[FLAGS] = flags;
  }

  setDatatype(datatype: number): void {
    this.#setAddress(UCP_OP_ATTR_FIELD.DATATYPE, DATATYPE, datatype);
  }

  /** Sets the memory type in the numbering of libucp. */
  setMemoryType(memoryType: number): void {
    this.#words[MASK]! |= UCP_OP_ATTR_FIELD.MEMORY_TYPE;
    this.#words[MEMORY_TYPE] = memoryType;
  }

  /** Sets the memory handle of the operation; 0 for none. */
  setMemh(memh: number): void {
    if (memh !== 0) this.#setAddress(UCP_OP_ATTR_FIELD.MEMH, MEMH, memh);
  }

  /** Passes memory for the libucp request; see UcpRequest.isLent. @param handle address of the end of the memory */
  setRequest(handle: number): void {
    this.#setAddress(UCP_OP_ATTR_FIELD.REQUEST, REQUEST, handle);
  }

  setReplyBuffer(address: number): void {
    this.#setAddress(UCP_OP_ATTR_FIELD.REPLY_BUFFER, REPLY_BUFFER, address);
  }

  close(): void {
    for (const block of this.#blocks) block.free();
  }

  #setAddress(bit: number, word: number, address: number): void {
    const words = this.#words;
    words[MASK]! |= bit;
    words[word] = address;
    words[word + 1] = highOf(address);
  }
}
