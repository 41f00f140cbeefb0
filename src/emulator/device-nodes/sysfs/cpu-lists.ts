/** The CPUs next to a device, as this machine numbers them. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const SYS = '/sys';
const BITS_PER_GROUP = 32n;

/**
 * The list of the CPUs of a NUMA node, such as `0-15,32-47`; that of all CPUs if this machine does not have the node, because the emulated server may have
 * more sockets.
 */
export function localCpuList(numaNode: number, sysRoot: string = SYS): string {
  const ofNode = contents(join(sysRoot, `devices/system/node/node${numaNode}/cpulist`));
  return ofNode ?? contents(join(sysRoot, 'devices/system/cpu/online')) ?? '';
}

/** The mask of a CPU list as sysfs prints it: groups of 32 bits, the highest first. */
export function cpuMask(list: string): string {
  let mask = 0n;
  for (const range of list.split(',').filter((part) => part !== '')) {
    const [first = 0, last = first] = range.split('-').map(Number);
    for (let cpu = first; cpu <= last; cpu++) mask |= 1n << BigInt(cpu);
  }
  const groups: string[] = [];
  for (; mask >> BITS_PER_GROUP > 0n; mask >>= BITS_PER_GROUP)
    groups.unshift((mask & 0xffff_ffffn).toString(16).padStart(8, '0'));
  return [mask.toString(16), ...groups].join(',');
}

function contents(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
