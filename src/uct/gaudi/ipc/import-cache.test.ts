/** The import cache of gaudi_ipc: limits, order of eviction, and entries in use. */

import { describe, expect, it } from 'vitest';
import { finish } from '../../../../test/contract/uct/uct-fixture.ts';
import type { IpcBlock, IpcPeer } from '../../../../test/fixtures/processes/ipc-peer.ts';
import { useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { IpcKey } from './key.ts';

const fixture = useIpcPeers();

const MIB = 2 ** 20;

describe('the import cache', () => {
  /** Allocates blocks in separate arenas. */
  function arenas(there: IpcPeer, count: number): IpcBlock[] {
    return Array.from({ length: count }, () => there.allocate(64, { shared: true }));
  }

  async function use(here: IpcPeer, key: IpcKey): Promise<void> {
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
  }

  it('evicts the least recently used import at its limit of regions', async () => {
    const [here, there] = fixture.pair({ config: { GAUDI_IPC_CACHE_MAX_REGIONS: '2' } });
    const [a, b, c] = arenas(there, 3).map((block) => here.unpack(block)) as [IpcKey, IpcKey, IpcKey];
    const { cache } = here.ipc.imports;
    for (const key of [a, b, a, c]) await use(here, key);
    expect(cache.counters).toMatchObject({ mem_regs: 3, mem_deregs: 1 });
    expect([a, b, c].map((key) => key.isReady(0))).toEqual([true, false, true]);
    await use(here, b);
    expect(cache.counters).toMatchObject({ mem_regs: 4, mem_deregs: 2 });
    expect([a, b, c].map((key) => key.isReady(0))).toEqual([false, true, true]);
    expect(here.shared.cards[0]!.device.imports.count).toBe(2);
  });

  it('evicts imports at its limit of bytes', async () => {
    const [here, there] = fixture.pair({ config: { GAUDI_IPC_CACHE_MAX_SIZE: '1600m' } });
    const keys = arenas(there, 3).map((block) => here.unpack(block));
    for (const key of keys) await use(here, key);
    expect(here.ipc.imports.cache).toMatchObject({ numRegions: 2, totalSize: 2 * 768 * MIB });
  });

  it('never evicts an import that a transfer uses', async () => {
    const [here, there] = fixture.pair({ config: { GAUDI_IPC_CACHE_MAX_REGIONS: '1' } });
    const [a, b] = arenas(there, 2).map((block) => here.unpack(block)) as [IpcKey, IpcKey];
    const { cache } = here.ipc.imports;
    expect(here.tryPutShort(new Uint8Array(8), a)).toBe(Status.INPROGRESS);
    expect(here.tryPutShort(new Uint8Array(8), b)).toBe(Status.INPROGRESS);
    expect([cache.numRegions, cache.counters.mem_deregs]).toEqual([2, 0]);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    for (let round = 0; round < 256; round++) here.iface.progress();
    expect([cache.numRegions, cache.counters.mem_deregs]).toEqual([1, 1]);
    expect([a.isReady(0), b.isReady(0)]).toEqual([false, true]);
  });

  it('ends an invalidated import with its last transfer', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64, { shared: true });
    const key = here.unpack(far);
    const { cache } = here.ipc.imports;
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.INPROGRESS);
    there.ipc.memDereg(far.memory);
    expect([cache.numRegions, cache.leaving]).toEqual([0, 1]);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    here.iface.progress();
    expect(cache.leaving).toBe(0);
    there.copy.memFree(far.allocated);
  });

  it('evicts imports when the addresses of the card are used up', async () => {
    const [here, there] = fixture.pair();
    const [a, b] = arenas(there, 2).map((block) => here.unpack(block)) as [IpcKey, IpcKey];
    await use(here, a);
    fixture.node.inject(0, { kind: 'exhausted', resource: 'va', nth: 1 });
    await use(here, b);
    expect(here.ipc.imports.cache.counters).toMatchObject({ mem_regs: 2, mem_deregs: 1 });
  });
});
