/** Recent finds: both ways of a set, and intervals that are forgotten with all their pages. */

import { expect, it } from 'vitest';
import { RecentFinds } from './recent-finds.ts';

const PAGE = 4096;

it('contains the whole interval of a find, for addresses of its page', () => {
  const finds = new RecentFinds<string>();
  finds.note(PAGE + 200, { start: PAGE + 100, end: PAGE + 300, value: 'a' });
  finds.note(PAGE + 400, { start: PAGE + 400, end: PAGE + 500, value: 'b' });
  const at = (start: number, end: number) => finds.covering(PAGE + start, PAGE + end);
  expect([at(100, 300), at(400, 500), at(250, 260)]).toEqual(['a', 'b', 'a']);
  expect([at(99, 300), at(100, 301), at(399, 500), at(400, 501), at(300, 400)]).toEqual(Array(5).fill(undefined));
  finds.note(PAGE + 600, { start: PAGE + 600, end: PAGE + 700, value: 'c' });
  expect([at(100, 300), at(400, 500), at(600, 700)]).toEqual([undefined, 'b', 'c']);
});

it.each([2, 80])('forgets an interval in each of its %s pages, wherever it begins, and no other', (pages) => {
  const finds = new RecentFinds<string>();
  const found = { start: 7 * PAGE + 4000, end: (7 + pages) * PAGE + 10, value: 'a' };
  const addresses = Array.from({ length: pages }, (_, i) => (8 + i) * PAGE);
  for (const address of [found.start, ...addresses]) finds.note(address, found);
  const neighbour = { start: 7 * PAGE, end: found.start, value: 'b' };
  finds.note(neighbour.start, neighbour);
  expect(finds.covering(addresses.at(-1)!, found.end)).toBe('a');
  finds.forget(found);
  for (const address of [found.start, ...addresses]) expect(finds.covering(address, address + 1)).toBeUndefined();
  expect(finds.covering(neighbour.start, found.start)).toBe(pages === 2 ? 'b' : undefined);
});
