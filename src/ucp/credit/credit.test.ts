/** The arithmetic of credit, at both ends. */

import { describe, expect, it } from 'vitest';
import { createRandom } from '../../ucs/sys/random.ts';
import { lacksCredit } from '../base/message-packer.ts';
import { WorkerCounters } from '../base/observation.ts';
import { CreditBudget, InboundWindow, OFFERS_MAX, OutboundCredit, WINDOW_BYTES_MIN } from './credit.ts';

const MIB = 2 ** 20;

/** Both ends of a connection, with a message of the receiver that is on its way until it is delivered. */
function ends(budget: CreditBudget) {
  const credit = new OutboundCredit();
  const told: { returnable: number; isHeld: boolean }[] = [];
  const window: InboundWindow = new InboundWindow(budget, () => {
    told.push({ returnable: window.returnable, isHeld: window.isHeld });
    window.updateSent();
    return true;
  });
  credit.open(window.windowBytes);
  const deliver = (): void => {
    for (const { returnable, isHeld } of told.splice(0)) credit.take(returnable, window.windowBytes, isHeld);
  };
  return { credit, window, told, deliver };
}

describe('a budget', () => {
  it('gives every connection a part of what is left, and takes it back', () => {
    const budget = new CreditBudget(256 * MIB);
    const first = ends(budget).window;
    const second = ends(budget).window;
    expect([first.windowBytes, second.windowBytes]).toEqual([4 * MIB, Math.floor((4 * MIB) / (1 + 1 / 12))]);
    first.close();
    second.close();
    second.close();
    expect(budget.grantedBytes).toBe(0);
  });

  it('has a window for each of a thousand connections', () => {
    const budget = new CreditBudget(256 * MIB);
    const windows = Array.from({ length: 1000 }, () => ends(budget).window);
    expect(Math.min(...windows.map(({ windowBytes }) => windowBytes))).toBeGreaterThan(WINDOW_BYTES_MIN);
  });

  it('is never exceeded; who came too late gets what others give back', () => {
    const budget = new CreditBudget(4 * MIB);
    const windows = Array.from({ length: 200 }, () => ends(budget));
    expect(budget.grantedBytes).toBe(4 * MIB);
    const isEmpty = ({ window }: { readonly window: InboundWindow }): boolean => window.windowBytes === 0;
    expect(windows.findIndex(isEmpty)).toBeGreaterThan(100);
    const late = windows.find(isEmpty)!;
    windows[0]!.window.close();
    late.deliver();
    expect([late.window.windowBytes, late.credit.bytes]).toEqual([WINDOW_BYTES_MIN, WINDOW_BYTES_MIN]);
    expect(budget.grantedBytes).toBe(4 * MIB);
  });

  it('gets the memory of kept messages of a closed connection when they are taken', () => {
    const budget = new CreditBudget(MIB);
    const { window } = ends(budget);
    window.arrive(1000);
    window.close();
    expect(budget.grantedBytes).toBe(1000);
    window.release(1000);
    expect(budget.grantedBytes).toBe(0);
  });

  it.each([0, 1, 300])('of %i bytes gives nothing beyond that', (bytes) => {
    const budget = new CreditBudget(bytes);
    expect([ends(budget).window.windowBytes, ends(budget).window.windowBytes]).toEqual([bytes, 0]);
  });

  it('without a bound is one all the same', () => {
    const { window } = ends(new CreditBudget(Number.POSITIVE_INFINITY));
    expect(Number.isSafeInteger(window.windowBytes)).toBe(true);
  });
});

describe('a window', () => {
  it('returns a quarter at once, and less not', () => {
    const { window, told } = ends(new CreditBudget(4000));
    for (let i = 0; i < 9; i++) {
      window.arrive(100);
      window.release(100);
    }
    expect(told).toEqual([]);
    window.arrive(100);
    window.release(100);
    expect(told).toEqual([{ returnable: 1000, isHeld: false }]);
    expect(window.heldBytes).toBe(0);
  });

  it('says once that it holds what the peer may wait for, and takes that back with the next return', () => {
    const { window, told, credit, deliver } = ends(new CreditBudget(4000));
    for (let i = 0; i < 40; i++) {
      expect(window.arrive(100)).toBe(true);
      window.settle();
    }
    expect(told).toEqual([{ returnable: 0, isHeld: true }]);
    expect(credit.isLongFor(100)).toBe(false);
    deliver();
    expect(credit.isLongFor(100)).toBe(true);
    for (let i = 0; i < 20; i++) window.release(100);
    expect(told.map(({ returnable }) => returnable)).toEqual([1000, 1000]);
    deliver();
    expect(credit.isLongFor(100)).toBe(false);
  });

  it('says that it holds most also when the last of the credit went to what it did not keep', () => {
    const { window, told, credit, deliver } = ends(new CreditBudget(4000));
    window.arrive(2900);
    window.settle();
    expect(told).toEqual([]);
    window.arrive(500);
    window.release(500);
    deliver();
    credit.bytes -= 3400;
    expect([credit.bytes >= 1000, credit.isLongFor(1000)]).toEqual([true, true]);
    expect([credit.bytes, window.heldBytes]).toEqual([1100, 2900]);
  });

  it('rejects a message without credit, and all later ones', () => {
    const { window } = ends(new CreditBudget(4000));
    expect([window.arrive(3000), window.arrive(1001), window.arrive(1), window.keepOffer()]).toEqual([
      true,
      false,
      false,
      false,
    ]);
    expect(window.heldBytes).toBe(3000);
  });

  it('keeps so many offers, and no more', () => {
    const { window } = ends(new CreditBudget(0));
    for (let i = 0; i < OFFERS_MAX; i++) expect(window.keepOffer()).toBe(true);
    window.releaseOffer();
    expect([window.keepOffer(), window.keepOffer()]).toEqual([true, false]);
  });

  it('merges what becomes free while its message waits for room', () => {
    let waits = 0;
    const window: InboundWindow = new InboundWindow(new CreditBudget(4000), () => {
      waits += 1;
      return true;
    });
    window.arrive(4000);
    for (let i = 0; i < 4; i++) window.release(1000);
    expect([waits, window.returnable]).toEqual([4, 4000]);
    window.updateSent();
    expect([window.returnable, window.heldBytes, window.arrive(4000)]).toEqual([0, 0, true]);
  });
});

describe('both ends', () => {
  it('agree over random traffic, and no sender waits for credit that does not come', () => {
    const random = createRandom(7);
    for (let round = 0; round < 3000; round++) {
      const budget = new CreditBudget(400 + random.below(8000));
      const { credit, window, deliver } = ends(budget);
      const inFlight: number[] = [];
      const kept: number[] = [];
      const arrive = (): void => {
        const cost = inFlight.shift();
        if (cost === undefined) return;
        if (!window.arrive(cost)) expect.fail(`no credit for ${cost}`);
        if (random.below(2) === 0) window.release(cost);
        else {
          kept.push(cost);
          window.settle();
        }
      };
      for (let step = 0; step < 300; step++) {
        const cost = 1 + random.below(400);
        const what = random.below(4);
        if (what === 0) arrive();
        else if (what === 1 && kept.length > 0) window.release(kept.splice(random.below(kept.length), 1)[0]!);
        else if (what === 2) deliver();
        else if (credit.bytes >= cost) {
          credit.bytes -= cost;
          inFlight.push(cost);
        }
        const { heldBytes, windowBytes } = window;
        if (!(heldBytes <= windowBytes)) expect.fail(`${heldBytes} of ${windowBytes} are held`);
      }
      while (inFlight.length > 0) arrive();
      deliver();
      // Everything has arrived: a sender that finds no credit for a message knows that it must not wait.
      for (const cost of [1, 50, 100, 400]) expect(credit.bytes >= cost || credit.isLongFor(cost)).toBe(true);
      for (const cost of kept) window.release(cost);
      expect(window.heldBytes).toBe(0);
    }
  });

  it('count a window that is used up once, and every message that is offered for it', () => {
    const counters = new WorkerCounters();
    const credit = new OutboundCredit();
    credit.open(1000);
    const tell = (): unknown[] => {
      const { tx_no_credit, tx_no_credit_rndv } = counters.node({}, []).counters;
      return [tx_no_credit, tx_no_credit_rndv];
    };
    expect([lacksCredit(credit, 250, counters), lacksCredit(credit, 251, counters)]).toEqual([false, true]);
    expect(tell()).toEqual([1, 1]);
    credit.take(500, 1000, true);
    expect(lacksCredit(credit, 250, counters)).toBe(true);
    expect(tell()).toEqual([2, 2]);
  });
});
