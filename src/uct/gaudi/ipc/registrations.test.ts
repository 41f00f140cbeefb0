/** The registrations of a memory domain: what importers keep and lose, memory of the application, and a card that is lost. */

import { describe, expect, it } from 'vitest';
import { packedKey } from '../../../../test/contract/uct/driven-operations.ts';
import type { IpcBlock, IpcPeer } from '../../../../test/fixtures/processes/ipc-peer.ts';
import { useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { RKEY_TABLE_KEY_BYTES } from '../../base/key/rkey-table.ts';
import { Registrations } from './registrations.ts';
import { ipcBlock, LOCAL_OWNERS } from './shared-memory.ts';

const fixture = useIpcPeers();

const BYTES = Uint8Array.of(1, 2, 3, 4);

async function used(here: IpcPeer, ...blocks: readonly IpcBlock[]): Promise<void> {
  for (const block of blocks) expect(await here.putShort(BYTES, here.unpack(block))).toBe(Status.OK);
}

describe('an import', () => {
  it('stays until the last memory of its arena is not registered any more, and beside those of other arenas', async () => {
    const [here, there] = fixture.pair();
    const [first, second] = [there.allocate(64), there.allocate(64)];
    const alone = there.allocate(64, { shared: true });
    await used(here, first, second, alone);
    const { cache } = here.ipc.imports;
    expect(cache.numRegions).toBe(2);
    there.ipc.memDereg(first.memory);
    there.copy.memFree(first.allocated);
    expect(cache.numRegions).toBe(2);
    there.free(alone);
    expect(cache.numRegions).toBe(1);
    there.free(second);
    expect(cache.numRegions).toBe(0);
  });

  it('ends with the memory domain of its owner', async () => {
    const [here, there] = fixture.pair();
    await used(here, there.allocate(64));
    there.ipc.close();
    expect([here.ipc.imports.cache.numRegions, here.shared.cards[0]!.device.imports.count]).toEqual([0, 0]);
  });
});

describe('memory of the application', () => {
  it('has its own place in the arena, and is deregistered once after it was freed', () => {
    const here = fixture.open();
    const block = here.shared.cards[0]!.device.memory.allocate(4096);
    const address = block.address + 512n;
    const memory = here.ipc.memReg({ memoryType: MemoryType.GAUDI, address, byteLength: 256, sysDevice: 0 });
    const key = here.ipc.rkeyUnpack(packedKey(here.ipc, memory));
    expect([key.place.arenaOffset, key.byteLength]).toEqual([block.offset + 512, 256]);
    key.release();
    block.free();
    here.ipc.memDereg(memory);
    expect(() => here.ipc.memDereg(memory)).toThrow(/has been freed or deregistered/);
  });
});

describe('a card that is lost', () => {
  it('takes its keys with it, and those of no other card', () => {
    const [one, two] = fixture.pair();
    const cards = [one, two].map(({ shared }) => shared.cards[0]!);
    const registrations = new Registrations(cards, { log: fixture.log.log, clock: systemClock });
    const blocks = cards.map(({ device }) => device.memory.allocate(64));
    const before = new Set(LOCAL_OWNERS.keys());
    const keys = blocks.map((block, i) => {
      const memory = registrations.add(ipcBlock({ card: cards[i]!, block, part: undefined }, () => undefined));
      const packed = new Uint8Array(RKEY_TABLE_KEY_BYTES);
      registrations.pack(memory, packed, 0);
      return { memory, packed };
    });
    const ownerKey = [...LOCAL_OWNERS.keys()].find((each) => !before.has(each))!;
    const owner = LOCAL_OWNERS.get(ownerKey)!;
    registrations.loseCard(cards[0]!);
    expect(() => owner.find(keys[0]!.packed)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    expect(owner.find(keys[1]!.packed)).toBe(keys[1]!.memory);
    registrations.close();
    expect(LOCAL_OWNERS.has(ownerKey)).toBe(false);
    for (const block of blocks) block.free();
  });
});
