/** The scale-out ports of the cards (UCX_GAUDI_COPY_NIC_SCALE_OUT): detected, reported, or required. No data is sent over them here. */

import { type DriverNode, getNicPorts } from '../../../../hlthunk/index.ts';
import type { Ternary } from '../../../../ucs/config/value.ts';
import type { Log } from '../../../../ucs/debug/log.ts';
import { unmetDemand } from './demands.ts';
import type { GaudiCard } from './gaudi-cards.ts';

/** Whether scale-out ports are detected: `yes` requires them, `try` uses existing ones. */
export type ScaleOutMode = Ternary;

/**
 * Detects the scale-out ports of open cards and logs them.
 * @throws UcxError ERR_UNSUPPORTED if they are required and a card has none, or its driver does not report ports
 */
export function detectScaleOut(cards: readonly GaudiCard[], node: DriverNode, mode: ScaleOutMode, log: Log): void {
  if (mode === 'no') return;
  for (const { index, device } of cards) {
    const external = getNicPorts(device, device.info, node)?.filter((port) => port.external);
    if (external !== undefined && external.length > 0) {
      const up = external.filter(({ linkUp }) => linkUp !== false).length;
      log.debug(`gaudi${index}: scale-out ports ${external.map(({ port }) => port).join(', ')}, ${up} with a link`);
    } else if (mode === 'yes') {
      const why = external === undefined ? 'the driver reports no NIC ports' : 'the card has no scale-out ports';
      throw unmetDemand(index, 'NIC_SCALE_OUT', why);
    }
  }
}
