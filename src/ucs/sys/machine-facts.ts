/** Facts about this machine that the conditional sections of `ucx.conf` can test: only those that the files shipped with UCX use. */

import { readFileSync } from 'node:fs';

/** UCX's names of CPU vendors by the kernel's names. */
const CPU_VENDORS: Readonly<Record<string, string>> = { GenuineIntel: 'Intel', AuthenticAMD: 'AMD' };

/**
 * The fact with this name: `CPU vendor` as UCX names it, `DMI product name` as the firmware names it. Undefined for any other name, including `CPU model`,
 * which is UCX's own name for a family of processors.
 */
export function machineFact(name: string): string | undefined {
  switch (name) {
    case 'CPU vendor':
      return CPU_VENDORS[/^vendor_id\s*:\s*(\S+)/m.exec(readIfThere('/proc/cpuinfo'))?.[1] ?? ''];
    case 'DMI product name':
      return readIfThere('/sys/class/dmi/id/product_name').trim() || undefined;
    default:
      return undefined;
  }
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
