/** The devices of libibverbs: all of its list, or those that are named. */

import { describe, expect, it, onTestFinished } from 'vitest';
import { allocateScratch, memcpy } from '../../sys/index.ts';
import { Libibverbs } from './libibverbs.ts';
import type { LibibverbsFunctions } from './library.ts';

const DEVICES = ['mlx5_0', 'hbl_0', 'mlx5_1'];

/** A list of devices whose pointers are their numbers, from 1. */
function functionsOf(names: readonly string[]): LibibverbsFunctions {
  const list = allocateScratch(8 * names.length);
  onTestFinished(() => list.free());
  for (const index of names.keys()) list.view.setBigUint64(index * 8, BigInt(index + 1), true);
  const length = allocateScratch(4);
  onTestFinished(() => length.free());
  length.view.setInt32(0, names.length, true);
  const getDeviceList = (count: number): number => {
    memcpy(count, length.address, 4);
    return list.address;
  };
  return {
    getDeviceList,
    freeDeviceList: () => {},
    getDeviceName: (pointer: number) => names[pointer - 1]!,
  } as unknown as LibibverbsFunctions;
}

describe('the devices of libibverbs', () => {
  it.each([
    [undefined, DEVICES],
    [
      ['mlx5_1', 'mlx5_0', 'rxe0'],
      ['mlx5_0', 'mlx5_1'],
    ],
    [[], []],
  ])('named %j are %j', (names, expected) => {
    const verbs = new Libibverbs(functionsOf(DEVICES), names);
    expect(verbs.devices().map(({ name }) => name)).toEqual(expected);
  });
});
