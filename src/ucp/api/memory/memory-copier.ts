/**
 * Copies between host bytes and the mapped memory of one context, of any type, by an endpoint to a worker of its own. It does not access memory of
 * peers.
 */

import { copyBytes } from '../../../ucs/memory/copy-bytes.ts';
import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { checkOptions } from '../../../ucs/type/check-options.ts';
import { closedError, invalidParam } from '../../../ucs/type/error.ts';
import type { Context } from '../context.ts';
import type { Endpoint, TransferOptions } from '../endpoint.ts';
import type { LocalMemory, MemoryHandle, MemoryRange, RemoteKey } from '../operation/memory.ts';

/** Bytes of host memory from which device memory is filled. */
const FILL_BYTES_MAX = 2 ** 20;

/** A context whose memory is copied. */
interface CopyingContext extends Pick<Context, 'worker'> {
  /** The key of memory for an endpoint of the context to itself, whatever peers may do with the memory. */
  packOwnRkey(memory: MemoryHandle): Uint8Array;
}

/** A checked range of memory. */
interface Range {
  readonly offset: number;
  readonly byteLength: number;
}

/** The copies of one context. */
export class MemoryCopier {
  readonly #context: CopyingContext;
  #endpoint: Endpoint | undefined = undefined;

  constructor(context: CopyingContext) {
    this.#context = context;
  }

  /** See MemoryHandle.write. */
  async write(memory: MemoryHandle, bytes: Uint8Array, start: number): Promise<void> {
    if (!isBytes(bytes)) throw invalidParam('bytes', 'must be a Uint8Array', bytes);
    const { offset, byteLength } = rangeOf(memory, start, bytes.byteLength);
    if (memory.bytes !== undefined) copyBytes(memory.bytes, offset, bytes, 0, byteLength);
    else await this.#move('put', bytes, memory, { byteLength, remoteOffset: offset });
  }

  /** See MemoryHandle.read. */
  async read(memory: MemoryHandle, target: Uint8Array | undefined, options: MemoryRange): Promise<Uint8Array> {
    checkOptions(options, 'options', ['offset', 'length']);
    if (target !== undefined && !isBytes(target)) {
      throw invalidParam('target', 'must be a Uint8Array', target);
    }
    const { offset, byteLength } = rangeOf(
      memory,
      options.offset,
      options.length === undefined ? target?.byteLength : options.length,
    );
    const bytes = target ?? new Uint8Array(byteLength);
    if (byteLength > bytes.byteLength) {
      throw invalidParam('length', `must not be more than the ${bytes.byteLength} bytes of the target`, byteLength);
    }
    if (memory.bytes !== undefined) copyBytes(bytes, 0, memory.bytes, offset, byteLength);
    else await this.#move('get', bytes, memory, { byteLength, remoteOffset: offset });
    return bytes.byteLength === byteLength ? bytes : bytes.subarray(0, byteLength);
  }

  /** See MemoryHandle.fill. */
  async fill(memory: MemoryHandle, value: number, options: MemoryRange): Promise<void> {
    checkOptions(options, 'options', ['offset', 'length']);
    if (!Number.isInteger(value) || value < 0 || value > 255) throw invalidParam('value', 'must be a byte', value);
    const { offset, byteLength } = rangeOf(memory, options.offset, options.length);
    if (memory.bytes !== undefined) {
      memory.bytes.fill(value, offset, offset + byteLength);
      return;
    }
    const bytes = new Uint8Array(Math.min(byteLength, FILL_BYTES_MAX)).fill(value);
    for (let done = 0; done < byteLength; done += bytes.byteLength) {
      const part = Math.min(bytes.byteLength, byteLength - done);
      await this.#move('put', bytes, memory, { byteLength: part, remoteOffset: offset + done });
    }
  }

  /** See MemoryHandle.copyTo. */
  async copy(memory: MemoryHandle, other: MemoryHandle, start: number, options: MemoryRange): Promise<void> {
    checkOptions(options, 'options', ['offset', 'length']);
    const { offset, byteLength } = rangeOf(memory, options.offset, options.length);
    const target = rangeOf(other, start, byteLength, 'targetOffset');
    if (memory.bytes !== undefined && other.bytes !== undefined) {
      copyBytes(other.bytes, target.offset, memory.bytes, offset, byteLength);
    } else if (other.bytes === undefined) {
      await this.#move('put', memory, other, { localOffset: offset, byteLength, remoteOffset: target.offset });
    } else {
      await this.#move('get', other, memory, { localOffset: target.offset, byteLength, remoteOffset: offset });
    }
  }

  async #move(name: 'put' | 'get', local: LocalMemory, remote: MemoryHandle, options: TransferOptions): Promise<void> {
    const endpoint = this.#toItself();
    const rkey: RemoteKey = endpoint.unpackRkey(this.#context.packOwnRkey(remote));
    try {
      await endpoint[name](local, rkey, options);
    } finally {
      rkey.release();
    }
  }

  /** Created at the first use, and closed with the context. */
  #toItself(): Endpoint {
    if (this.#endpoint === undefined) {
      const worker = this.#context.worker();
      this.#endpoint = worker.endpoint(worker.address());
    }
    return this.#endpoint;
  }
}

/**
 * A range of mapped memory.
 * @param length default: all from `offset` on
 * @throws UcxError ERR_INVALID_PARAM; ERR_CLOSED for unmapped memory
 */
function rangeOf(memory: MemoryHandle, offset = 0, length?: number, name = 'offset'): Range {
  if (!memory.mapped) throw closedError('memory handle');
  const end = memory.byteLength;
  if (!Number.isSafeInteger(offset) || offset < 0 || offset > end) {
    throw invalidParam(name, `must be an integer from 0 to the ${end} bytes of the memory`, offset);
  }
  const byteLength = length === undefined ? end - offset : length;
  if (!Number.isSafeInteger(byteLength) || byteLength < 0 || offset + byteLength > end) {
    throw invalidParam('length', `must be an integer of at most ${end - offset}, the bytes from there on`, byteLength);
  }
  if (memory.bytes !== undefined && memory.bytes.byteLength !== end) {
    throw invalidParam('memory', 'must keep the length it was mapped with: its ArrayBuffer was detached', end);
  }
  return { offset, byteLength };
}
