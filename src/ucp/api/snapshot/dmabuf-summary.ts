/** The dma-bufs of a context, from its tree of counters. Data only. */

import { DMABUF_CLASS } from '../../../ucs/stats/dmabuf-counts.ts';
import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import type { DmabufSnapshot } from '../snapshot.ts';

/** The owners, in the order of the tree. */
export function dmabufSummary(root: StatsNode): DmabufSnapshot[] {
  const { className, name: owner, counters, children } = root;
  const below = children.flatMap(dmabufSummary);
  if (className !== DMABUF_CLASS) return below;
  const count = (counter: string): number => counters[`dmabuf_${counter}`] ?? 0;
  const own = {
    owner,
    exports: count('exports'),
    exportBytes: count('export_bytes'),
    imports: count('imports'),
    importBytes: count('import_bytes'),
    mappings: count('mappings'),
    mappedBytes: count('mapped_bytes'),
    descriptors: count('descriptors'),
  };
  return [own, ...below];
}
