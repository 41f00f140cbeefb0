/** The CPUs next to a device, in a fictitious /sys. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cpuMask, localCpuList } from './cpu-lists.ts';

describe('local CPUs', () => {
  let root = '';
  beforeAll(() => {
    root = mkdtempSync(join(tmpdir(), 'gaudi-ucx-cpus-'));
    const files = { 'node/node0/cpulist': '0-1,4\n', 'node/node1/cpulist': '\n', 'cpu/online': '0-7\n' };
    for (const [name, text] of Object.entries(files)) {
      const path = join(root, 'devices/system', name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
    }
  });
  afterAll(() => rmSync(root, { recursive: true }));

  it('are those of the NUMA node, which may have none, or all if the machine does not have the node', () => {
    expect([0, 1, 2].map((node) => localCpuList(node, root))).toEqual(['0-1,4', '', '0-7']);
    expect(localCpuList(0, join(root, 'nothing'))).toBe('');
  });

  it.each([
    ['', '0'],
    ['0', '1'],
    ['0-1,4', '13'],
    ['31', '80000000'],
    ['0,32', '1,00000001'],
    ['0-63', 'ffffffff,ffffffff'],
    ['64-65', '3,00000000,00000000'],
  ])('in the list %j have the mask %s', (list, mask) => {
    expect(cpuMask(list)).toBe(mask);
  });
});
