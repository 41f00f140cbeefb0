/** The cards of a context, from its tree of counters: what they do now and have done. Data only. */

import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import type { DeviceMemoryMaps, MemoryDomain } from '../../../uct/api/memory-domain.ts';
import type { CardSnapshot } from '../snapshot.ts';

const CARD = 'gaudi_card';

/** The cards, in the order of the tree. @param mds have the maps of their arenas */
export function cardSummary(root: StatsNode, mds: readonly { readonly md: MemoryDomain }[]): CardSnapshot[] {
  const arenas = new Map(mds.flatMap(({ md }) => [...(md.deviceMemoryMaps?.() ?? [])]));
  return cardsIn(root).map((node) => cardOf(node, arenas.get(node.name)));
}

function cardsIn(root: StatsNode): StatsNode[] {
  return [...(root.className === CARD ? [root] : []), ...root.children.flatMap(cardsIn)];
}

function cardOf({ name, counters, children }: StatsNode, memory: DeviceMemoryMaps | undefined): CardSnapshot {
  return {
    name,
    label: memory?.label ?? name,
    moduleId: memory?.moduleId,
    arenas: memory?.arenas ?? [],
    submissionsInFlight: counters['cs_in_flight'] ?? 0,
    transfers: children.map((direction) => ({
      direction: direction.name,
      inFlight: direction.counters['in_flight'] ?? 0,
      operations: direction.counters['operations'] ?? 0,
      byteLength: direction.counters['bytes'] ?? 0,
      errors: direction.counters['errors'] ?? 0,
    })),
  };
}
