/** The MEMORY ioctl: decodes the arguments and calls the tables of the context. */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno, forgetDescriptor } from '../../../sys/index.ts';
import {
  HandleType,
  HL_DEVICE_STATUS,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  TS_MAX_ELEMENTS_NUM,
} from '../../../uapi/index.ts';
import { clearWords, readNumber, readU64, writeU64 } from '../base/numbers.ts';
import type { Context } from './context.ts';

const IN = HL_MEM_ARGS.in.words;
const OUT = HL_MEM_ARGS.out.words;
const ARGS_WORDS: number = HL_MEM_ARGS.size / 4;
const TIMESTAMP_BYTES = 8;

type Operation = (context: Context, words: Uint32Array) => number;

const OPERATIONS: ReadonlyMap<number, Operation> = new Map<number, Operation>([
  [HL_MEM_OP.ALLOC, allocate],
  [HL_MEM_OP.FREE, free],
  [HL_MEM_OP.MAP, map],
  [HL_MEM_OP.UNMAP, unmap],
  [HL_MEM_OP.MAP_BLOCK, mapBlock],
  [HL_MEM_OP.EXPORT_DMABUF_FD, exportDmabuf],
  [HL_MEM_OP.TS_ALLOC, allocateTimestamps],
  [HL_MEM_OP.REG_DMABUF_FD, registerDmabuf],
]);

/** Some operations clear their arguments, others only write their results (hl_mem_ioctl, Linux 6.12). */
export function memoryIoctl(context: Context, block: ArgumentBlock): number {
  if (context.card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;
  const operation = OPERATIONS.get(block.words[IN.op]!);
  return operation === undefined ? -Errno.EINVAL : operation(context, block.words);
}

function allocate(context: Context, words: Uint32Array): number {
  const byteLength = readNumber(words, IN.alloc_mem_size);
  if (byteLength === 0) return -Errno.EINVAL;
  const { pageSize, pageSizes } = context.card.profile.dram;
  const chosen = pageSizes.length === 0 ? 0 : readNumber(words, IN.alloc_page_size);
  const isValid = chosen === 0 || pageSizes.includes(BigInt(chosen));
  const pageBytes = chosen === 0 ? Number(pageSize) : chosen;
  const handle = isValid ? context.deviceMemory.allocate(byteLength, pageBytes, words[IN.flags]!) : -Errno.EINVAL;
  clearWords(words, ARGS_WORDS);
  if (handle < 0) return handle;
  words[OUT.handle] = handle;
  context.card.config.onAllocation?.();
  return 0;
}

function free(context: Context, words: Uint32Array): number {
  return 0 - context.deviceMemory.free(words[IN.free_handle]!, readNumber(words, IN.alloc_mem_size));
}

function map(context: Context, words: Uint32Array): number {
  const flags = words[IN.flags]!;
  const mapped =
    (flags & HL_MEM.USERPTR) === 0
      ? context.deviceMemory.map(words[IN.map_device_handle]!, readU64(words, IN.map_device_hint_addr), flags)
      : context.hostMappings.map(
          readNumber(words, IN.map_host_host_virt_addr),
          readNumber(words, IN.map_host_mem_size),
          readU64(words, IN.map_host_hint_addr),
          flags,
        );
  return writeAddress(words, mapped);
}

function unmap(context: Context, words: Uint32Array): number {
  const address = readU64(words, IN.unmap_device_virt_addr);
  if (context.hostMappings.unmap(address) || context.imports.unmap(address)) return 0;
  return 0 - (context.deviceMemory.unmap(address) ?? Errno.EINVAL);
}

function mapBlock(context: Context, words: Uint32Array): number {
  const found = context.blocks.find(readU64(words, IN.map_block_block_addr));
  const isFound = typeof found !== 'number';
  writeU64(words, OUT.block_handle, isFound ? found.handle : 0n);
  words[OUT.block_size] = isFound ? found.byteLength : 0;
  return isFound ? 0 : -found;
}

function exportDmabuf(context: Context, words: Uint32Array): number {
  const fd = context.deviceMemory.exportDmabuf({
    address: readU64(words, IN.export_dmabuf_fd_addr),
    byteLength: readU64(words, IN.export_dmabuf_fd_mem_size),
    offset: readU64(words, IN.export_dmabuf_fd_offset),
    flags: words[IN.flags]!,
  });
  clearWords(words, ARGS_WORDS);
  if (fd < 0) {
    words[OUT.fd] = -Errno.EBADF;
    return fd;
  }
  // Like a descriptor from the kernel, it belongs to the program now.
  forgetDescriptor(fd);
  words[OUT.fd] = fd;
  return 0;
}

function allocateTimestamps(context: Context, words: Uint32Array): number {
  const count = words[IN.num_of_elements]!;
  if (count > TS_MAX_ELEMENTS_NUM) return -Errno.EINVAL;
  // vmalloc_user of 0 bytes fails.
  if (count === 0) return -Errno.ENOMEM;
  const buffer = context.buffers.create(HandleType.TS, count * TIMESTAMP_BYTES);
  if (typeof buffer === 'number') return -buffer;
  writeU64(words, OUT.handle, buffer.handle);
  return 0;
}

function registerDmabuf(context: Context, words: Uint32Array): number {
  if (!context.card.config.importDmabuf) return -Errno.EINVAL;
  const mapped = context.imports.map(words[IN.reg_dmabuf_fd_fd]! | 0, readNumber(words, IN.reg_dmabuf_fd_length));
  return writeAddress(words, mapped);
}

/** Writes the result of a mapping: the device address, or 0 and an errno. */
function writeAddress(words: Uint32Array, mapped: bigint | number): number {
  clearWords(words, ARGS_WORDS);
  if (typeof mapped === 'number') return -mapped;
  writeU64(words, OUT.device_virt_addr, mapped);
  return 0;
}
