/**
 * Properties of an ioctl for its transfer from another process: kind, number of words, whether it blocks, takes or returns
 * a file descriptor, or pins memory. Its execution is not here.
 */

import { PAGE_SIZE } from '../../../sys/index.ts';
import {
  DRM_COMMAND_BASE,
  DRM_IOCTL_TYPE,
  HABANALABS_IOCTL_TYPE,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
} from '../../../uapi/index.ts';
import { readNumber } from './words.ts';

const MEMORY_IN = HL_MEM_ARGS.in.words;
const INFO = HL_INFO_ARGS.words;
const WAIT = HL_WAIT_CS_ARGS.in.words;
const WAIT_WORDS: number = HL_WAIT_CS_ARGS.size / 4;

/** Ioctls with special handling, by their index in both families. */
export const IoctlKind = { INFO: 0, WAIT_CS: 3, MEMORY: 4, OTHER: -1 } as const;

/** Transfer of a descriptor with an ioctl. */
export const DescriptorUse = { NONE: 0, TAKES: 1, GIVES: 2 } as const;
export type DescriptorUse = (typeof DescriptorUse)[keyof typeof DescriptorUse];

/** The index of a request in its family, see {@link IoctlKind}; OTHER for none. */
export function ioctlKind(request: number): number {
  const number = request & 0xff;
  const type = (request >>> 8) & 0xff;
  if (type === DRM_IOCTL_TYPE) return number - DRM_COMMAND_BASE;
  return type === HABANALABS_IOCTL_TYPE ? number - 1 : IoctlKind.OTHER;
}

/** Number of argument words encoded in a request number. */
export function argumentWords(request: number): number {
  return (((request >>> 16) & 0x3fff) + 3) >>> 2;
}

/** Whether the ioctl takes or returns a descriptor. */
export function descriptorUse(kind: number, words: ArrayLike<number>, count: number): DescriptorUse {
  if (kind === IoctlKind.MEMORY) {
    const op = MEMORY_IN.op < count ? words[MEMORY_IN.op] : undefined;
    if (op === HL_MEM_OP.EXPORT_DMABUF_FD) return DescriptorUse.GIVES;
    return op === HL_MEM_OP.REG_DMABUF_FD ? DescriptorUse.TAKES : DescriptorUse.NONE;
  }
  const registers = kind === IoctlKind.INFO && INFO.op < count && words[INFO.op] === HL_INFO_OP.REGISTER_EVENTFD;
  return registers ? DescriptorUse.TAKES : DescriptorUse.NONE;
}

/** The word of the descriptor that an ioctl takes. */
export function takenWord(kind: number): number {
  return kind === IoctlKind.MEMORY ? MEMORY_IN.reg_dmabuf_fd_fd : INFO.eventfd;
}

/** The word in which an export returns its descriptor, and that of its flags. */
export const GIVEN_WORD: number = HL_MEM_ARGS.out.words.fd;
export const EXPORT_FLAGS_WORD: number = MEMORY_IN.flags;

/** Whether the ioctl pins memory of the caller. */
export function pinsMemory(kind: number, words: Uint32Array): boolean {
  return (
    kind === IoctlKind.MEMORY &&
    words.length > MEMORY_IN.op &&
    words[MEMORY_IN.op] === HL_MEM_OP.MAP &&
    (words[MEMORY_IN.flags]! & HL_MEM.USERPTR) !== 0
  );
}

/** The pages to pin, rounded as the driver does. */
export function pinnedPages(words: Uint32Array): { readonly address: number; readonly byteLength: number } {
  const first = readNumber(words, MEMORY_IN.map_host_host_virt_addr);
  const address = first - (first % PAGE_SIZE);
  const end = Math.ceil((first + readNumber(words, MEMORY_IN.map_host_mem_size)) / PAGE_SIZE) * PAGE_SIZE;
  return { address, byteLength: end - address };
}

/** Whether a wait has fewer words than its arguments, whatever its request number: the time it blocks could not be bounded. */
export function isShortWait(kind: number, count: number): boolean {
  return kind === IoctlKind.WAIT_CS && count < WAIT_WORDS;
}

/** Whether the ioctl may block: a wait with a time-out. */
export function mayBlock(kind: number, words: Uint32Array): boolean {
  if (kind !== IoctlKind.WAIT_CS) return false;
  const isInterrupt = (words[WAIT.flags]! & HL_WAIT_CS_FLAGS.INTERRUPT) !== 0;
  const at = isInterrupt ? WAIT.interrupt_timeout_us : WAIT.timeout_us;
  return words[at] !== 0 || words[at + 1] !== 0;
}
