/** Copies between host bytes and the mapped memory of one context, of any type, by a loopback endpoint of a private worker. */

import { copyBytes, isBytes } from '../../ucs/memory/bytes.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { closedError, invalidParam, outsideOf, type SizedRange, throwIfAborted } from '../../ucs/type/error.ts';
import type { Context } from '../contract/context.ts';
import type { Endpoint, TransferOptions } from '../contract/endpoint.ts';
import { checkSignal } from '../contract/listener.ts';
import type { CopyOptions, LocalMemory, MemoryHandle, MemoryRange, RemoteKey } from '../contract/memory.ts';

/** Size of the host buffer for filling device memory. */
const FILL_BYTES_MAX = 2 ** 20;

const RANGE_OPTIONS = ['offset', 'byteLength', 'signal'];

/** A checked range of memory. */
interface Range {
  readonly offset: number;
  readonly byteLength: number;
  readonly signal: AbortSignal | undefined;
}

/** The copies of one context. */
export class MemoryCopier {
  readonly #context: Pick<Context, 'worker'>;
  readonly #packOwnRkey: (memory: MemoryHandle) => Uint8Array;
  #endpoint: Endpoint | undefined = undefined;

  /** @param packOwnRkey packs the key of memory for an endpoint of the context to itself, regardless of the protection for peers */
  constructor(context: Pick<Context, 'worker'>, packOwnRkey: (memory: MemoryHandle) => Uint8Array) {
    this.#context = context;
    this.#packOwnRkey = packOwnRkey;
  }

  /** See MemoryHandle.write. */
  async write(memory: MemoryHandle, bytes: Uint8Array, options: MemoryRange): Promise<void> {
    if (!isBytes(bytes)) throw invalidParam('bytes', 'must be a Uint8Array', bytes);
    const { offset, byteLength, signal } = rangeOf(memory, options, bytes.byteLength);
    if (byteLength > bytes.byteLength) throw outsideOf('the bytes', 'byteLength', within(bytes, byteLength));
    if (memory.bytes !== undefined) copyBytes(memory.bytes, offset, bytes, 0, byteLength);
    else await this.#move('put', bytes, memory, { byteLength, remoteOffset: offset, signal });
  }

  /** See MemoryHandle.read. */
  async read(memory: MemoryHandle, target: Uint8Array | undefined, options: MemoryRange): Promise<Uint8Array> {
    if (target !== undefined && !isBytes(target)) {
      throw invalidParam('target', 'must be a Uint8Array', target);
    }
    const { offset, byteLength, signal } = rangeOf(memory, options, target?.byteLength);
    const bytes = target ?? new Uint8Array(byteLength);
    if (byteLength > bytes.byteLength) throw outsideOf('the target', 'byteLength', within(bytes, byteLength));
    if (memory.bytes !== undefined) copyBytes(bytes, 0, memory.bytes, offset, byteLength);
    else await this.#move('get', bytes, memory, { byteLength, remoteOffset: offset, signal });
    return bytes.byteLength === byteLength ? bytes : bytes.subarray(0, byteLength);
  }

  /** See MemoryHandle.fill. */
  async fill(memory: MemoryHandle, value: number, options: MemoryRange): Promise<void> {
    if (!Number.isInteger(value) || value < 0 || value > 255) throw invalidParam('value', 'must be a byte', value);
    const { offset, byteLength, signal } = rangeOf(memory, options);
    if (memory.bytes !== undefined) {
      memory.bytes.fill(value, offset, offset + byteLength);
      return;
    }
    const bytes = new Uint8Array(Math.min(byteLength, FILL_BYTES_MAX)).fill(value);
    for (let done = 0; done < byteLength; done += bytes.byteLength) {
      const part = Math.min(bytes.byteLength, byteLength - done);
      await this.#move('put', bytes, memory, { byteLength: part, remoteOffset: offset + done, signal });
    }
  }

  /** See MemoryHandle.copyTo. */
  async copy(memory: MemoryHandle, other: MemoryHandle, options: CopyOptions): Promise<void> {
    checkOptions(options, 'options', [...RANGE_OPTIONS, 'targetOffset']);
    const { targetOffset = 0, ...range } = options;
    const { offset, byteLength, signal } = rangeOf(memory, range);
    checkRange(other, targetOffset, byteLength, 'targetOffset');
    if (memory.bytes !== undefined && other.bytes !== undefined) {
      copyBytes(other.bytes, targetOffset, memory.bytes, offset, byteLength);
      return;
    }
    refuseOverlap(memory, other, { offset, byteLength, targetOffset });
    if (other.bytes === undefined) {
      await this.#move('put', memory, other, { offset, byteLength, remoteOffset: targetOffset, signal });
    } else {
      await this.#move('get', other, memory, { offset: targetOffset, byteLength, remoteOffset: offset, signal });
    }
  }

  async #move(name: 'put' | 'get', local: LocalMemory, remote: MemoryHandle, options: TransferOptions): Promise<void> {
    const endpoint = this.#toItself();
    const rkey: RemoteKey = endpoint.unpackRkey(this.#packOwnRkey(remote));
    try {
      await endpoint[name](local, rkey, options);
    } finally {
      rkey.release();
    }
  }

  /** Created at the first use, and closed with the context. */
  #toItself(): Endpoint {
    if (this.#endpoint === undefined) {
      // Its operations are awaited, and it has no peers.
      const worker = this.#context.worker({ progress: 'manual' });
      this.#endpoint = worker.endpoint(worker.address());
    }
    return this.#endpoint;
  }
}

/** Rejects copies inside device memory with overlapping ranges, because cards copy long ranges in slices, in any order. */
function refuseOverlap(
  from: MemoryHandle,
  to: MemoryHandle,
  {
    offset,
    byteLength,
    targetOffset,
  }: { readonly offset: number; readonly byteLength: number; readonly targetOffset: number },
): void {
  if (from.memoryType !== to.memoryType || from.sysDevice !== to.sysDevice || byteLength === 0) return;
  const distance = from.address + BigInt(offset) - (to.address + BigInt(targetOffset));
  if (distance >= byteLength || distance <= -byteLength) return;
  const rule = 'must not make the ranges of device memory overlap';
  throw invalidParam('targetOffset', rule, targetOffset);
}

/**
 * The range of mapped memory in options.
 * @param length default: all from `offset` on
 * @throws UcxError ERR_INVALID_PARAM; ERR_CLOSED for unmapped memory; AbortError
 */
function rangeOf(memory: MemoryHandle, options: MemoryRange, length?: number): Range {
  checkOptions(options, 'options', RANGE_OPTIONS);
  const { offset = 0, signal } = options;
  const rest = typeof offset === 'number' ? Math.max(0, memory.byteLength - offset) : 0;
  const { byteLength = length ?? rest } = options;
  checkRange(memory, offset, byteLength, 'offset');
  if (signal !== undefined) checkSignal(signal);
  throwIfAborted(signal);
  return { offset, byteLength, signal };
}

/** @param name of the offset */
function checkRange(memory: MemoryHandle, offset: number, byteLength: number, name: string): void {
  if (!memory.mapped) throw closedError('memory', 'unmapped');
  const size = memory.byteLength;
  if (!Number.isSafeInteger(offset) || offset < 0) throw invalidParam(name, 'must be an integer of 0 or more', offset);
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    throw invalidParam('byteLength', 'must be an integer of 0 or more', byteLength);
  }
  if (offset + byteLength > size) throw outsideOf('memory', name, { offset, byteLength, size });
  if (memory.bytes !== undefined && memory.bytes.byteLength !== size) {
    throw invalidParam('memory', 'must not change its length while mapped: its ArrayBuffer was detached', size);
  }
}

function within({ byteLength: size }: Uint8Array, byteLength: number): SizedRange {
  return { offset: 0, byteLength, size };
}
