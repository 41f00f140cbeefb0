/** The faults of `npm run mutate` can be planted: a source that has changed has changed what they replace. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from './fixtures/tools/built.ts';
import { planted } from './mutation/fault.ts';
import { AREAS } from './mutation/faults.ts';

describe('each fault', () => {
  it.each(AREAS)('of $name replaces a string that is there once', ({ faults }) => {
    for (const fault of faults) {
      const text = readFileSync(join(ROOT, fault.file), 'utf8');
      expect(planted(text, fault)).not.toBe(text);
    }
  });

  it('is refused if the text is missing, or not the only one', () => {
    const fault = { file: 'a.ts', before: 'b', after: 'c', breaks: 'nothing' };
    expect(planted('abd', fault)).toBe('acd');
    for (const text of ['ad', 'abbd']) expect(() => planted(text, fault)).toThrow('a.ts has');
  });
});
