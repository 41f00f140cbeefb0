/** The path between two processes of one node: every operation, in both directions, between host memory and HBM. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../fixtures/leak-check.ts';
import type { MemoryKind } from '../fixtures/pair.ts';
import { ConnectedProcesses, DIRECTIONS, moveAll, ordered } from '../fixtures/processes/process-ends.ts';

const MEMORIES: readonly (readonly [MemoryKind, MemoryKind])[] = [
  ['bytes', 'allocated'],
  ['registered', 'gaudi'],
  ['gaudi', 'gaudi'],
];
/** One frame, several frames, and a rendezvous. */
const SIZES = [8, 9000, 530_001];

describe('two processes of one node', () => {
  expectNoLeaks();
  const processes = new ConnectedProcesses({ tls: 'all', sharesNode: true });

  it('move bytes by every operation, in both directions', async () => {
    await processes.withEnds(async (ends) => {
      for (const direction of DIRECTIONS) {
        const [from, to] = ordered(ends, direction);
        for (const memories of MEMORIES) {
          for (const byteLength of SIZES) await moveAll(from, to, memories, byteLength);
        }
      }
      for (const end of [ends.own, ends.peer]) expect((await end.tell({ do: 'failures' })).errors).toEqual([]);
    });
  });
});
