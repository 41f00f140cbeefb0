/** The partition key of a port: UCX_IB_PKEY, or the first in its table, one with full membership first. */

import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createEmulatedNode } from '../../../emulator/index.ts';
import { IbDevice, type IbPort } from './device.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

function portOf(pkeys: readonly number[] | undefined, pkey: number | undefined): IbPort | string {
  const node = createEmulatedNode({ cards: 1, nics: 1, dmaThreads: 0 });
  const device = new IbDevice(node.verbs!, 'hca0', 0);
  onTestFinished(() => {
    device.close();
    node.close();
  });
  if (pkeys !== undefined) vi.spyOn(device.context, 'pkeys').mockReturnValue(pkeys);
  return device.port(1, undefined, pkey);
}

describe('the partition key of a port', () => {
  it.each([
    ['the default of a fabric without partitions', undefined, undefined, 0],
    ['that key by its number', undefined, 0x7fff, 0],
    ['full membership first', [0x7fff, 0, 0x8001], undefined, 2],
    ['limited membership', [0, 0x7fff, 0x0002], undefined, 1],
    ['the wanted key with full membership', [0xffff, 0x0001, 0x8001], 1, 2],
    ['the wanted key with limited membership', [0xffff, 0x8001, 0x0002], 2, 2],
  ])('is %s', (_what, pkeys, pkey, index) => {
    expect(portOf(pkeys, pkey)).toMatchObject({ pkeyIndex: index });
  });

  it('is a reason to leave out a port that lacks it', () => {
    expect(portOf([0xffff, 0, 0x8001], 5)).toBe(
      'the port has no partition key 0x5 (UCX_IB_PKEY); valid are: 0xffff, 0x8001',
    );
    expect(portOf([], undefined)).toBe('the port has no partition key; valid are: none');
  });
});
