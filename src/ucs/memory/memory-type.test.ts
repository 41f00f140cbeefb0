import { describe, expect, it } from 'vitest';
import {
  ALL_MEMORY_TYPES,
  hasMemoryType,
  MEMORY_TYPE_COUNT,
  MEMORY_TYPE_DESCRIPTIONS,
  MEMORY_TYPE_NAMES,
  MemoryType,
  memoryTypeBit,
  memoryTypeMask,
  memoryTypeMaskNames,
  memoryTypeName,
  memoryTypesOfMask,
  parseMemoryType,
} from './memory-type.ts';

describe('MemoryType', () => {
  it('has the values of UCX', () => {
    expect(MemoryType.HOST).toBe(0);
    expect(MemoryType.GAUDI).toBe(9);
    expect(MemoryType.UNKNOWN).toBe(MEMORY_TYPE_COUNT);
    expect(Object.values(MemoryType)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });

  it('names every value after its constant and parses every name', () => {
    for (const [constant, value] of Object.entries(MemoryType)) {
      const name = constant.toLowerCase().replaceAll('_', '-');
      expect(memoryTypeName(value)).toBe(name);
      expect(parseMemoryType(name)).toBe(value);
      expect(parseMemoryType(name.toUpperCase())).toBe(value);
    }
    expect(MEMORY_TYPE_DESCRIPTIONS).toHaveLength(MEMORY_TYPE_NAMES.length);
  });

  it('handles unknown values and names', () => {
    expect(memoryTypeName(11)).toBe('unknown');
    expect(memoryTypeName(-1)).toBe('unknown');
    expect(parseMemoryType('hbm')).toBeUndefined();
    expect(parseMemoryType('')).toBeUndefined();
  });

  it('builds, tests and prints masks', () => {
    const mask = memoryTypeMask(MemoryType.HOST, MemoryType.GAUDI);
    expect(mask).toBe(memoryTypeBit(MemoryType.HOST) | memoryTypeBit(MemoryType.GAUDI));
    expect(hasMemoryType(mask, MemoryType.GAUDI)).toBe(true);
    expect(hasMemoryType(mask, MemoryType.CUDA)).toBe(false);
    expect(memoryTypesOfMask(mask)).toEqual([MemoryType.HOST, MemoryType.GAUDI]);
    expect(memoryTypeMaskNames(mask)).toBe('host,gaudi');
    expect(memoryTypeMaskNames(0)).toBe('');
    expect(memoryTypesOfMask(ALL_MEMORY_TYPES)).toHaveLength(MEMORY_TYPE_COUNT);
  });
});
