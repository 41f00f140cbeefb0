import { constants } from 'node:os';
import { describe, expect, it } from 'vitest';
import { Errno, errnoName, errnoText } from './errno.ts';

describe('Errno', () => {
  it('has the same numbers as Node', () => {
    const known = constants.errno as Record<string, number>;
    for (const [name, value] of Object.entries(Errno)) {
      if (known[name] !== undefined) expect([name, value]).toEqual([name, known[name]]);
    }
  });

  it('has distinct numbers', () => {
    expect(new Set(Object.values(Errno)).size).toBe(Object.keys(Errno).length);
  });
});

describe('errnoName and errnoText', () => {
  it('name every number of the table', () => {
    for (const [name, value] of Object.entries(Errno)) {
      expect(errnoName(value)).toBe(name);
      expect(errnoText(value)).toMatch(/^[a-z]/);
    }
  });

  it('pass unknown numbers through', () => {
    expect(errnoName(4095)).toBe('E4095');
    expect(errnoText(4095)).toBe('unknown error 4095');
  });
});
