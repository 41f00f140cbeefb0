/** Remote keys say which memory they name, and channels which cards exchange data: by `describe`, `util.inspect`, snapshots, `inspect` and metrics. */

import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { metricFamilies } from '../../../src/api/snapshot/metrics.ts';
import { snapshotText } from '../../../src/assembly/inspect/snapshot-text.ts';
import { MemoryType } from '../../../src/index.ts';
import { type Stack, useContexts } from '../../fixtures/contexts.ts';
import { contents, ENGINES, expectSame, keyFor, pattern, serving } from '../../fixtures/pair.ts';

const BYTES = 10_000;
const SKIP = 512;

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);

  it('a remote key names card, process, arena and channels, and the channel is shown by every tool', async () => {
    const node = fixture.node({ cards: 2 });
    const onCard = (card: number): Promise<Omit<Stack, 'node'>> => {
      const GAUDI_MAPPING_TABLE = JSON.stringify([{ index: 0, bus_id: node.cards()[card]!.busId }]);
      return fixture.openOn(node, { env: { UCX_TLS: 'all', GAUDI_MAPPING_TABLE } });
    };
    const [here, there] = [await onCard(0), await onCard(1)];
    const { busId } = node.cards()[1]!;
    // The first block, so that the second one is not at the start of its arena.
    there.context.memMap({ allocate: SKIP, memoryType: MemoryType.GAUDI });
    const memory = there.context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const endpoint = here.worker.endpoint(there.worker.address());
    await serving({ one: here, two: there }, async () => {
      const rkey = keyFor(endpoint, there, memory);
      const block = there.context.device(0).memory.find(memory.address)!;
      const source = {
        busId,
        pid: process.pid,
        offset: SKIP,
        generation: block.arena.generation,
        arenaBytes: block.arena.byteLength,
      };
      const part = (): object | undefined => rkey.describe().find(({ md }) => md === 'gaudi_ipc');
      expect(part()).toEqual({ md: 'gaudi_ipc', byteLength: BYTES, live: true, source: { ...source, channels: [] } });
      expect(here.context.snapshot().channels).toEqual([]);
      expect((await endpoint.put(pattern(BYTES, 1), rkey)).transport).toMatch(/^gaudi_ipc/);
      await endpoint.flush();
      expectSame(await contents(there, memory), pattern(BYTES, 1));
      expect(part()).toMatchObject({ source: { channels: [0] } });
      expect(inspect(rkey)).toContain(
        `source: offset ${SKIP} of arena ${source.generation} of process ${process.pid} on the card at ${busId}`,
      );
      const traffic = { puts: 1, gets: 0, bytesPut: BYTES, bytesGot: 0 };
      const snapshot = here.context.snapshot();
      expect(snapshot.channels).toEqual([{ id: 0, local: 'gaudi0', remote: busId, ...traffic }]);
      const text = snapshotText({ command: '', contexts: [{ number: 1, ...snapshot }] } as never).join('\n');
      expect(text).toContain(
        `channel 0 from gaudi0 to the card at ${busId}: 1 put of ${BYTES} bytes, 0 gets of 0 bytes`,
      );
      const families = metricFamilies([{ snapshot, labels: {} }], []);
      const labels = { channel: '0', local: 'gaudi0', remote: busId, operation: 'put' };
      const values = families.find(({ name }) => name === 'ucx_channel_bytes_total')?.values;
      expect(values).toContainEqual({ labels, value: BYTES });
      there.context.memUnmap(memory);
      expect(part()).toMatchObject({ live: false });
      rkey.release();
      expect(rkey.describe()).toEqual([]);
    });
  });

  it('a key of memory of this context names its card too, and one of host memory has no source', async () => {
    const { context, endpoint, node } = await fixture.open();
    const memory = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const { busId } = node.cards()[0]!;
    const { generation } = context.device(0).memory.find(memory.address)!.arena;
    expect(rkey.describe().find(({ md }) => md === 'gaudi_copy')).toMatchObject({
      byteLength: BYTES,
      source: { busId, offset: 0, generation, pid: process.pid, channels: [] },
    });
    const host = endpoint.unpackRkey(context.packRkey(context.memMap({ buffer: new Uint8Array(64) })));
    expect(host.describe().length).toBeGreaterThan(0);
    expect(host.describe().every(({ source }) => source === undefined)).toBe(true);
    for (const key of [rkey, host]) key.release();
  });
});
