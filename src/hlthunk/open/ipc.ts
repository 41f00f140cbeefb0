/**
 * Handles of device memory for other processes: a dma-buf, sent by SCM_RIGHTS, and bytes with the location of the memory in it. Callers send both to the other
 * process.
 *
 * hl-thunk does not have such calls: they are built from the export and the import of dma-bufs.
 */

import { dup, isSyscallError } from '../../sys/index.ts';
import { busIdOf, busNumberOf } from '../../ucs/sys/topology.ts';
import type { CardFile } from '../base/card-file.ts';
import { checkLength, checkObject, checkWord64, invalidArgument, ioctlError } from '../base/gaudi-error.ts';
import { type Arena, DeviceBlock } from '../memory/arena.ts';
import { DmaMemory, foreignName } from '../memory/dma-memory.ts';
import { checkFd, exportArenaOf, ImportedMapping } from '../memory/dmabuf.ts';
import { checkDevice, type Device } from './device.ts';

/** Size of a handle in bytes. */
export const IPC_HANDLE_BYTES = 40;

const VERSION = 1;
const AT_VERSION = 0;
const AT_DEVICE = 4;
const AT_OFFSET = 8;
const AT_LENGTH = 16;
const AT_GENERATION = 24;
const AT_ARENA_LENGTH = 32;

/** A range of device memory that another process can open. */
export interface IpcHandle {
  /** Descriptor of the dma-buf; the caller owns and closes it. */
  readonly fd: number;
  /** {@link IPC_HANDLE_BYTES} bytes: the offset of the memory in the dma-buf, its length, its card and arena. */
  readonly handle: Uint8Array;
}

/** The contents of a handle. */
export interface IpcHandleInfo {
  /** PCI address of the card that has the memory, such as `0000:3b:00.0`. */
  readonly busId: string;
  /** Offset of the memory in the dma-buf, in bytes. */
  readonly offset: number;
  /** Length of the memory in bytes. */
  readonly byteLength: number;
  /** Number of the arena in the process that made the handle; memory that is allocated later has another number. */
  readonly generation: number;
  /** Length of the arena, and of the dma-buf, in bytes. */
  readonly arenaBytes: number;
}

/** A range of device addresses. */
export interface IpcRange {
  readonly address: bigint;
  readonly byteLength: number;
}

/**
 * Makes a handle of a block, or of a range inside one. A process that opens it has access to the whole arena of the block: memory for an untrusted process
 * needs `dedicated`.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a freed block, a block of another card, or a range that is not inside a block; ERR_GAUDI_OUT_OF_MEMORY without
 *   free descriptors
 */
export function ipcWrapHandle(device: Device, memory: DeviceBlock | IpcRange): IpcHandle {
  checkDevice(device);
  checkObject('memory', memory);
  if (memory instanceof DeviceBlock) return wrap(device, memory, memory.offset, memory.byteLength);
  checkWord64('address', memory.address);
  checkLength('byteLength', memory.byteLength);
  const block = device.memory.find(memory.address);
  const skip = block === undefined ? 0 : Number(memory.address - block.address);
  if (block === undefined || memory.byteLength > block.byteLength - skip) {
    throw invalidArgument('address', `must be the start of ${memory.byteLength} bytes in one block`, memory.address);
  }
  return wrap(device, block, block.offset + skip, memory.byteLength);
}

/**
 * Makes a handle of the whole arena of a block: one import serves every block in it.
 * @throws like {@link ipcWrapHandle}
 */
export function ipcWrapArena(device: Device, block: DeviceBlock): IpcHandle {
  checkDevice(device);
  checkBlock(device, block);
  return wrap(device, block, 0, block.arena.byteLength);
}

/**
 * Makes a handle of imported memory, for the whole mapped range. A process that opens it accesses the memory directly, as this card does, not through this
 * card.
 * @param fd a descriptor of the imported dma-buf; the caller keeps it
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for an import of another card or one that has ended, and for a closed descriptor; ERR_GAUDI_OUT_OF_MEMORY without
 *   free descriptors
 */
export function ipcWrapImport(device: Device, mapping: ImportedMapping, fd: number): IpcHandle {
  checkDevice(device);
  const { card, busId } = device;
  if (!DmaMemory.isGenuine(mapping) || !(mapping instanceof ImportedMapping) || mapping.card !== card) {
    throw invalidArgument('mapping', `must be an import of ${card.name}`, foreignName(mapping));
  }
  if (!mapping.live) throw invalidArgument('mapping', 'has been unmapped', mapping.address);
  const byteLength = Number(mapping.address - mapping.baseAddress) + mapping.byteLength;
  const handle = encode(busId, { generation: mapping.generation, byteLength }, 0, byteLength);
  const copy = descriptor(() => dup(checkFd(fd)), 'ipcWrapImport');
  card.dmabufs.exported(
    byteLength,
    `${byteLength} bytes of the import ${mapping.generation} of ${card.name}, fd ${copy}`,
  );
  return wrapped(card, { fd: copy, handle });
}

/**
 * Maps the memory of a handle into the address space of a card, for transfers. The descriptor may be closed
 * afterwards.
 * @param fd the dma-buf received with the handle
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for an invalid handle, a descriptor that is not a dma-buf of a card of this node or too
 * short for the handle, and if the driver cannot import; ERR_GAUDI_OUT_OF_MEMORY
 */
export function ipcOpenHandle(device: Device, fd: number, handle: Uint8Array): ImportedMapping {
  checkDevice(device);
  const info = ipcInspectHandle(handle);
  const mapping = device.registerDmabufFd(fd, info.byteLength, info.offset);
  const { dmabufs, name } = device.card;
  dmabufs.note(`IPC handle opened: ${describe(info)}, at 0x${mapping.address.toString(16)} of ${name}`);
  return mapping;
}

/**
 * Decodes a handle without opening it. Its contents are claims of the process that made it; the driver checks them when the handle is opened.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for bytes that are not a handle
 */
export function ipcInspectHandle(handle: Uint8Array): IpcHandleInfo {
  if (!(handle instanceof Uint8Array) || handle.byteLength !== IPC_HANDLE_BYTES) {
    throw invalidArgument('handle', `must be ${IPC_HANDLE_BYTES} bytes of ipcWrapHandle`, handle);
  }
  const view = new DataView(handle.buffer, handle.byteOffset, IPC_HANDLE_BYTES);
  const version = view.getUint32(AT_VERSION, true);
  if (version !== VERSION) throw invalidArgument('handle', `must be of version ${VERSION}`, version);
  const offset = Number(view.getBigUint64(AT_OFFSET, true));
  const byteLength = Number(view.getBigUint64(AT_LENGTH, true));
  const arenaBytes = Number(view.getBigUint64(AT_ARENA_LENGTH, true));
  if (byteLength === 0 || !Number.isSafeInteger(arenaBytes) || offset + byteLength > arenaBytes) {
    throw invalidArgument(
      'handle',
      `must describe a range inside its arena of ${arenaBytes} bytes`,
      `offset ${offset} and length ${byteLength}`,
    );
  }
  const generation = Number(view.getBigUint64(AT_GENERATION, true));
  return { busId: busIdOf(view.getUint32(AT_DEVICE, true)), offset, byteLength, generation, arenaBytes };
}

function describe({ busId, offset, byteLength, generation, arenaBytes }: IpcHandleInfo): string {
  return `${byteLength} bytes at offset ${offset} of arena ${generation} (${arenaBytes} bytes) of the card at ${busId}`;
}

/**
 * Closes a mapping of {@link ipcOpenHandle}.
 * @throws UcxError ERR_GAUDI_DEVICE_BUSY while a transfer uses it; ERR_GAUDI_INVALID_PARAMS the second time
 */
export function ipcCloseHandle(mapping: ImportedMapping): void {
  if (!DmaMemory.isGenuine(mapping) || !(mapping instanceof ImportedMapping)) {
    throw invalidArgument('mapping', 'must be a result of ipcOpenHandle', mapping);
  }
  const { card, address } = mapping;
  mapping.unmap();
  card.dmabufs.note(`IPC handle closed: 0x${address.toString(16)} of ${card.name}`);
}

function wrap(device: Device, block: DeviceBlock, offset: number, byteLength: number): IpcHandle {
  checkBlock(device, block);
  const handle = encode(device.busId, block.arena, offset, byteLength);
  return wrapped(block.card, {
    fd: descriptor(() => exportArenaOf(block, offset, byteLength), 'ipcWrapHandle'),
    handle,
  });
}

function wrapped({ dmabufs }: CardFile, made: IpcHandle): IpcHandle {
  dmabufs.note(`IPC handle wrapped: ${describe(ipcInspectHandle(made.handle))}, fd ${made.fd}`);
  return made;
}

/** Returns a new descriptor; converts an error of the kernel to one of the driver. */
function descriptor(open: () => number, what: string): number {
  try {
    return open();
  } catch (error) {
    if (isSyscallError(error)) throw ioctlError(-error.errno, `${what}: descriptor of a dma-buf`, {}, error);
    throw error;
  }
}

function checkBlock({ card }: Device, block: DeviceBlock): void {
  if (DmaMemory.isGenuine(block) && block instanceof DeviceBlock && block.card === card) return;
  throw invalidArgument('memory', `must be device memory of ${card.name}`, foreignName(block));
}

/** The arena or import behind a dma-buf, as described in a handle. */
type ArenaExtent = Pick<Arena, 'generation' | 'byteLength'>;

function encode(busId: string, arena: ArenaExtent, offset: number, byteLength: number): Uint8Array {
  const handle = new Uint8Array(IPC_HANDLE_BYTES);
  const view = new DataView(handle.buffer);
  view.setUint32(AT_VERSION, VERSION, true);
  view.setUint32(AT_DEVICE, busNumberOf(busId), true);
  view.setBigUint64(AT_OFFSET, BigInt(offset), true);
  view.setBigUint64(AT_LENGTH, BigInt(byteLength), true);
  view.setBigUint64(AT_GENERATION, BigInt(arena.generation), true);
  view.setBigUint64(AT_ARENA_LENGTH, BigInt(arena.byteLength), true);
  return handle;
}
