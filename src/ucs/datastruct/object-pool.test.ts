import { describe, expect, it } from 'vitest';
import { OBJECTS_KEPT_MAX, ObjectPool } from './object-pool.ts';

describe('ObjectPool', () => {
  it('makes objects when needed, up to the capacity', () => {
    let index = 0;
    const pool = new ObjectPool(3, () => ({ index: index++ }));
    expect(pool.created).toBe(0);
    const taken = [pool.get(), pool.get(), pool.get()];
    expect(taken.map((item) => item?.index)).toEqual([0, 1, 2]);
    expect(pool.get()).toBeUndefined();
    expect(pool.inUse).toBe(3);
    pool.put(taken[1]!);
    expect(pool.inUse).toBe(2);
    expect(pool.get()).toBe(taken[1]);
    expect(pool.created).toBe(3);
  });

  it('makes no object after warm-up', () => {
    let made = 0;
    const pool = new ObjectPool(4, () => ({ id: made++ }));
    for (let i = 0; i < 1000; i++) {
      const first = pool.get()!;
      const second = pool.get()!;
      expect(first).not.toBe(second);
      pool.put(first);
      pool.put(second);
    }
    expect(made).toBe(2);
    expect(pool.inUse).toBe(0);
  });

  it('keeps a bounded number of free objects', () => {
    const pool = new ObjectPool(3 * OBJECTS_KEPT_MAX, () => ({}));
    const taken = Array.from({ length: 2 * OBJECTS_KEPT_MAX }, () => pool.get()!);
    const kept = taken.map((item) => pool.put(item));
    expect(kept.indexOf(false)).toBe(OBJECTS_KEPT_MAX);
    expect([pool.inUse, pool.created]).toEqual([0, OBJECTS_KEPT_MAX]);
    expect(() => pool.put({})).toThrow(expect.objectContaining({ code: 'ERR_POOL_OVERFLOW' }));
    const again = Array.from({ length: pool.capacity }, () => pool.get());
    expect(new Set(again).size).toBe(pool.capacity);
    expect(pool.get()).toBeUndefined();
  });

  it('survives a factory that throws', () => {
    let fail = true;
    const pool = new ObjectPool(1, () => {
      if (fail) throw new Error('no memory');
      return {};
    });
    expect(() => pool.get()).toThrow('no memory');
    expect(pool.inUse).toBe(0);
    fail = false;
    expect(pool.get()).toBeDefined();
  });

  it('refuses more puts than gets', () => {
    const pool = new ObjectPool(2, () => ({}));
    const item = pool.get()!;
    pool.put(item);
    expect(() => pool.put(item)).toThrow(expect.objectContaining({ code: 'ERR_POOL_OVERFLOW' }));
  });

  it('refuses bad sizes', () => {
    expect(() => new ObjectPool(0, () => ({}))).toThrow(/capacity/);
    expect(() => new ObjectPool(1.5, () => ({}))).toThrow(/capacity/);
  });
});
