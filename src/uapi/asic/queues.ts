/**
 * The queues of gaudi and gaudi2: id, name, kind, engine and stream of each. Only the driver knows which queues are enabled on a card.
 *
 * A queue is one of four streams of a QMAN: `id = first id of the QMAN + stream`. Gaudi3 has no queue ids.
 * Source: enums gaudi_queue_id and gaudi2_queue_id, drm/habanalabs_accel.h, Linux 6.12 (the same in 6.1); kinds and lengths from
 * gaudi.c, gaudi2.c and gaudi.h, gaudiP.h, Linux 6.12.
 */

/**
 * How the driver feeds a queue: external (kernel command buffer, completion tracked), internal (address, completion not tracked),
 * hw (address, completion tracked) or cpu (the driver's own mailbox).
 */
export type QueueKind = 'external' | 'internal' | 'hw' | 'cpu';

/** The engine of a queue. On gaudi `dma` 0 and 1 are the PCI channels, 2 to 7 the HBM channels. */
export type EngineClass = 'dma' | 'pdma' | 'edma' | 'mme' | 'tpc' | 'nic' | 'rotator' | 'cpu';

/** One queue. */
export interface QueueEntry {
  readonly id: number;
  /** Name in the kernel header without the prefix `GAUDI_QUEUE_ID_` or `GAUDI2_QUEUE_ID_`, such as `DCORE0_EDMA_1_2`. */
  readonly name: string;
  readonly kind: QueueKind;
  readonly engine: EngineClass;
  /** Number of the engine among those of its class; on gaudi2 within its dcore for EDMA, MME and TPC. */
  readonly engineIndex: number;
  /** Dcore of the engine; -1 when the name has none. */
  readonly dcore: number;
  /** 0 to 3; 0 for the CPU queue. */
  readonly stream: number;
  /** Id of the queue of stream 0 of the same QMAN. */
  readonly firstOfQman: number;
  /**
   * Whether the driver accepts submissions to the queue: false for the CPU queue, for NIC queues, which need the NIC driver, and for the streams of the
   * PDMAs of gaudi2 except PDMA_0_0, PDMA_0_1 and PDMA_1_0 (gaudi2_is_queue_enabled of gaudi2.c, the same in Linux 6.1 and 6.12).
   */
  readonly userUsable: boolean;
  /** Entries of the queue; a power of two. */
  readonly length: number;
  /** Whether a MULTI_CS wait accepts submissions that used the queue. */
  readonly streamMaster: boolean;
}

/** Streams of a QMAN. */
export const STREAMS_PER_QMAN = 4;

/** Default number of entries of a queue (HL_QUEUE_LENGTH). */
export const QUEUE_LENGTH = 4096;

/** Entries of the MME and TPC queues of gaudi (MME_QMAN_LENGTH, TPC_QMAN_LENGTH). */
export const GAUDI_COMPUTE_QUEUE_LENGTH = 1024;

/** Number of queue ids of gaudi (GAUDI_QUEUE_ID_SIZE). */
export const GAUDI_QUEUE_COUNT = 113;

/** Number of queue ids of gaudi2 (GAUDI2_QUEUE_ID_SIZE). */
export const GAUDI2_QUEUE_COUNT = 261;

/** First queue ids of the QMANs that programs name: add a stream, 0 to 3. */
export const GaudiQueueBase = {
  /** Host to device. */
  DMA_0: 0,
  /** Device to host. */
  DMA_1: 4,
  CPU_PQ: 8,
  /** First of the six HBM channels DMA_2 to DMA_7. */
  DMA_2: 9,
  MME_0: 33,
  TPC_0: 41,
  NIC_0: 73,
} as const;

/** First queue ids of the QMANs that programs name: add a stream, 0 to 3. */
export const Gaudi2QueueBase = {
  /** Host to device. */
  PDMA_0: 0,
  /** Device to host. */
  PDMA_1: 4,
  DCORE0_EDMA_0: 8,
  DCORE1_EDMA_0: 48,
  DCORE2_EDMA_0: 84,
  DCORE3_EDMA_0: 120,
  NIC_0: 156,
  ROT_0: 252,
  CPU_PQ: 260,
} as const;

interface QmanGroup {
  readonly prefix: string;
  readonly engine: EngineClass;
  readonly kind: QueueKind;
  /** Number of QMANs, numbered from `firstIndex`. */
  readonly count: number;
  readonly firstIndex?: number;
  readonly dcore?: number;
  readonly length?: number;
  /** Number of streams that accept submissions, from stream 0; omitted for all. */
  readonly usableStreams?: number;
  readonly streamMaster?: boolean;
}

const CPU_GROUP: QmanGroup = { prefix: 'CPU_PQ', engine: 'cpu', kind: 'cpu', count: 1, usableStreams: 0 };

/** Groups in the order of their ids; DMA_0 and DMA_1 are the stream masters. */
const GAUDI_GROUPS: readonly QmanGroup[] = [
  { prefix: 'DMA', engine: 'dma', kind: 'external', count: 2, streamMaster: true },
  CPU_GROUP,
  { prefix: 'DMA', engine: 'dma', kind: 'internal', count: 6, firstIndex: 2 },
  { prefix: 'MME', engine: 'mme', kind: 'internal', count: 2, length: GAUDI_COMPUTE_QUEUE_LENGTH },
  { prefix: 'TPC', engine: 'tpc', kind: 'internal', count: 8, length: GAUDI_COMPUTE_QUEUE_LENGTH },
  { prefix: 'NIC', engine: 'nic', kind: 'internal', count: 10, usableStreams: 0 },
];

const GAUDI2_GROUPS: readonly QmanGroup[] = [
  { prefix: 'PDMA', engine: 'pdma', kind: 'hw', count: 1, usableStreams: 2 },
  { prefix: 'PDMA', engine: 'pdma', kind: 'hw', count: 1, firstIndex: 1, usableStreams: 1 },
  ...[0, 1, 2, 3].flatMap((dcore): QmanGroup[] => [
    { prefix: `DCORE${dcore}_EDMA`, engine: 'edma', kind: 'hw', count: 2, dcore },
    { prefix: `DCORE${dcore}_MME`, engine: 'mme', kind: 'hw', count: 1, dcore },
    { prefix: `DCORE${dcore}_TPC`, engine: 'tpc', kind: 'hw', count: dcore === 0 ? 7 : 6, dcore },
  ]),
  { prefix: 'NIC', engine: 'nic', kind: 'hw', count: 24, usableStreams: 0 },
  { prefix: 'ROT', engine: 'rotator', kind: 'hw', count: 2 },
  CPU_GROUP,
];

function expand(groups: readonly QmanGroup[]): readonly QueueEntry[] {
  const queues: QueueEntry[] = [];
  for (const group of groups) {
    for (let qman = 0; qman < group.count; qman++) pushQman(queues, group, (group.firstIndex ?? 0) + qman);
  }
  return queues;
}

function pushQman(queues: QueueEntry[], group: QmanGroup, engineIndex: number): void {
  const firstOfQman = queues.length;
  const streams = group.kind === 'cpu' ? 1 : STREAMS_PER_QMAN;
  for (let stream = 0; stream < streams; stream++) {
    queues.push({
      id: firstOfQman + stream,
      name: group.kind === 'cpu' ? group.prefix : `${group.prefix}_${engineIndex}_${stream}`,
      kind: group.kind,
      engine: group.engine,
      engineIndex,
      dcore: group.dcore ?? -1,
      stream,
      firstOfQman,
      userUsable: stream < (group.usableStreams ?? STREAMS_PER_QMAN),
      length: group.length ?? QUEUE_LENGTH,
      streamMaster: group.streamMaster ?? false,
    });
  }
}

/** The queues of gaudi; the index is the id. */
export const GAUDI_QUEUES: readonly QueueEntry[] = expand(GAUDI_GROUPS);

/** The queues of gaudi2; the index is the id. */
export const GAUDI2_QUEUES: readonly QueueEntry[] = expand(GAUDI2_GROUPS);
