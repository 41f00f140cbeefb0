/**
 * Arguments of an ioctl whose request number gives a smaller size than the struct of the driver: the driver has zeros in place of the rest, and the memory
 * behind that size stays as it is. Source: drm_ioctl, and _hl_ioctl of habanalabs_ioctl.c, Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import {
  HL_CB_ARGS,
  HL_CS_ARGS,
  HL_DEBUG_ARGS,
  HL_INFO_ARGS,
  HL_MEM_ARGS,
  HL_WAIT_CS_ARGS,
  IoctlIndex,
  ioctlIndex,
} from '../../../uapi/index.ts';
import { givenWords } from '../base/ioctl-request.ts';

/** Words of the arguments, by {@link IoctlIndex}. */
const STRUCT_WORDS: number[] = [];
STRUCT_WORDS[IoctlIndex.INFO] = HL_INFO_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.CB] = HL_CB_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.CS] = HL_CS_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.WAIT_CS] = HL_WAIT_CS_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.MEMORY] = HL_MEM_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.DEBUG] = HL_DEBUG_ARGS.size / 4;

/** A copy of a block with all words of the arguments. */
export class ShortArguments implements ArgumentBlock {
  readonly address: number;
  readonly words: Uint32Array;
  readonly #block: ArgumentBlock;
  readonly #given: number;
  readonly #end: number;

  /** @param given words of the block that are arguments, of `end` */
  constructor(block: ArgumentBlock, given: number, end: number) {
    this.address = block.address;
    this.words = new Uint32Array(Math.max(end, block.words.length));
    this.words.set(block.words);
    this.words.fill(0, given, end);
    this.#block = block;
    this.#given = given;
    this.#end = end;
  }

  /** Copies the result to the block. */
  writeBack(): void {
    const { words } = this.#block;
    words.set(this.words.subarray(0, this.#given));
    if (words.length > this.#end) words.set(this.words.subarray(this.#end, words.length), this.#end);
  }
}

/** The arguments of a request that gives fewer than the driver has; undefined for others, and for one that gives more than the block has. */
export function shortArguments(request: number, block: ArgumentBlock): ShortArguments | undefined {
  const end = STRUCT_WORDS[ioctlIndex(request)];
  const given = givenWords(request);
  if (end === undefined || given >= end || given > block.words.length) return undefined;
  return new ShortArguments(block, given, end);
}
