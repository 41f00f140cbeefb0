/** Runs the contract of memory protection over every kind of connection; card memory at RDMA devices. */

import { describe, expect, it, vi } from 'vitest';
import { RegionTable } from '../../../src/emulator/rdma/memory/dma-memory.ts';
import { MemoryType } from '../../../src/index.ts';
import { AccessFlag } from '../../../src/verbs/abi.ts';
import { CONNECTION_KINDS, connectionKind, serving, unmap, usePairs } from '../../fixtures/pair.ts';
import { ALL, BYTES, protectionContract } from './ucp-protection.ts';

for (const kind of CONNECTION_KINDS) protectionContract(kind);

describe('protection of memory of a card at RDMA devices', () => {
  const kind = connectionKind('RDMA');
  const fixture = usePairs(kind);

  it('is that of the region of its dma-buf, which moves the bytes', async () => {
    const pair = await fixture.pair(kind);
    const { two, ab } = pair;
    const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, RELAXED_ORDERING } = AccessFlag;
    const registered = vi.spyOn(RegionTable.prototype, 'add');
    for (const [protection, flags] of [
      [ALL, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC],
      [['local-read', 'local-write', 'remote-read'], LOCAL_WRITE | REMOTE_READ],
      [['local-read', 'remote-read'], REMOTE_READ],
      [['local-read'], 0],
    ] as const) {
      registered.mockClear();
      const memory = two.context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI, protection });
      expect(registered.mock.calls.map(([{ access }]) => access & ~RELAXED_ORDERING)).toEqual([flags]);
      if ((flags & REMOTE_READ) !== 0) {
        const rkey = ab.unpackRkey(two.context.packRkey(memory));
        const got = await serving(pair, () => ab.get(new Uint8Array(BYTES), rkey));
        expect(got).toMatchObject({ transport: 'rc', protocol: 'get/zcopy' });
        rkey.release();
      }
      unmap(two, memory);
    }
    registered.mockRestore();
  });
});
