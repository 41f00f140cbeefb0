/**
 * Properties of an ioctl that matter for executing it for another process: its number of words, whether it blocks, takes or returns a descriptor, or pins
 * memory.
 */

import { PAGE_SIZE } from '../../../sys/index.ts';
import {
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  IoctlIndex,
  ioctlIndex,
  ioctlSize,
} from '../../../uapi/index.ts';
import { readNumber } from './numbers.ts';

const MEMORY_IN = HL_MEM_ARGS.in.words;
const INFO = HL_INFO_ARGS.words;
const WAIT = HL_WAIT_CS_ARGS.in.words;

/** Transfer of a descriptor with an ioctl. */
export const DescriptorUse = { NONE: 0, TAKES: 1, GIVES: 2 } as const;
export type DescriptorUse = (typeof DescriptorUse)[keyof typeof DescriptorUse];

/** Number of argument words encoded in a request number. */
export function argumentWords(request: number): number {
  return (ioctlSize(request) + 3) >>> 2;
}

/** Number of whole words that the size in a request number covers; the driver reads zeros beyond them. */
export function givenWords(request: number): number {
  return ioctlSize(request) >>> 2;
}

/** An argument word as the driver sees it: 0 beyond the size of the request. */
function givenWord(request: number, words: ArrayLike<number>, at: number): number {
  return at < givenWords(request) ? (words[at] ?? 0) : 0;
}

/** Whether the ioctl takes or returns a descriptor. */
export function descriptorUse(request: number, words: ArrayLike<number>): DescriptorUse {
  const index = ioctlIndex(request);
  if (index === IoctlIndex.MEMORY) {
    const op = givenWord(request, words, MEMORY_IN.op);
    if (op === HL_MEM_OP.EXPORT_DMABUF_FD) return DescriptorUse.GIVES;
    return op === HL_MEM_OP.REG_DMABUF_FD ? DescriptorUse.TAKES : DescriptorUse.NONE;
  }
  const registers = index === IoctlIndex.INFO && givenWord(request, words, INFO.op) === HL_INFO_OP.REGISTER_EVENTFD;
  return registers ? DescriptorUse.TAKES : DescriptorUse.NONE;
}

/**
 * The word with the descriptor that an ioctl takes.
 * @param index see {@link IoctlIndex}
 */
export function takenWord(index: number): number {
  return index === IoctlIndex.MEMORY ? MEMORY_IN.reg_dmabuf_fd_fd : INFO.eventfd;
}

/** The word in which an export returns its descriptor; its flags are in the same word. */
export const GIVEN_WORD: number = HL_MEM_ARGS.out.words.fd;
export const EXPORT_FLAGS_WORD: number = MEMORY_IN.flags;

/** Whether the ioctl pins memory of the caller. */
export function pinsMemory(request: number, words: ArrayLike<number>): boolean {
  return (
    ioctlIndex(request) === IoctlIndex.MEMORY &&
    givenWord(request, words, MEMORY_IN.op) === HL_MEM_OP.MAP &&
    (givenWord(request, words, MEMORY_IN.flags) & HL_MEM.USERPTR) !== 0
  );
}

/** The pages to pin, rounded as by the driver. */
export function pinnedPages(words: Uint32Array): { readonly address: number; readonly byteLength: number } {
  const first = readNumber(words, MEMORY_IN.map_host_host_virt_addr);
  const address = first - (first % PAGE_SIZE);
  const end = Math.ceil((first + readNumber(words, MEMORY_IN.map_host_mem_size)) / PAGE_SIZE) * PAGE_SIZE;
  return { address, byteLength: end - address };
}

/** Whether the ioctl may block, as a wait with a time-out does. */
export function mayBlock(request: number, words: ArrayLike<number>): boolean {
  if (ioctlIndex(request) !== IoctlIndex.WAIT_CS) return false;
  const isInterrupt = (givenWord(request, words, WAIT.flags) & HL_WAIT_CS_FLAGS.INTERRUPT) !== 0;
  const at = isInterrupt ? WAIT.interrupt_timeout_us : WAIT.timeout_us;
  return givenWord(request, words, at) !== 0 || givenWord(request, words, at + 1) !== 0;
}
