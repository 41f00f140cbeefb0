/** The hardware queues that DMA uses, by direction and generation of the card. */

import { Gaudi2QueueBase, GaudiQueueBase, type PacketAsic } from '../../uapi/index.ts';

/** Queue ids by direction. */
export interface DmaRoutes {
  readonly hostToDevice: number;
  readonly deviceToHost: number;
  readonly deviceToDevice: number;
}

/** The routes of each generation. */
export const DMA_ROUTES: Readonly<Record<PacketAsic, DmaRoutes>> = {
  // The HBM channels of gaudi have internal queues, whose completion the driver does not track: stream 1 of the PCI channel is used instead.
  gaudi: {
    hostToDevice: GaudiQueueBase.DMA_0,
    deviceToHost: GaudiQueueBase.DMA_1,
    deviceToDevice: GaudiQueueBase.DMA_0 + 1,
  },
  gaudi2: {
    hostToDevice: Gaudi2QueueBase.PDMA_0,
    deviceToHost: Gaudi2QueueBase.PDMA_1,
    deviceToDevice: Gaudi2QueueBase.DCORE0_EDMA_0,
  },
};
