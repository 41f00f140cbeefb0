/** The process that has a card open, from /proc: for messages to users, never for decisions. */

import { primaryPaths, type Roots } from './discovery.ts';
import type { SystemCalls } from './system-calls.ts';

const PROCESS_ID = /^\d+$/;

/** The process that has the primary node of a card open; undefined for none, and if the caller is not allowed to see its descriptors. */
export function findOwner(calls: SystemCalls, roots: Roots, minor: number): number | undefined {
  const procRoot = roots.procRoot ?? '/proc';
  const nodes = new Set(primaryPaths(roots, minor).map(({ path }) => path));
  for (const name of calls.namesIn(procRoot)) {
    if (!PROCESS_ID.test(name)) continue;
    const folder = `${procRoot}/${name}/fd`;
    if (calls.namesIn(folder).some((fd) => nodes.has(calls.realPath(`${folder}/${fd}`) ?? ''))) return Number(name);
  }
  return undefined;
}
