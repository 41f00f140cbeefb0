import fc from 'fast-check';
import { expect, it } from 'vitest';
import { HandleIds } from './handle-ids.ts';

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
