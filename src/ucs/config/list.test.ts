import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MEMORY_TYPE_NAMES } from '../memory/memory-type.ts';
import { allowListType, DEFAULT_KEY, isAllowed, keyValueType, listType, matchesItem } from './list.ts';
import { bandwidthType, enumType, memorySizeType, uintType } from './value.ts';

describe('listType', () => {
  it('parses items and ignores superfluous commas', () => {
    const type = listType(uintType);
    expect(type.parse('1, 2,3')).toEqual([1, 2, 3]);
    expect(type.parse(' ')).toEqual([]);
    expect(type.parse(',1,,2,')).toEqual([1, 2]);
    expect(type.parse('1,x')).toBeUndefined();
    expect(type.print([1, 2])).toBe('1,2');
    expect(type.print([])).toBe('');
  });

  it('round-trips', () => {
    const type = listType(memorySizeType);
    fc.assert(
      fc.property(fc.array(fc.maxSafeNat()), (values) => {
        expect(type.parse(type.print(values))).toEqual(values);
      }),
    );
  });
});

describe('allowListType', () => {
  const allowed = (text: string, name: string): boolean => isAllowed(allowListType.parse(text)!, name);

  it('parses all, names and negation', () => {
    expect(allowListType.parse('all')).toEqual({ mode: 'all', items: [] });
    expect(allowListType.parse('self, tcp')).toEqual({ mode: 'allow', items: ['self', 'tcp'] });
    expect(allowListType.parse('^tcp')).toEqual({ mode: 'deny', items: ['tcp'] });
    expect(allowListType.parse('')).toEqual({ mode: 'allow', items: [] });
    for (const bad of [
      'a,^b',
      '^^a',
      'x[3-1]',
      '^all',
      '^a,all',
      'all,a',
      'a,all',
      '^',
      '^,',
      'a b',
      'a\nb',
      'x'.repeat(256),
    ])
      expect(allowListType.parse(bad)).toBeUndefined();
  });

  it('matches the longest items', () => {
    expect(allowed('*'.repeat(255), 'tcp')).toBe(true);
    expect(allowed('[0-1]'.repeat(51), '0'.repeat(51))).toBe(true);
  });

  it('selects names', () => {
    expect(allowed('all', 'tcp')).toBe(true);
    expect(allowed('self,tcp', 'tcp')).toBe(true);
    expect(allowed('self', 'tcp')).toBe(false);
    expect(allowed('^self', 'tcp')).toBe(true);
    expect(allowed('^tcp', 'tcp')).toBe(false);
    expect(allowed('', 'tcp')).toBe(false);
  });

  it('matches globs and ranges', () => {
    expect(matchesItem('gaudi*', 'gaudi_cpy')).toBe(true);
    expect(matchesItem('gaudi?', 'gaudi_cpy')).toBe(false);
    expect(matchesItem('mlx5_?:1', 'mlx5_0:1')).toBe(true);
    expect(matchesItem('mlx5_?', 'mlx5_')).toBe(false);
    expect(matchesItem('a.b', 'axb')).toBe(false);
    expect(matchesItem('mlx5_[0-3]:1', 'mlx5_3:1')).toBe(true);
    expect(matchesItem('mlx5_[0-3]:1', 'mlx5_4:1')).toBe(false);
    expect(matchesItem('mlx5_[8-12]', 'mlx5_10')).toBe(true);
    expect(matchesItem('n[0-1]p[2-3]', 'n1p2')).toBe(true);
    expect(matchesItem('n[0-1]p[2-3]', 'n2p1')).toBe(false);
    expect(matchesItem('x[a]', 'x[a]')).toBe(true);
  });

  it('round-trips', () => {
    const item = fc.stringMatching(/^[a-z0-9_:*?]{1,8}$/).filter((text) => text !== 'all');
    const list = fc.record({
      mode: fc.constantFrom('allow' as const, 'deny' as const),
      items: fc.array(item, { minLength: 1 }),
    });
    fc.assert(
      fc.property(list, (value) => {
        expect(allowListType.parse(allowListType.print(value))).toEqual(value);
      }),
    );
    expect(allowListType.print({ mode: 'all', items: [] })).toBe('all');
  });
});

describe('keyValueType', () => {
  it('parses fragment sizes by memory type', () => {
    const type = keyValueType(MEMORY_TYPE_NAMES, memorySizeType);
    expect(type.parse('host:512K,cuda:4M')).toEqual({ host: 512 * 1024, cuda: 4 * 2 ** 20 });
    expect(type.parse('')).toEqual({});
    for (const bad of ['512K', 'host', 'host:', 'moon:1', 'host:1,host:2', '__proto__:1']) {
      expect(type.parse(bad), bad).toBeUndefined();
    }
  });

  it('parses bandwidths by direction with a default', () => {
    const type = keyValueType([DEFAULT_KEY, 'h2d', 'd2h', 'd2d'], bandwidthType);
    const text = '10000MBs,h2d:8300MBs,d2h:11660MBs,d2d:320GBs';
    const value = type.parse(text);
    expect(value?.h2d).toBe(8300 * 2 ** 20);
    expect(value?.default).toBe(10000 * 2 ** 20);
    expect(type.print(value!)).toBe(text);
    expect(type.parse('1MBs,2MBs')).toBeUndefined();
  });

  it('round-trips', () => {
    const keys = ['default', 'host', 'gaudi'] as const;
    const type = keyValueType(keys, memorySizeType);
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...keys), fc.maxSafeNat()), (values) => {
        expect(type.parse(type.print(values))).toEqual({ ...values });
      }),
    );
    expect(keyValueType(['host'], enumType(['a'])).syntax).toContain('keys host');
  });
});
