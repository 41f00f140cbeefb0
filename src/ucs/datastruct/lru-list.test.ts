import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type LruEntry, LruList } from './lru-list.ts';

interface Named extends LruEntry {
  readonly id: number;
}

function ids(list: LruList<Named>): number[] {
  const found: number[] = [];
  for (let entry = list.first; entry !== undefined; entry = list.after(entry)) found.push(entry.id);
  return found;
}

describe('LruList', () => {
  it('agrees with an array', () => {
    const step = fc.record({ kind: fc.constantFrom('add', 'add', 'touch', 'remove', 'oldest'), pick: fc.nat(1000) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
        const list = new LruList<Named>();
        const model: Named[] = [];
        for (const [id, { kind, pick }] of steps.entries()) {
          const index = pick % Math.max(1, model.length);
          const entry = model[index];
          if (kind === 'add') {
            const added = { id, byteLength: pick, slot: 0 };
            list.add(added);
            model.push(added);
          } else if (kind === 'oldest') {
            const mayGo = ({ byteLength }: Named): boolean => byteLength > pick;
            expect(list.oldest(mayGo)).toBe(model.find(mayGo));
          } else if (entry !== undefined) {
            model.splice(index, 1);
            if (kind === 'remove') list.remove(entry);
            else {
              list.touch(entry);
              model.push(entry);
            }
          }
          expect(ids(list)).toEqual(model.map((each) => each.id));
          expect(list.count).toBe(model.length);
          expect(list.byteLength).toBe(model.reduce((sum, { byteLength }) => sum + byteLength, 0));
        }
      }),
    );
  });

  it('uses the slots of removed entries again', () => {
    const list = new LruList<Named>();
    const entries = [1, 2, 3].map((id) => ({ id, byteLength: id, slot: 0 }));
    for (const entry of entries) list.add(entry);
    for (let id = 4; id < 100; id++) {
      const removed = entries.shift()!;
      list.remove(removed);
      const added = { id, byteLength: 1, slot: 0 };
      entries.push(added);
      list.add(added);
      expect(added.slot).toBe(removed.slot);
    }
    expect(ids(list)).toEqual([97, 98, 99]);
  });
});
