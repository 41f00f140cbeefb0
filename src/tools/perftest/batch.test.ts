/** Batch files of perftest: their lines, their combinations, and what is wrong with them. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { batchTests } from './options.ts';
import { messageBytes } from './spec.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-batch-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe('batchTests', () => {
  it('is the command line without a file', () => {
    const [test, ...others] = batchTests({ t: 'tag_lat', n: '5' }, []);
    expect(others).toEqual([]);
    expect(test).toMatchObject({ names: [], spec: { iterations: 5 } });
  });

  it('runs every combination of two files, over the options of the command line', () => {
    const tests = file('tests', '# comment\n\nput  -t ucp_put_lat\ntag\t-t tag_bw -n 7\n');
    const sizes = file('sizes', 'small -s 8\nlarge -s 1m');
    const found = batchTests({ n: '9', m: 'gaudi' }, [tests, sizes]);
    expect(found.map(({ names }) => names.join('/'))).toEqual(['put/small', 'put/large', 'tag/small', 'tag/large']);
    expect(found.map(({ spec }) => [spec.iterations, messageBytes(spec), spec.sendMemory])).toEqual([
      [9, 8, 'gaudi'],
      [9, 2 ** 20, 'gaudi'],
      [7, 8, 'gaudi'],
      [7, 2 ** 20, 'gaudi'],
    ]);
  });

  it.each([
    ['an unknown option', 'a -t tag_lat\nb -t tag_lat -Q', /line 2 must have options of a test .*-Q/],
    ['an option of the command line', 'a -t tag_lat -p 7', /line 1 .*-p/],
    ['a word more', 'a -t tag_lat 7', /line 1 .*too many arguments/],
    ['a missing test', 'a -s 8', /line 1 must have a test \(-t\)/],
    ['nothing', '# nothing\n', /-b must be files with at least one test/],
    ['a bad value', 'a -t tag_lat -n x', /-n must be a number/],
  ])('refuses %s, by file and line', (_what, text, message) => {
    const path = file('bad', text);
    expect(() => batchTests({}, [path])).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(message) }),
    );
  });
});
