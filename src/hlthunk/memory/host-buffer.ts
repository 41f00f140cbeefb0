/** Host memory with a fixed address, for programs that pass addresses to a card (hlthunk_malloc, hlthunk_free). */

import { isSyscallError, type MappedMemory, mapAnonymous, VIEW_LENGTH_MAX } from '../../sys/index.ts';
import { checkLength, GaudiErrorCode, gaudiError, invalidArgument, ioctlError } from '../base/gaudi-error.ts';
import { isPinned } from './host-memory.ts';

/** Host memory outside the JavaScript heap, initially zero. Made by {@link malloc}, owned by the program until {@link free}. */
export class HostBuffer implements Disposable {
  /** Host virtual address of the first byte; page aligned, below 2^47. */
  readonly address: number;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The memory. Reads as zeros after the buffer was freed. */
  readonly bytes: Uint8Array;
  readonly #memory: MappedMemory;

  constructor(memory: MappedMemory) {
    this.address = memory.address;
    this.byteLength = memory.byteLength;
    this.bytes = memory.u8;
    this.#memory = memory;
  }

  /** Whether a value is a host buffer made by this class, not an object that imitates one. */
  static isGenuine(value: unknown): value is HostBuffer {
    return typeof value === 'object' && value !== null && #memory in value;
  }

  /** True after `free`. */
  get freed(): boolean {
    return this.#memory.closed;
  }

  /**
   * Frees the memory. Idempotent.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY while part of it is mapped into an open card, which could still write to it
   */
  free(): void {
    if (this.freed) return;
    if (isPinned(this.address, this.byteLength)) {
      const address = `0x${this.address.toString(16)}`;
      const message = `free: the host buffer at ${address} is mapped into a card: unmap it first, or close the card`;
      throw gaudiError(GaudiErrorCode.DEVICE_BUSY, message, { address });
    }
    this.#memory.close();
  }

  /** Like {@link free}. */
  [Symbol.dispose](): void {
    this.free();
  }
}

/**
 * Allocates host memory: whole pages with a fixed address (hlthunk_malloc).
 * @param byteLength 1 to 2^32 bytes
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS; ERR_GAUDI_OUT_OF_MEMORY
 */
export function malloc(byteLength: number): HostBuffer {
  checkLength('byteLength', byteLength);
  if (byteLength > VIEW_LENGTH_MAX)
    throw invalidArgument('byteLength', `must be at most ${VIEW_LENGTH_MAX}`, byteLength);
  try {
    return new HostBuffer(mapAnonymous(byteLength));
  } catch (error) {
    if (isSyscallError(error)) throw ioctlError(-error.errno, `malloc of ${byteLength} bytes`, { byteLength }, error);
    throw error;
  }
}

/** Frees host memory (hlthunk_free): see {@link HostBuffer.free}. */
export function free(buffer: HostBuffer): void {
  if (!HostBuffer.isGenuine(buffer)) throw invalidArgument('buffer', 'must be a result of malloc', buffer);
  buffer.free();
}
