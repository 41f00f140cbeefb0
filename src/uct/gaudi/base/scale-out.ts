/** The scale-out ports of the cards (UCX_GAUDI_COPY_NIC_SCALE_OUT): found, reported, or demanded. Nothing is sent over them here. */

import { type DriverNode, GaudiErrorCode, gaudiError, getNicPorts } from '../../../hlthunk/index.ts';
import type { Ternary } from '../../../ucs/config/value.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import type { GaudiCard } from './gaudi-cards.ts';

/** Whether scale-out ports are looked for: `yes` demands them, `try` takes what there is. */
export type ScaleOutMode = Ternary;

/**
 * Looks for the scale-out ports of open cards and tells of them in the log.
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND where they are demanded and a card has none, or its driver does not report ports
 */
export function detectScaleOut(cards: readonly GaudiCard[], node: DriverNode, mode: ScaleOutMode, log: Log): void {
  if (mode === 'no') return;
  for (const { index, device } of cards) {
    const external = getNicPorts(device, device.info, node)?.filter((port) => port.external);
    if (external !== undefined && external.length > 0) {
      const up = external.filter(({ linkUp }) => linkUp !== false).length;
      log.debug(`gaudi${index}: scale-out ports ${external.map(({ port }) => port).join(', ')}, ${up} with a link`);
    } else if (mode === 'yes') {
      const why = external === undefined ? 'the driver reports no NIC ports' : 'the card has none';
      throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `gaudi${index} has no scale-out ports: ${why}`, { index });
    }
  }
}
