/** Statistics of the shared state of the Gaudi memory domains: cards and their DMA, and registrations of host memory. Read-only. */

import type { DmaCounts } from '../../../hlthunk/index.ts';
import { type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import { cacheStats } from '../../base/host/memory.ts';
import { cardName, type GaudiCard } from './card/gaudi-cards.ts';
import type { OpenGaudi } from './gaudi-resources.ts';

/** The arenas of a card as levels, and its DMA, with one node for each direction that was used. */
function cardStats({ index, device }: GaudiCard): StatsNode {
  const { counts, submissions } = device.dma;
  const { arenas, arenaBytes, blocks, usedBytes, largestFreeBytes } = device.memory.statistics;
  const directions: readonly (readonly [string, DmaCounts | undefined])[] = [
    ['host_to_device', counts.hostToDevice],
    ['device_to_host', counts.deviceToHost],
    ['device_to_device', counts.deviceToDevice],
  ];
  return statsNode(
    'gaudi_card',
    cardName(index),
    {
      cs_in_flight: submissions.inFlight,
      arenas,
      arena_bytes: arenaBytes,
      blocks,
      block_bytes: usedBytes,
      largest_free_bytes: largestFreeBytes,
    },
    directions.flatMap(([name, count]) => (count === undefined ? [] : [statsNode('gaudi_dma', name, { ...count })])),
  );
}

/** Every open card, with its dma-bufs, and the registration cache. */
export function gaudiStats({ cards, rcache }: OpenGaudi): StatsNode[] {
  const dmabufs = cards.map(({ index, device }) => device.card.dmabufs.node(cardName(index)));
  return [cacheStats('gaudi_host', rcache), ...cards.map(cardStats), ...dmabufs];
}
