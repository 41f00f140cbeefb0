/** The representation of objects, and texts cut to their columns. */

import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { clip, inJson, showAs } from './inspect.ts';

describe('a string', () => {
  it('that fits is not cut', () => {
    expect([clip('abc', 3), clip('abc', 4), clip('', 1)]).toEqual(['abc', 'abc', '']);
  });

  it('that does not fit ends with an ellipsis in its last column', () => {
    expect([clip('abcd', 3), clip('abcd', 1)]).toEqual(['ab\u2026', '\u2026']);
  });
});

describe('an object of the API', () => {
  class Card {
    readonly #index: number;
    constructor(index: number) {
      this.#index = index;
    }
    static readonly factsOf = (card: Card) => ({
      index: card.#index,
      bytes: 5n,
      reason: card.#index === 0 ? undefined : 'reset',
    });
  }
  showAs(Card, 'Card', Card.factsOf);

  it('shows its known facts', () => {
    expect(inspect(new Card(0))).toBe('Card { index: 0, bytes: 5 }');
    expect(inspect([new Card(3)])).toBe('[ Card { index: 3, bytes: 5, reason: reset } ]');
  });

  it('is an object of its known facts in JSON, with bigints as strings', () => {
    expect(JSON.parse(JSON.stringify(new Card(3)))).toEqual({ index: 3, bytes: '5', reason: 'reset' });
    expect(Object.keys((new Card(0) as unknown as { toJSON(): object }).toJSON())).toEqual(['index', 'bytes']);
  });

  it('has a prototype, which does not have the facts', () => {
    expect(JSON.stringify(Card.prototype)).toBe('{}');
  });
});

it('facts with bigints are strings in JSON only', () => {
  const facts = inJson({ size: 2n ** 60n, name: 'x' });
  expect(JSON.stringify(facts)).toBe(`{"size":"${2n ** 60n}","name":"x"}`);
  expect([facts.size, Object.keys(facts)]).toEqual([2n ** 60n, ['size', 'name']]);
});
