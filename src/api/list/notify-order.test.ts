/** The order of notifications: turns come in the order of the start, and any number of lists may wait for one. */

import { describe, expect, it } from 'vitest';
import { type FlushedList, type ListStart, NotifyOrder } from './notify-order.ts';

/** A list that ends in its turn, unless it is held. */
class WaitingList implements FlushedList {
  isDue = false;
  listStart: ListStart | undefined = undefined;
  readonly #order: NotifyOrder;
  readonly #ended: () => void;
  isHeld = false;

  constructor(order: NotifyOrder, ended: () => void, notifies = true) {
    this.#order = order;
    this.#ended = ended;
    order.add(this, notifies);
  }

  /** Its bytes have arrived: it notifies now, or in its turn. */
  ready(): void {
    if (this.#order.isFirst(this)) this.onTurn();
    else this.isDue = true;
  }

  onTurn(): void {
    this.isDue = false;
    if (!this.isHeld) this.end();
  }

  /** Ends it as a request does: its callback may throw, and may start it again. */
  end(): void {
    const start = this.#order.remove(this);
    try {
      this.#ended();
    } finally {
      if (start !== undefined) this.#order.release(start);
    }
  }
}

describe('notifications', () => {
  it('are sent in the order of their lists, whichever is ready first', () => {
    const order = new NotifyOrder();
    const sent: number[] = [];
    const lists = [0, 1, 2, 3].map((number) => new WaitingList(order, () => sent.push(number)));
    for (const number of [2, 1, 3]) lists[number]!.ready();
    expect(sent).toEqual([]);
    lists[0]!.ready();
    expect(sent).toEqual([0, 1, 2, 3]);
    expect(order.isEmpty).toBe(true);
  });

  it('wait for one that is on its way, and not for a list that has failed', () => {
    const order = new NotifyOrder();
    const sent: string[] = [];
    const failed = new WaitingList(order, () => sent.push('failed'));
    const slow = new WaitingList(order, () => sent.push('slow'));
    const last = new WaitingList(order, () => sent.push('last'));
    slow.isHeld = true;
    slow.ready();
    last.ready();
    failed.end();
    expect(sent).toEqual(['failed']);
    slow.end();
    expect(sent).toEqual(['failed', 'slow', 'last']);
    expect(order.isEmpty).toBe(true);
  });

  it('of a hundred thousand lists may wait for one', () => {
    const order = new NotifyOrder();
    let count = 0;
    const first = new WaitingList(order, () => count++);
    for (let i = 0; i < 100_000; i++) new WaitingList(order, () => count++).ready();
    first.ready();
    expect(count).toBe(100_001);
  });

  it('go on after a callback that throws, or that starts its request again', () => {
    const order = new NotifyOrder();
    const sent: string[] = [];
    const first = new WaitingList(order, () => {
      sent.push('first');
      if (sent.length > 1) return;
      order.add(first, true);
      throw new Error('of the callback');
    });
    const second = new WaitingList(order, () => {
      sent.push('second');
      throw new Error('of the second');
    });
    const third = new WaitingList(order, () => sent.push('third'));
    second.ready();
    third.ready();
    expect(() => first.ready()).toThrow('of the');
    expect(sent).toEqual(['first', 'second', 'third']);
    expect(order.isFirst(first)).toBe(true);
    expect(order.isEmpty).toBe(false);
    first.ready();
    expect(order.isEmpty).toBe(true);
    expect(sent).toEqual(['first', 'second', 'third', 'first']);
  });

  it('of a request that is started again in its callback come behind those that wait', () => {
    const order = new NotifyOrder();
    const first = new WaitingList(order, () => undefined);
    const second = new WaitingList(order, () => undefined);
    const start = order.remove(first)!;
    order.add(first, true);
    expect([order.isFirst(first), order.isFirst(second)]).toEqual([false, false]);
    order.release(start);
    expect([order.isFirst(first), order.isFirst(second)]).toEqual([false, true]);
  });

  it('do not wait for lists that have none, but flushes wait for all', () => {
    const order = new NotifyOrder();
    const events: string[] = [];
    const plain = new WaitingList(order, () => events.push('plain'), false);
    const notifying = new WaitingList(order, () => events.push('notifying'));
    let awaited = order.await(() => {
      awaited -= 1;
      if (awaited === 0) events.push('flushed');
    });
    expect(awaited).toBe(2);
    notifying.ready();
    expect(events).toEqual(['notifying']);
    plain.end();
    expect(events).toEqual(['notifying', 'plain', 'flushed']);
    expect(order.await(() => {})).toBe(0);
  });
});
