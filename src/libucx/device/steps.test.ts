/** Staging of a worker over libucp: fragments that become available late, for a worker that makes progress or is closed. */

import { describe, expect, it, vi } from 'vitest';
import { FragmentPool } from '../../api/staging/fragment-pool.ts';
import { Status } from '../../ucs/type/status.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { CardSteps } from './steps.ts';

/** Staging of a worker whose context has one fragment. */
function makeStaging(): { readonly staging: CardSteps; readonly fragments: FragmentPool<UcpMemory> } {
  const limits = { fragmentBytes: 4096, countMax: 1 };
  const fragments = new FragmentPool(() => ({}) as UcpMemory, vi.fn(), limits);
  const worker = { context: { fragments }, promises: { wake: () => {} } } as unknown as WorkerCore;
  return { staging: new CardSteps(worker), fragments };
}

describe('a fragment that becomes available late', () => {
  it('is passed to its user in the next progress', () => {
    const { staging, fragments } = makeStaging();
    const users: [UcpMemory | undefined, Status][] = [];
    staging.acquire((fragment, status) => void users.push([fragment, status]));
    const [first] = users;
    staging.acquire((fragment, status) => void users.push([fragment, status]));
    staging.release(first![0]!);
    expect([users.length, staging.isDue]).toEqual([1, true]);
    expect(staging.progress()).toBe(1);
    expect(users[1]).toEqual([first![0], Status.OK]);
    expect(fragments.inUse).toBe(1);
  });

  it('returns to the pool if the worker is closed', () => {
    const { staging, fragments } = makeStaging();
    const other = fragments.tryAcquire()!;
    let isCalled = false;
    staging.acquire(() => {
      isCalled = true;
    });
    staging.close();
    fragments.release(other);
    expect([isCalled, staging.isDue, fragments.inUse]).toEqual([false, false, 0]);
  });
});
