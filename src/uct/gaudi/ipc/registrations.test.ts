/** The registrations of a memory domain: what importers keep and lose, memory of the application, and a card that is lost. */

import { describe, expect, it } from 'vitest';
import { packedKey } from '../../../../test/contract/uct/driven-operations.ts';
import type { IpcBlock, IpcPeer } from '../../../../test/fixtures/processes/ipc-peer.ts';
import { useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { GaudiErrorCode, gaudiError } from '../../../hlthunk/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { RKEY_TABLE_KEY_BYTES } from '../../base/key/rkey-table.ts';
import { Registrations } from './registrations.ts';
import { IpcMemory, ipcBlock, LOCAL_OWNERS, type SharedSource } from './shared-memory.ts';

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

describe('memory that a transfer uses', () => {
  it('keeps its registration and its keys, unless it is ended by force', () => {
    const here = fixture.open();
    const card = here.shared.cards[0]!;
    const block = card.device.memory.allocate(64);
    const { byteLength, generation } = block.arena;
    const source: SharedSource = {
      generation,
      byteLength,
      offset: block.offset,
      wrap: () => expect.fail('is not shared'),
      end: (isForced) => {
        if (!isForced) throw gaudiError(GaudiErrorCode.DEVICE_BUSY, 'a transfer uses it');
      },
    };
    const registrations = new Registrations([card], { log: fixture.log.log, clock: systemClock });
    const before = new Set(LOCAL_OWNERS.keys());
    const memory = registrations.add(new IpcMemory(card, block, source, false));
    const packed = new Uint8Array(RKEY_TABLE_KEY_BYTES);
    registrations.pack(memory, packed, 0);
    const owner = LOCAL_OWNERS.get([...LOCAL_OWNERS.keys()].find((each) => !before.has(each))!)!;
    expect(() => registrations.end(memory, false)).toThrow(
      expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY }),
    );
    expect([registrations.size, memory.live, owner.find(packed)]).toEqual([1, true, memory]);
    registrations.end(memory, true);
    expect([registrations.size, memory.live]).toEqual([0, false]);
    expect(() => owner.find(packed)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    registrations.close();
    block.free();
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
