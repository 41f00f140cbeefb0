import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { catches } from '../../../test/fixtures/catches.ts';
import { type Choice, type ExplainedCandidate, explainSize } from './explain.ts';

function candidate(name: string, shape: Partial<ExplainedCandidate> = {}): ExplainedCandidate {
  const base = { bytesMin: 1, bytesMax: Number.POSITIVE_INFINITY, fixedNs: 1000, perByteNs: 0.1 };
  return { transport: name, protocol: 'put/zcopy', ...base, ...shape };
}

const SHORT = candidate('a/0', { protocol: 'put/short', bytesMax: 100, fixedNs: 500, perByteNs: 1 });
const LONG = candidate('a/0');
const DEGRADED = candidate('b/0', { perByteNs: 0.3, note: '1 of 3 links up' });
const LATE = candidate('c/0', { bytesMin: 4096 });
const CHOICE: Choice = {
  candidates: [SHORT, LONG, DEGRADED, LATE],
  steps: [
    { bytesMax: 100, candidate: SHORT },
    { bytesMax: Number.POSITIVE_INFINITY, candidate: LONG },
  ],
  rejected: [{ transport: 'd', protocol: undefined, reason: 'excluded by UCX_TLS' }],
};

describe('the explanation for a size', () => {
  it('has the winner with estimate and bandwidth, and a reason for every loser', () => {
    expect(explainSize(CHOICE, 10_000)).toEqual({
      bytes: 10_000,
      winner: { transport: 'a/0', protocol: 'put/zcopy', estimatedNs: 2000, bandwidth: 5e9 },
      losers: [
        {
          transport: 'c/0',
          protocol: 'put/zcopy',
          reason: 'costs the same as an earlier candidate',
          estimatedNs: 2000,
        },
        { transport: 'b/0', protocol: 'put/zcopy', reason: 'costs 2.0 times (1 of 3 links up)', estimatedNs: 4000 },
        { transport: 'a/0', protocol: 'put/short', reason: 'supports at most 100 bytes' },
        { transport: 'd', protocol: undefined, reason: 'excluded by UCX_TLS' },
      ],
    });
  });

  it('counts in nanoseconds what is hardly more', () => {
    const close = { ...CHOICE, candidates: [LONG, candidate('e/0', { fixedNs: 1010 })] };
    expect(explainSize(close, 10_000).losers[0]!.reason).toBe('costs 10 ns more');
  });

  it('has no winner where nothing takes the size', () => {
    const only: Choice = { candidates: [LATE], steps: [{ bytesMax: 8192, candidate: LATE }], rejected: [] };
    for (const bytes of [1, 4095]) {
      const { winner, losers } = explainSize(only, bytes);
      expect(winner).toBeUndefined();
      expect(losers.map(({ reason }) => reason)).toEqual(['supports at least 4096 bytes']);
    }
    expect(explainSize(only, 4096).winner?.transport).toBe('c/0');
    expect(explainSize(only, 8193).winner).toBeUndefined();
    expect(explainSize({ candidates: [], steps: [], rejected: [] }, 1)).toEqual({
      bytes: 1,
      winner: undefined,
      losers: [],
    });
  });

  async function expectEveryCandidate(explain: typeof explainSize): Promise<void> {
    await fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 40 }), (bytes) => {
        const { winner, losers } = explain(CHOICE, bytes);
        expect(losers.length + (winner === undefined ? 0 : 1)).toBe(5);
        for (const { reason } of losers) expect(reason).not.toMatch(/NaN|undefined|Infinity/);
      }),
    );
  }

  it('names every candidate once', () => expectEveryCandidate(explainSize));

  it('is noticed if it leaves out a candidate, or has a reason with a value that does not exist', async () => {
    const forgetful: typeof explainSize = (choice, bytes) => {
      const { losers, ...rest } = explainSize(choice, bytes);
      return { ...rest, losers: losers.slice(1) };
    };
    await catches(expectEveryCandidate, forgetful, /to be 5/);
    const nonsense: typeof explainSize = (choice, bytes) => {
      const { losers, ...rest } = explainSize(choice, bytes);
      return { ...rest, losers: losers.map((loser) => ({ ...loser, reason: `costs ${Number.NaN} times` })) };
    };
    await catches(expectEveryCandidate, nonsense, /not to match/);
  });
});
