/** Sharing device memory as it is observed: counters in statistics, snapshots, `inspect` and metrics, and a log record for every step. */

import { closeSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { metricFamilies } from '../../../src/api/snapshot/metrics.ts';
import { snapshotText } from '../../../src/assembly/inspect/snapshot-text.ts';
import * as hlthunk from '../../../src/hlthunk.ts';
import { Context, type DmabufSnapshot, MemoryType } from '../../../src/index.ts';
import { LogLevel } from '../../../src/ucs/debug/log.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { ENGINES } from '../../fixtures/pair.ts';

const GAUDI = MemoryType.GAUDI;
const BYTES = 10_000;
const NONE = { exports: 0, exportBytes: 0, imports: 0, importBytes: 0, mappings: 0, mappedBytes: 0, descriptors: 0 };

function ownerOf({ dmabufs }: { readonly dmabufs: readonly DmabufSnapshot[] }, owner: string): DmabufSnapshot {
  const found = dmabufs.filter((each) => each.owner === owner);
  expect(found).toHaveLength(1);
  return found[0]!;
}

describe.each(ENGINES)('the dma-bufs of a context over %s', (engine) => {
  const fixture = useContexts(engine);

  it('are counted once, and shown by every tool', async () => {
    const { context } = await fixture.open();
    expect(ownerOf(context.snapshot(), 'gaudi0')).toEqual({ owner: 'gaudi0', ...NONE });
    const memory = context.memMap({ allocate: BYTES, memoryType: GAUDI });
    const fds = [1, 2].map(() => context.exportDmabuf(memory));
    for (const each of fds) each.close();
    const snapshot = context.snapshot();
    // The arena keeps one descriptor for all exports of its blocks.
    const counts = { ...NONE, exports: 2, exportBytes: 2 * BYTES, descriptors: 1 };
    expect(ownerOf(snapshot, 'gaudi0')).toEqual({ owner: 'gaudi0', ...counts });
    expect(ownerOf(snapshot, 'host')).toEqual({ owner: 'host', ...NONE });
    expect(JSON.stringify(context.stats()).match(/"dmabuf_exports":2/g)).toHaveLength(1);
    const text = snapshotText({
      pid: 1,
      tid: 1,
      host: 'x',
      command: 'x',
      version: '1',
      nodeVersion: '1',
      uptimeSeconds: 1,
      contexts: [{ number: 1, ...snapshot }],
    } as unknown as Parameters<typeof snapshotText>[0]).join('\n');
    expect(text).toContain(
      `dma-bufs of gaudi0: 2 exported (${2 * BYTES} bytes), 0 imported (0 bytes), 0 mapped (0 bytes), 1 descriptor kept open`,
    );
    expect(text).not.toContain('dma-bufs of host');
    const values = metricFamilies([{ snapshot, labels: {} }], []).flatMap(({ name, values: each }) =>
      each.flatMap(({ labels, value }) => (labels['owner'] === 'gaudi0' ? [[name, value]] : [])),
    );
    expect(Object.fromEntries(values)).toEqual({
      ucx_dmabuf_exports_total: 2,
      ucx_dmabuf_export_bytes_total: 2 * BYTES,
      ucx_dmabuf_imports_total: 0,
      ucx_dmabuf_import_bytes_total: 0,
      ucx_dmabuf_mappings: 0,
      ucx_dmabuf_mapped_bytes: 0,
      ucx_dmabuf_descriptors: 1,
    });
  });
});

describe('imports', () => {
  const fixture = useContexts('native');

  it('are counted by the card and by the RDMA devices until they end, and are in the log', async () => {
    const node = fixture.node({ cards: 2, nics: 1 });
    const records: string[] = [];
    const open = (card: number): Promise<Context> =>
      Context.create({
        node,
        env: { GAUDI_MAPPING_TABLE: JSON.stringify([{ index: 0, bus_id: node.cards()[card]!.busId }]) },
        configDirectories: [],
        config: { LOG_LEVEL: 'debug' },
        logSink: (level, _component, message) => level === LogLevel.DEBUG && records.push(message),
      });
    const [owner, here] = [await open(1), await open(0)];
    const memory = owner.memMap({ allocate: BYTES, memoryType: GAUDI });
    const { fd, offset } = owner.exportDmabuf(memory);
    const mapped = here.memMap({ dmabuf: { fd, offset, byteLength: BYTES }, memoryType: GAUDI });
    closeSync(fd);
    const card = ownerOf(here.snapshot(), 'gaudi0');
    expect(card).toMatchObject({ importBytes: card.imports * BYTES, mappings: card.imports });
    expect(card.imports).toBeGreaterThan(0);
    expect(ownerOf(here.snapshot(), 'ib')).toMatchObject({ imports: 1, importBytes: BYTES, mappings: 1 });
    here.exportDmabuf(mapped).close();
    expect(ownerOf(here.snapshot(), 'gaudi0').exports).toBeGreaterThan(card.exports);
    here.memUnmap(mapped);
    for (const each of ['gaudi0', 'ib']) {
      expect(ownerOf(here.snapshot(), each)).toMatchObject({ mappings: 0, mappedBytes: 0, descriptors: 0 });
    }
    await here.close();
    await owner.close();
    const steps = ['exported', 'imported', 'released'];
    for (const step of steps)
      expect(records.filter((record) => record.startsWith(`dma-buf ${step}: `))).not.toEqual([]);
    const released = records.filter((record) => record.startsWith('dma-buf released: '));
    expect(released.filter((record) => record.includes('of card 0 '))).toHaveLength(card.imports);
  });
});

describe('IPC handles', () => {
  expectNoLeaks();

  it('are counted, can be looked at, and every step is in the log', () => {
    const records: string[] = [];
    const node = hlthunk.openDriverNode({
      driver: 'emulator',
      env: {},
      configDirectories: [],
      config: { GAUDI_EMULATOR_CARDS: '2' },
      logSink: () => {},
    });
    const log = {
      level: LogLevel.DEBUG,
      debug: (message: string) => records.push(message),
      child: () => log,
    } as unknown as NonNullable<hlthunk.DeviceOptions['log']>;
    for (const name of ['error', 'warn', 'diag', 'info']) Object.assign(log, { [name]: () => {} });
    const [owner, here] = node.cards().map(({ busId }) => hlthunk.open(node, { busId }, { log }));
    const block = owner!.memory.allocate(BYTES);
    const { fd, handle } = hlthunk.ipcWrapHandle(owner!, block);
    expect(hlthunk.ipcInspectHandle(handle)).toEqual({
      busId: owner!.busId,
      offset: block.offset,
      byteLength: BYTES,
      generation: block.arena.generation,
      arenaBytes: block.arena.byteLength,
    });
    const mapping = hlthunk.ipcOpenHandle(here!, fd, handle);
    closeSync(fd);
    hlthunk.ipcCloseHandle(mapping);
    expect(here!.card.dmabufs.node('x').counters).toMatchObject({ dmabuf_imports: 1, dmabuf_mappings: 0 });
    expect(owner!.card.dmabufs.node('x').counters).toMatchObject({ dmabuf_exports: 1, dmabuf_export_bytes: BYTES });
    for (const each of [owner!, here!]) each.close();
    node.close();
    const described = `${BYTES} bytes at offset 0 of arena ${block.arena.generation}`;
    expect(records.map((record) => record.split(/, (?:fd|at) | at 0x/)[0])).toEqual([
      expect.stringContaining(`dma-buf exported: ${described}`),
      expect.stringContaining(`IPC handle wrapped: ${described}`),
      expect.stringContaining('dma-buf imported'),
      expect.stringContaining(`IPC handle opened: ${described}`),
      expect.stringContaining('dma-buf released'),
      expect.stringContaining('IPC handle closed'),
    ]);
    for (const bad of [new Uint8Array(40), new Uint8Array(3), 'x']) {
      expect(() => hlthunk.ipcInspectHandle(bad as Uint8Array)).toThrow(/argument handle must be/);
    }
  });
});
