/**
 * Kernel command buffers of hl-thunk: driver memory that a program fills with packets and names in a submission. Gaudi copies them at submission. Gaudi2
 * executes only buffers in the card's address space: request them with `mapped`, and submit their `deviceAddress`.
 */

import type { DriverMapping } from '../../driver/port.ts';
import { HL_CB_FLAGS, HL_CB_OP, HL_MAX_CB_SIZE } from '../../uapi/index.ts';
import { type CardFile, type CardTarget, cardOf } from '../base/card-file.ts';
import { checkFlag, checkObject, invalidArgument } from '../base/gaudi-error.ts';

/** Options of a command buffer. */
export interface CommandBufferOptions {
  /** Map it to a device address; gaudi rejects this with ERR_GAUDI_OUT_OF_MEMORY. Default false. */
  readonly mapped?: boolean | undefined;
}

interface DriverBuffer {
  readonly handle: bigint;
  readonly byteLength: number;
  /** Its device address; undefined for one that is not mapped into the card. */
  readonly address: bigint | undefined;
}

/** A command buffer. Made by {@link requestCommandBuffer}. */
export class CommandBuffer implements Disposable {
  /** The open file of the card. */
  readonly card: CardFile;
  /** Handle that chunks use for kernel command buffers. */
  readonly handle: bigint;
  /** Requested size in bytes. */
  readonly byteLength: number;
  /** Device address; undefined unless requested with `mapped`. */
  readonly deviceAddress: bigint | undefined;
  /** The buffer in whole pages, initially zero. */
  readonly words: Uint32Array;
  readonly #mapping: DriverMapping;
  #destroyed = false;

  constructor(card: CardFile, { handle, byteLength, address }: DriverBuffer, mapping: DriverMapping) {
    this.card = card;
    this.handle = handle;
    this.byteLength = byteLength;
    this.deviceAddress = address;
    this.words = new Uint32Array(mapping.buffer);
    this.#mapping = mapping;
  }

  /** Whether a value is a command buffer made by this class, not an object that imitates one. */
  static isGenuine(value: unknown): value is CommandBuffer {
    return typeof value === 'object' && value !== null && #destroyed in value;
  }

  /** True after `destroyCommandBuffer`. */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  /** Number of command submissions that use the buffer at present. */
  get usageCount(): number {
    return this.card.commandBuffer({ cb_handle: this.handle, op: HL_CB_OP.INFO }, 'command buffer info').usage_cnt;
  }

  /** Releases the buffer; submissions that use it keep it until they are complete. Idempotent, never fails. */
  destroy(): void {
    if (this.#destroyed) return;
    this.#destroyed = true;
    if (this.card.closed) return;
    this.card.unmap(this.#mapping);
    this.card.tryCommandBuffer({ cb_handle: this.handle, op: HL_CB_OP.DESTROY });
  }

  [Symbol.dispose](): void {
    this.destroy();
  }
}

/**
 * Creates a command buffer and maps it into this process (CB CREATE and mmap).
 * @param byteLength 1 to 2 MiB - 32
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS; ERR_GAUDI_OUT_OF_MEMORY; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function requestCommandBuffer(
  target: CardTarget,
  byteLength: number,
  options: CommandBufferOptions = {},
): CommandBuffer {
  if (!Number.isInteger(byteLength) || byteLength <= 0 || byteLength > HL_MAX_CB_SIZE) {
    throw invalidArgument('byteLength', `must be an integer from 1 to ${HL_MAX_CB_SIZE}`, byteLength);
  }
  checkObject('options', options, ['mapped']);
  checkFlag('mapped', options.mapped);
  const card = cardOf(target);
  const mapped = options.mapped === true;
  const what = `requestCommandBuffer of ${byteLength} bytes`;
  const input = { op: HL_CB_OP.CREATE, cb_size: byteLength, flags: mapped ? HL_CB_FLAGS.MAP : 0 };
  const handle = card.commandBuffer(input, what).cb_handle;
  try {
    const address = mapped ? deviceAddressOf(card, handle, what) : undefined;
    return new CommandBuffer(card, { handle, byteLength, address }, card.mmap(byteLength, handle, what));
  } catch (error) {
    card.tryCommandBuffer({ cb_handle: handle, op: HL_CB_OP.DESTROY });
    throw error;
  }
}

/** Releases a command buffer. Throws ERR_GAUDI_INVALID_PARAMS the second time. */
export function destroyCommandBuffer(buffer: CommandBuffer): void {
  if (!CommandBuffer.isGenuine(buffer))
    throw invalidArgument('buffer', 'must be a result of requestCommandBuffer', buffer);
  if (buffer.destroyed) throw invalidArgument('buffer', 'must not be destroyed twice', buffer.handle);
  buffer.destroy();
}

function deviceAddressOf(card: CardFile, handle: bigint, what: string): bigint {
  const flags = HL_CB_FLAGS.GET_DEVICE_VA;
  return card.commandBuffer({ cb_handle: handle, op: HL_CB_OP.INFO, flags }, what).device_va;
}
