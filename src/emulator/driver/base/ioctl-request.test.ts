/** Properties of ioctls whose request number leaves out a part of the arguments: what lies behind it in the block changes nothing. */

import { expect, it } from 'vitest';
import {
  DRM_IOCTLS,
  HABANALABS_IOCTLS,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
} from '../../../uapi/index.ts';
import { descriptorUse, givenWords, mayBlock, pinsMemory } from './ioctl-request.ts';

const WAIT = HL_WAIT_CS_ARGS.in.words;
const MEMORY = HL_MEM_ARGS.in.words;
const SIZE_SHIFT = 16;
const SIZE_MASK = 0x3fff << SIZE_SHIFT;
const WORDS = 32;

/** The request number with another size. */
const sized = (request: number, bytes: number): number => (request & ~SIZE_MASK) | (bytes << SIZE_SHIFT);

function block(values: Readonly<Record<number, number>>): Uint32Array {
  const words = new Uint32Array(WORDS);
  for (const [at, value] of Object.entries(values)) words[Number(at)] = value;
  return words;
}

const BLOCKS = {
  WAIT_CS: [
    { [WAIT.timeout_us]: 1 },
    { [WAIT.timeout_us + 1]: 1 },
    { [WAIT.timeout_us]: 1, [WAIT.flags]: HL_WAIT_CS_FLAGS.INTERRUPT },
    { [WAIT.flags]: HL_WAIT_CS_FLAGS.INTERRUPT, [WAIT.interrupt_timeout_us]: 1 },
  ],
  MEMORY: [
    { [MEMORY.op]: HL_MEM_OP.MAP, [MEMORY.flags]: HL_MEM.USERPTR },
    { [MEMORY.op]: HL_MEM_OP.EXPORT_DMABUF_FD },
    { [MEMORY.op]: HL_MEM_OP.REG_DMABUF_FD },
  ],
  INFO: [{ [HL_INFO_ARGS.words.op]: HL_INFO_OP.REGISTER_EVENTFD }],
} as const;

it.each([DRM_IOCTLS, HABANALABS_IOCTLS])('are those of the arguments with zeros in place of the rest', (numbers) => {
  for (const name of ['WAIT_CS', 'MEMORY', 'INFO'] as const) {
    for (const values of BLOCKS[name]) {
      for (let bytes = 0; bytes <= WORDS * 4; bytes += 4) {
        const request = sized(numbers[name], bytes);
        const words = block(values);
        const extended = words.slice().fill(0, givenWords(request));
        for (const property of [descriptorUse, mayBlock, pinsMemory])
          expect([name, bytes, property(request, words)]).toEqual([name, bytes, property(request, extended)]);
      }
    }
  }
});

it('a wait whose flags are left out waits for its submission, also if those behind it are of an interrupt', () => {
  const words = block({ [WAIT.timeout_us]: 1, [WAIT.flags]: HL_WAIT_CS_FLAGS.INTERRUPT });
  expect(mayBlock(DRM_IOCTLS.WAIT_CS, words)).toBe(false);
  expect(mayBlock(sized(DRM_IOCTLS.WAIT_CS, WAIT.flags * 4), words)).toBe(true);
});
