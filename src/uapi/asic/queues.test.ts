import { describe, expect, it } from 'vitest';
import {
  GAUDI_QUEUE_COUNT,
  GAUDI_QUEUES,
  GAUDI2_QUEUE_COUNT,
  GAUDI2_QUEUES,
  Gaudi2QueueBase,
  GaudiQueueBase,
  type QueueEntry,
} from './queues.ts';

function countOf(queues: readonly QueueEntry[], key: 'kind' | 'engine'): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const queue of queues) counts[queue[key]] = (counts[queue[key]] ?? 0) + 1;
  return counts;
}

describe.each([
  ['gaudi', GAUDI_QUEUES, GAUDI_QUEUE_COUNT],
  ['gaudi2', GAUDI2_QUEUES, GAUDI2_QUEUE_COUNT],
] as const)('queues of %s', (asic, queues, count) => {
  it('are numbered by their index, with distinct names', () => {
    expect(queues.length).toBe(count);
    expect(queues.map((queue) => queue.id)).toEqual([...queues.keys()]);
    expect(new Set(queues.map((queue) => queue.name)).size).toBe(count);
  });

  it('belong to QMANs of four streams', () => {
    for (const queue of queues) expect(queue.id).toBe(queue.firstOfQman + queue.stream);
    for (const queue of queues) expect(queue.stream).toBeLessThan(4);
  });

  it('keep the CPU queue, the NIC queues and most streams of PDMAs from users', () => {
    const refused = queues.filter((queue) => !queue.userUsable);
    const engines = new Set(refused.map((queue) => queue.engine));
    expect(engines).toEqual(new Set(asic === 'gaudi' ? ['cpu', 'nic'] : ['cpu', 'nic', 'pdma']));
    const usable = queues.filter(({ engine, userUsable }) => engine === 'pdma' && userUsable);
    expect(usable.map(({ name }) => name)).toEqual(asic === 'gaudi' ? [] : ['PDMA_0_0', 'PDMA_0_1', 'PDMA_1_0']);
  });
});

describe('gaudi', () => {
  it('has external PCI DMA queues and internal ones for the rest', () => {
    expect(countOf(GAUDI_QUEUES, 'kind')).toEqual({ external: 8, cpu: 1, internal: 104 });
    expect(countOf(GAUDI_QUEUES, 'engine')).toEqual({ dma: 32, cpu: 1, mme: 8, tpc: 32, nic: 40 });
  });

  it('has short MME and TPC queues and eight stream masters', () => {
    const short = GAUDI_QUEUES.filter((queue) => queue.length === 1024);
    expect(new Set(short.map((queue) => queue.engine))).toEqual(new Set(['mme', 'tpc']));
    expect(GAUDI_QUEUES.filter((queue) => queue.length !== 1024 && queue.length !== 4096)).toEqual([]);
    expect(GAUDI_QUEUES.filter((queue) => queue.streamMaster).map((queue) => queue.id)).toEqual([
      0, 1, 2, 3, 4, 5, 6, 7,
    ]);
  });

  it('has its QMANs where the bases say', () => {
    expect(GAUDI_QUEUES[GaudiQueueBase.DMA_2]?.name).toBe('DMA_2_0');
    for (const [name, id] of Object.entries(GaudiQueueBase)) {
      expect(GAUDI_QUEUES[id]?.name).toBe(name === 'CPU_PQ' ? name : `${name}_0`);
    }
  });
});

describe('gaudi2', () => {
  it('has hardware queues only, and a CPU queue', () => {
    expect(countOf(GAUDI2_QUEUES, 'kind')).toEqual({ hw: 260, cpu: 1 });
    expect(countOf(GAUDI2_QUEUES, 'engine')).toEqual({
      pdma: 8,
      edma: 32,
      mme: 16,
      tpc: 100,
      nic: 96,
      rotator: 8,
      cpu: 1,
    });
    expect(GAUDI2_QUEUES.some((queue) => queue.streamMaster)).toBe(false);
  });

  it('has its QMANs where the bases say', () => {
    for (const [name, id] of Object.entries(Gaudi2QueueBase)) {
      expect(GAUDI2_QUEUES[id]?.name).toBe(name === 'CPU_PQ' ? name : `${name}_0`);
    }
  });

  it('numbers engines within their dcore', () => {
    expect(GAUDI2_QUEUES[127]).toMatchObject({ name: 'DCORE3_EDMA_1_3', dcore: 3, engineIndex: 1, stream: 3 });
    expect(GAUDI2_QUEUES[0]).toMatchObject({ dcore: -1, engine: 'pdma' });
  });
});
