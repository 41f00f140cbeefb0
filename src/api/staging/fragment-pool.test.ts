/** The pool of fragments: as many as allowed, in the order of the requests, half of them for fragments that peers fill. */

import { describe, expect, it } from 'vitest';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { FragmentPool } from './fragment-pool.ts';

interface Fragment {
  readonly number: number;
}

/** A pool and the fragments that are allocated; `memory` fragments at most. */
function makePool(countMax: number, memory = countMax): { pool: FragmentPool<Fragment>; allocated: Set<Fragment> } {
  const allocated = new Set<Fragment>();
  let number = 0;
  const allocate = (): Fragment => {
    if (allocated.size === memory) throw statusError(Status.NO_MEMORY, 'allocate a fragment');
    number += 1;
    const fragment = { number };
    allocated.add(fragment);
    return fragment;
  };
  const free = (fragment: Fragment): void => void allocated.delete(fragment);
  return { pool: new FragmentPool(allocate, free, { fragmentBytes: 4096, countMax }), allocated };
}

describe('a fragment pool', () => {
  it('allocates fragments when they are needed, and keeps them until it closes', () => {
    const { pool, allocated } = makePool(3);
    const first = pool.tryAcquire()!;
    expect([allocated.size, pool.inUse]).toEqual([1, 1]);
    pool.release(first);
    expect(pool.tryAcquire()).toBe(first);
    expect(allocated.size).toBe(1);
    const more = [pool.tryAcquire(), pool.tryAcquire(), pool.tryAcquire()];
    expect(more.map((fragment) => fragment?.number)).toEqual([2, 3, undefined]);
    expect([allocated.size, pool.inUse]).toEqual([3, 3]);
    pool.close();
    expect(allocated.size).toBe(0);
  });

  it('serves waiters in order, and none that comes later before them', () => {
    const { pool } = makePool(1);
    const only = pool.tryAcquire()!;
    const served: string[] = [];
    for (const name of ['first', 'second']) pool.acquire((fragment) => void served.push(`${name} ${fragment?.number}`));
    expect(served).toEqual([]);
    pool.release(only);
    expect(served).toEqual(['first 1']);
    expect(pool.tryAcquire()).toBeUndefined();
    pool.release(only);
    expect(served).toEqual(['first 1', 'second 1']);
    pool.release(only);
    expect([pool.inUse, pool.tryAcquire()]).toEqual([0, only]);
  });

  it('serves waiters that give back at once without recursion', () => {
    const { pool } = makePool(1);
    const only = pool.tryAcquire()!;
    let served = 0;
    for (let i = 0; i < 20_000; i++) {
      pool.acquire((fragment) => {
        served += 1;
        pool.release(fragment!);
      });
    }
    pool.release(only);
    expect([served, pool.inUse]).toEqual([20_000, 0]);
  });

  it('lets peers fill half of the fragments at most, and serves them first', () => {
    const { pool } = makePool(4);
    const received: Fragment[] = [];
    for (let i = 0; i < 3; i++) pool.acquireToReceive((fragment) => void received.push(fragment!));
    expect([received.length, pool.receivingMax]).toEqual([2, 2]);
    const sent = [pool.tryAcquire(), pool.tryAcquire(), pool.tryAcquire()];
    expect(sent.map((fragment) => fragment?.number)).toEqual([3, 4, undefined]);
    const order: string[] = [];
    pool.acquire(() => void order.push('send'));
    pool.release(sent[0]!);
    expect(order).toEqual(['send']);
    pool.acquire(() => void order.push('send'));
    pool.releaseReceived(received[0]!);
    expect([order.length, received.length]).toEqual([1, 3]);
  });

  it('replaces a fragment that a peer may still write to', () => {
    const { pool, allocated } = makePool(2);
    const received: Fragment[] = [];
    pool.acquireToReceive((fragment) => void received.push(fragment!));
    pool.retireReceived(received[0]!);
    expect([allocated.size, pool.inUse]).toEqual([0, 0]);
    pool.acquireToReceive((fragment) => void received.push(fragment!));
    expect(received.map(({ number }) => number)).toEqual([1, 2]);
  });

  it('rejects if not even one fragment can be allocated, and waits if fewer than allowed can be', () => {
    const empty = makePool(2, 0).pool;
    const refusals: Status[] = [];
    empty.acquire((fragment, status) => void refusals.push(fragment === undefined ? status : Status.OK));
    expect([refusals, empty.tryAcquire()]).toEqual([[Status.NO_MEMORY], undefined]);
    const small = makePool(2, 1).pool;
    const only = small.tryAcquire()!;
    const served: Fragment[] = [];
    small.acquire((fragment) => void served.push(fragment!));
    expect(served).toEqual([]);
    small.release(only);
    expect(served).toEqual([only]);
  });
});
