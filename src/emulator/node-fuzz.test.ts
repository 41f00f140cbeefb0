import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { isMapped, mapAnonymous, PAGE_SIZE } from '../sys/index.ts';
import type { AsicName, IoctlName } from '../uapi/index.ts';
import { createEmulatedNode } from './index.ts';

const IOCTLS: readonly IoctlName[] = ['INFO', 'CB', 'CS', 'WAIT_CS', 'MEMORY', 'DEBUG'];
/** Words for arguments: small numbers, handles, flags, wrong addresses. Valid addresses come from 'memory'. */
const WORD = fc.oneof(
  fc.integer({ min: 0, max: 48 }),
  fc.constantFrom(0x1000, 0x2000, 0x10000000, 0x80000000, 0xffff_ffff, 0x20000000, 0x1001, 0xfff0_0000),
  fc.constant('memory' as const),
);

/** Ioctls with arguments of 16 words; pairs of words may be the address of existing memory. */
const CALL = fc.record({
  ioctl: fc.constantFrom(...IOCTLS),
  words: fc.array(WORD, { minLength: 8, maxLength: 8 }),
  tail: fc.array(fc.integer({ min: 0, max: 64 }), { minLength: 8, maxLength: 8 }),
});

/** Below `vm.mmap_min_addr`: never mapped. */
const UNMAPPED = 0x1000;
/** Pages of the longest answer that the driver writes. */
const ANSWER_PAGES = 16;

/**
 * Whether an answer at this address would overwrite memory of the test process. Its heap (brk) begins anywhere in the first GiB, because Node.js is linked
 * to a fixed address: such an answer ends the process with "free(): invalid next size" at any time later.
 */
function isOfThisProcess(word: number): boolean {
  return Array.from({ length: ANSWER_PAGES }).some((_, page) => isMapped(word + page * PAGE_SIZE, 1));
}

describe('an ioctl with any arguments', () => {
  for (const asic of ['gaudi', 'gaudi2', 'gaudi3'] as const satisfies readonly AsicName[]) {
    it(`returns 0 or an errno and throws nothing (${asic})`, () => {
      fc.assert(
        fc.property(fc.array(CALL, { minLength: 1, maxLength: 30 }), (calls) => {
          const node = createEmulatedNode({ asic, cards: 1, dmaThreads: 0 });
          const memory = mapAnonymous(65536);
          const client = new DriverClient(node.open(0));
          for (const { ioctl, words, tail } of calls) {
            const values = words.flatMap((word) =>
              word === 'memory'
                ? [memory.address % 2 ** 32, Math.floor(memory.address / 2 ** 32)]
                : [isOfThisProcess(word) ? UNMAPPED : word, 0],
            );
            client.block.words.fill(0, 0, 32);
            client.block.words.set(values.slice(0, 6));
            client.block.words.set(tail, 6);
            if (ioctl === 'WAIT_CS') client.block.words.fill(0, 2, 4);
            if (ioctl === 'WAIT_CS') client.block.words.fill(0, 6, 8);
            const result = client.file.ioctl(client.file.numbers[ioctl], client.block);
            expect(Number.isInteger(result) && result <= 0 && result > -4096).toBe(true);
          }
          client.close();
          memory.close();
          node.close();
        }),
        { numRuns: 60 },
      );
    });
  }
});
