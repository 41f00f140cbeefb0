import { describe, expect, it } from 'vitest';
import { SpinBudget } from './measure.ts';

/** Polls until the budget yields, of a wait that ends `after` polls behind its first yield. */
function waits(count: number, after: number): number[] {
  let yields = 0;
  const budget = new SpinBudget(() => {
    yields += 1;
  });
  return Array.from({ length: count }, () => {
    yields = 0;
    let polls = 0;
    for (; yields === 0; polls++) budget.spend();
    for (let i = 0; i < after; i++) budget.spend();
    budget.renew();
    return polls;
  });
}

describe('a spin budget', () => {
  it('yields ever earlier where the wait ends with that', () => {
    for (const after of [0, 2]) expect(waits(8, after)).toEqual([1024, 512, 256, 128, 64, 32, 16, 16]);
  });

  it('yields ever later where it does not', () => {
    expect(waits(6, 3)).toEqual([1024, 2048, 4096, 8192, 8192, 8192]);
  });

  it('does not yield in short waits, and starts anew after each', () => {
    let yields = 0;
    const budget = new SpinBudget(() => {
      yields += 1;
    });
    for (let wait = 0; wait < 100; wait++) {
      for (let poll = 0; poll < 1023; poll++) budget.spend();
      budget.renew();
    }
    expect(yields).toBe(0);
    // One more poll than a short wait has.
    for (let poll = 0; poll < 1024; poll++) budget.spend();
    expect(yields).toBe(1);
  });
});
