import fc from 'fast-check';
import { expect, it } from 'vitest';
import { HandleIds } from './address-blocks.ts';

it('handle numbers are the smallest free ones', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(), { maxLength: 200 }), (draws) => {
      const ids = new HandleIds();
      const taken: number[] = [];
      for (const draw of draws) {
        if (draw % 3 === 0 && taken.length > 0) ids.free(taken.splice(draw % taken.length, 1)[0]!);
        else {
          let smallest = 1;
          while (taken.includes(smallest)) smallest += 1;
          expect(ids.take()).toBe(smallest);
          taken.push(smallest);
        }
      }
    }),
  );
});

it('freed numbers of every size are found again, the smallest first', () => {
  const ids = new HandleIds();
  const count = 40_000;
  for (let i = 0; i < count; i++) ids.take();
  const freed = [1, 31, 32, 33, 1023, 1024, 32_767, 32_768, 39_999];
  for (const id of freed.toReversed()) ids.free(id);
  expect(freed.map(() => ids.take())).toEqual(freed);
  expect(ids.take()).toBe(count + 1);
});
