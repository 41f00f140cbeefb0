/** Counters of dma-bufs: totals of exports and imports, levels of mappings and descriptors, each with its own value. */

import { expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { DmabufCounts } from './dmabuf-counts.ts';

it('counts each kind of event, and logs it', () => {
  const { log, records } = createTestLog('card');
  const counts = new DmabufCounts(log);
  counts.exported(100, 'block 1');
  counts.exported(23, 'block 2');
  counts.imported(1000, 'range 1');
  counts.imported(2000, 'range 2');
  counts.imported(4000, 'range 3');
  counts.released(2000, 'range 2');
  for (let kept = 0; kept < 6; kept++) counts.kept();
  counts.closed();
  counts.note('told');
  expect(counts.node('gaudi0')).toEqual({
    className: 'dmabuf',
    name: 'gaudi0',
    counters: {
      dmabuf_exports: 2,
      dmabuf_export_bytes: 123,
      dmabuf_imports: 3,
      dmabuf_import_bytes: 7000,
      dmabuf_mappings: 2,
      dmabuf_mapped_bytes: 5000,
      dmabuf_descriptors: 5,
    },
    children: [],
  });
  expect(records.map(({ message }) => message)).toEqual([
    'dma-buf exported: block 1',
    'dma-buf exported: block 2',
    'dma-buf imported: range 1',
    'dma-buf imported: range 2',
    'dma-buf imported: range 3',
    'dma-buf released: range 2',
    'told',
  ]);
  const silent = new DmabufCounts();
  silent.exported(1, 'x');
  expect(silent.node('').counters['dmabuf_exports']).toBe(1);
});
