import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { DynamicLibrary } from '../base/dynamic-library.ts';
import { textWrittenBy } from './memfd.ts';

const fputs = new DynamicLibrary(['libc.so.6']).function<(text: string, stream: number) => number>('fputs', 'int', [
  'str',
  'int64_t',
]);
expectNoLeaks();

describe('textWrittenBy', () => {
  it('returns everything that was written, in order', () => {
    const long = 'x'.repeat(100_000);
    const text = textWrittenBy((stream) => {
      for (const part of ['two ', 'wörds\n', long]) fputs(part, stream);
    });
    expect(text).toBe(`two wörds\n${long}`);
  });

  it('is empty if nothing was written', () => {
    expect(textWrittenBy(() => undefined)).toBe('');
  });

  it('passes on exceptions of the function', () => {
    expect(() =>
      textWrittenBy((stream) => {
        fputs('lost', stream);
        throw new Error('no more');
      }),
    ).toThrow('no more');
  });
});
