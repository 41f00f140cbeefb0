/** The choice of algorithms by estimates: by size, number of ranks and topology, and its explanation. */

import { describe, expect, it } from 'vitest';
import { checkAlgorithm, chooseAlgorithm, explainCollective } from './choice.ts';
import { COLLECTIVES, type Collective, type CostModel, HOST_COSTS, shapeOf } from './problem.ts';

const COSTS: CostModel = {
  within: { latencyNs: 3000, nsPerByte: 0.1 },
  between: { latencyNs: 20_000, nsPerByte: 1 },
  ...HOST_COSTS,
};

const nodesOf = (size: number, count: number): number[][] =>
  Array.from({ length: count }, (_, node) =>
    Array.from({ length: size }, (_unused, rank) => rank).filter((rank) => rank % count === node),
  );
const placesOf = (size: number, count = 1): { rank: number; size: number; nodes: number[][] } => ({
  rank: 0,
  size,
  nodes: nodesOf(size, count),
});
const chosen = (collective: Collective, size: number, bytes: number, nodes = 1): string =>
  chooseAlgorithm(collective, shapeOf(placesOf(size, nodes), bytes, true), COSTS).name;

describe('the algorithm', () => {
  it('of long vectors sends less, of short ones has fewer rounds', () => {
    expect(chosen('allReduce', 8, 64)).toBe('recursive doubling');
    expect(chosen('allReduce', 8, 64 * 2 ** 20)).toBe('ring');
    expect(chosen('broadcast', 8, 64)).toBe('binomial');
    expect(chosen('broadcast', 8, 64 * 2 ** 20)).toBe('scatter and ring');
    expect(chosen('allToAll', 8, 8)).toBe('bruck');
    expect(chosen('allToAll', 8, 2 ** 20)).toBe('pairwise');
    expect(chosen('allGather', 7, 8)).toBe('bruck');
    expect(chosen('allGather', 7, 2 ** 20)).toBe('direct');
    expect(chosen('gather', 9, 8)).toBe('binomial');
    expect(chosen('gather', 9, 2 ** 20)).toBe('linear');
  });

  it('between nodes has two levels, or one flow on each connection', () => {
    expect(chosen('allReduce', 16, 64 * 2 ** 20, 2)).toBe('two-level');
    expect(chosen('broadcast', 16, 4096, 4)).toBe('two-level');
    expect(chosen('allGather', 16, 2 ** 20, 2)).toBe('ring');
  });

  it('that is named is used if it fits', () => {
    const shape = shapeOf(placesOf(6), 64, true);
    expect(chooseAlgorithm('allGather', shape, COSTS, 'ring').name).toBe('ring');
    expect(chooseAlgorithm('allGather', shape, COSTS, 'recursive doubling').name).not.toBe('recursive doubling');
    expect(() => checkAlgorithm('allGather', 'pairwise')).toThrow(/must be one of direct, ring/);
  });

  it('is the same on all ranks', () => {
    for (const collective of COLLECTIVES) {
      for (let bytes = 1; bytes < 2 ** 30; bytes *= 8) {
        const names = [0, 3, 5].map((rank) => {
          const places = { ...placesOf(6, 2), rank };
          return chooseAlgorithm(collective, shapeOf(places, bytes, true), COSTS).name;
        });
        expect(new Set(names).size).toBe(1);
      }
    }
  });
});

describe('the explanation', () => {
  it('has ranges without gaps, the choice for each size, and a reason for every other algorithm', () => {
    for (const collective of COLLECTIVES) {
      const explanation = explainCollective(collective, placesOf(6, 2), COSTS);
      let next = 1;
      for (const { bytesMin, bytesMax, algorithm } of explanation.chosen) {
        expect(bytesMin).toBe(next);
        for (const bytes of [bytesMin, Math.min(bytesMax, 2 ** 39)]) {
          const { at } = explanation;
          const [best, ...others] = at(bytes);
          expect(best).toMatchObject({ algorithm, reason: undefined });
          for (const { reason } of others) expect(reason).toMatch(/slower by estimate|ranks|node|length/);
        }
        next = bytesMax + 1;
      }
      expect(next).toBe(Number.POSITIVE_INFINITY);
      expect(String(explanation)).toContain(`${collective}: 6 ranks on 2 nodes`);
    }
  });
});
