/** Fragments: as many as there may be, in the order in which they are asked for. */

import { describe, expect, it } from 'vitest';
import { type Fragment, Fragments, type FragmentWaiter } from './device-fragments.ts';
import type { UcpMemory } from './memory-handle.ts';

/** Takes what it is lent. */
class Waiter implements FragmentWaiter {
  lent: Fragment | undefined;

  fragmentLent(fragment: Fragment): void {
    this.lent = fragment;
  }
}

function makeFragments(countMax: number): { readonly fragments: Fragments; readonly mapped: Set<UcpMemory> } {
  const mapped = new Set<UcpMemory>();
  const source = {
    map: () => {
      const memory = { ucpAddress: 4096 * (mapped.size + 1), byteLength: 4096 } as UcpMemory;
      mapped.add(memory);
      return memory;
    },
    unmap: (memory: UcpMemory) => void mapped.delete(memory),
  };
  return { fragments: new Fragments(source, 4096, countMax), mapped };
}

describe('fragments', () => {
  it('are allocated when they are needed, and kept', () => {
    const { fragments, mapped } = makeFragments(3);
    const first = fragments.take()!;
    expect([mapped.size, fragments.inUse]).toEqual([1, 1]);
    fragments.give(first);
    expect(fragments.take()).toBe(first);
    expect(mapped.size).toBe(1);
    expect([fragments.take(), fragments.take(), fragments.take()].map((lent) => lent === undefined)).toEqual([
      false,
      false,
      true,
    ]);
    expect([mapped.size, fragments.inUse]).toEqual([3, 3]);
  });

  it('go to those who wait, in order, and to nobody before them', () => {
    const { fragments } = makeFragments(1);
    const only = fragments.take()!;
    const [first, second, third] = [new Waiter(), new Waiter(), new Waiter()];
    for (const waiter of [first, second, third]) fragments.await(waiter);
    fragments.forget(second);
    fragments.give(only);
    expect([first.lent, second.lent, third.lent]).toEqual([only, undefined, undefined]);
    expect(fragments.take()).toBeUndefined();
    fragments.give(only);
    expect([second.lent, third.lent]).toEqual([undefined, only]);
    fragments.give(only);
    expect([fragments.inUse, fragments.take()]).toEqual([0, only]);
  });

  it('in reserve are not counted', () => {
    const { fragments, mapped } = makeFragments(1);
    const reserve = fragments.reserve();
    expect([fragments.inUse, mapped.size]).toEqual([0, 1]);
    fragments.release(reserve);
    expect(mapped.size).toBe(0);
    expect(fragments.take()).toBeDefined();
  });
});
