/** gaudi_ipc between two contexts of one process on one node: transfers, requests to owners, and the end of owners. */

import { describe, expect, it } from 'vitest';
import { finish, ownBytes } from '../../../../test/contract/uct/uct-fixture.ts';
import type { IpcPeer } from '../../../../test/fixtures/processes/ipc-peer.ts';
import { asProcesses, pattern, useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { connectUnix, Errno, ownIdentity, SocketType } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { servicePath } from './channel-service.ts';

const fixture = useIpcPeers();

const MIB = 2 ** 20;
/** Lengths that are not multiples of any granule, with odd offsets on both sides. */
const SIZES = [1, 7, 64, 1023, 4097, MIB + 3];
const [LOCAL, REMOTE] = [13, 7];

/** Repeats an operation until there are resources; both sides make progress. */
async function driveBoth(here: IpcPeer, there: IpcPeer, start: () => Status): Promise<Status> {
  let status = start();
  // More than any answer takes, so that a fault is a failure.
  for (let round = 0; round < 100_000 && status === Status.NO_RESOURCE; round++) {
    there.iface.progress();
    here.iface.progress();
    status = start();
  }
  return status;
}

describe.each([['by look-up'], ['by socket']])('memory of another card, shared %s', (way) => {
  const shareAs = way === 'by socket' ? asProcesses : () => {};

  it.each(SIZES)('is put to and got from device and host memory: %s bytes', async (byteLength) => {
    const [here, there] = fixture.pair();
    const [near, far] = [here.allocate(byteLength + 40), there.allocate(byteLength + 40)];
    there.allocate(100);
    shareAs();
    const bytes = byteLength + 40;
    const [a, b, c] = [pattern(bytes, 1), pattern(bytes, 2), pattern(bytes, 3)];
    await here.write(near, a);
    await there.write(far, b);
    const key = here.unpack(far);
    // HBM to HBM, in both directions.
    expect(await here.put(near.memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    b.set(a.subarray(LOCAL, LOCAL + byteLength), REMOTE);
    expect(Buffer.compare(await there.read(far), b)).toBe(0);
    await there.write(far, c);
    expect(await here.get(near.memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    a.set(c.subarray(REMOTE, REMOTE + byteLength), LOCAL);
    expect(Buffer.compare(await here.read(near), a)).toBe(0);
    // Host memory and remote HBM, in both directions.
    const host = pattern(bytes, 4);
    const memory = here.host(host);
    expect(await here.put(memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    c.set(host.subarray(LOCAL, LOCAL + byteLength), REMOTE);
    expect(Buffer.compare(await there.read(far), c)).toBe(0);
    await there.write(far, b);
    const expected = host.slice();
    expected.set(b.subarray(REMOTE, REMOTE + byteLength), LOCAL);
    expect(await here.get(memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    expect(Buffer.compare(host, expected)).toBe(0);
    key.release();
    // The first use sent one request to the owner; later uses found the import. By socket, own memory is requested as well.
    expect(here.ipc.imports.cache.counters).toMatchObject(
      way === 'by socket' ? { mem_regs: 2, misses: 2 } : { mem_regs: 1, misses: 1 },
    );
  });

  it('is written and read by short operations', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(4096);
    shareAs();
    const key = here.unpack(far);
    const bytes = pattern(1024, 9);
    expect(await here.putShort(bytes, key, 1001)).toBe(Status.OK);
    const back = ownBytes(1024);
    expect(await here.getShort(back, key, 1001)).toBe(Status.OK);
    expect(back).toEqual(bytes);
    expect((await there.read(far)).subarray(1001, 2025)).toEqual(bytes);
    expect(here.ipc.stats().children).toContainEqual({
      className: 'gaudi_ipc_channel',
      name: 'gaudi0->0000:1a:00.0',
      counters: { puts: 1, gets: 1, bytes_put: 1024, bytes_got: 1024 },
      children: [],
    });
  });

  it('is shared in both directions at the same time', async () => {
    const [one, two] = fixture.pair();
    const blocks = [one.allocate(65536), two.allocate(65536)] as const;
    shareAs();
    const [first, second] = [pattern(65536, 1), pattern(65536, 2)];
    const results = await Promise.all([
      one.put(one.host(first), 0, 65536, one.unpack(blocks[1]), 0),
      two.put(two.host(second), 0, 65536, two.unpack(blocks[0]), 0),
    ]);
    expect(results).toEqual([Status.OK, Status.OK]);
    expect(Buffer.compare(await one.read(blocks[0]), second)).toBe(0);
    expect(Buffer.compare(await two.read(blocks[1]), first)).toBe(0);
  });

  it('is inaccessible by keys of freed memory, also if the address is reused', async () => {
    const [here, there] = fixture.pair();
    const old = there.allocate(4096);
    shareAs();
    const key = here.unpack(old);
    expect(await here.putShort(new Uint8Array(8).fill(1), key)).toBe(Status.OK);
    there.free(old);
    const again = there.allocate(4096);
    expect(again.memory.address).toBe(old.memory.address);
    await there.write(again, new Uint8Array(4096));
    expect(await here.putShort(new Uint8Array(8).fill(2), key)).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toMatchObject({ code: 'ERR_RKEY_STALE' });
    expect(() => here.unpack(old)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    expect(await there.read(again)).toEqual(new Uint8Array(4096));
  });

  it('is released when its owner frees it, and returned to the card', async () => {
    const [here, there] = fixture.pair();
    const { device } = there.shared.cards[0]!;
    const far = there.allocate(4096, { shared: true });
    shareAs();
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    expect(device.memory.statistics.arenas).toBe(1);
    there.free(far);
    await here.iface.wait(0);
    for (let round = 0; round < 600; round++) here.iface.progress();
    expect(here.ipc.imports.cache.numRegions).toBe(0);
    device.memory.reclaim();
    expect(device.memory.statistics.arenas).toBe(0);
  });

  it('is released when its owner closes, and the card is not reset', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(4096);
    shareAs();
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    if (way === 'by socket') {
      // The other context would release it in its event loop. Here it shares the thread of the owner, so its connection is closed directly.
      here.ipc.imports.close();
    }
    there.close();
    expect(fixture.node.card(1).hardResets).toBe(0);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toMatchObject({ code: 'ERR_RKEY_STALE' });
    expect(() => here.unpack(far)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    fixture.node.open(1).close();
  });
});

describe('a request to an owner', () => {
  it('returns NO_RESOURCE until it is answered, is counted, and ends a sleep', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    expect([here.iface.outstanding, here.ipc.imports.pending]).toEqual([1, 1]);
    // Without progress: the event loop serves the owner and ends the sleep.
    await here.iface.wait(60e9);
    expect(here.iface.outstanding).toBe(0);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.INPROGRESS);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    expect(here.ipc.imports.cache.counters.mem_regs).toBe(1);
  });

  it('is answered by progress of a program that never returns to the event loop', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    let polls = 0;
    const status = await driveBoth(here, there, () => {
      polls += 1;
      return here.tryPutShort(new Uint8Array(8).fill(3), key);
    });
    expect([status, polls > 1]).toEqual([Status.INPROGRESS, true]);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    expect((await there.read(far)).subarray(0, 8)).toEqual(new Uint8Array(8).fill(3));
  });

  it('that is refused fails the operation with its code, and the next one sends a new request', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    const busId = fixture.node.cards()[1]!.minor;
    fixture.node.inject(busId, { kind: 'exhausted', resource: 'fd', nth: 1 });
    const failed = await driveBoth(here, there, () => here.tryPutShort(new Uint8Array(8), key));
    expect(failed).toBe(Status.NO_MEMORY);
    expect(here.iface.errorOf(Status.NO_MEMORY)).toMatchObject({ code: 'ERR_GAUDI_OUT_OF_MEMORY' });
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
  });

  it('without an answer times out', async () => {
    const [here, there] = fixture.pair({ config: { GAUDI_IPC_TIMEOUT: '20ms' } });
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    let status: Status = Status.NO_RESOURCE;
    // Neither progress nor the event loop serves the owner.
    while (status === Status.NO_RESOURCE) {
      status = here.tryPutShort(new Uint8Array(8), key);
      here.iface.progress();
    }
    expect(status).toBe(Status.TIMED_OUT);
    expect(here.iface.errorOf(status)).toMatchObject({ code: 'ERR_GAUDI_TIMEOUT' });
    expect(here.iface.errorOf(status)?.message).toMatch(/UCX_GAUDI_IPC_TIMEOUT/);
    expect(here.iface.outstanding).toBe(0);
  });

  it('for a key that was revoked in the meantime is refused', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    there.free(far);
    expect(await driveBoth(here, there, () => here.tryPutShort(new Uint8Array(8), key))).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toMatchObject({ code: 'ERR_RKEY_STALE' });
    while (here.iface.outstanding > 0) {
      there.iface.progress();
      here.iface.progress();
    }
    expect(here.ipc.imports.cache.counters.mem_regs).toBe(0);
  });

  it('whose answer the card rejects is repeated once, and then fails', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    const { minor } = fixture.node.cards()[0]!;
    const refuse = (): unknown => fixture.node.inject(minor, { kind: 'ioctl', ioctl: 'MEMORY', errno: Errno.EINVAL });
    refuse();
    refuse();
    const failed = await driveBoth(here, there, () => here.tryPutShort(new Uint8Array(8), key));
    expect(failed).toBe(Status.INVALID_PARAM);
    expect(here.iface.errorOf(failed)).toMatchObject({ code: 'ERR_GAUDI_INVALID_PARAMS' });
    refuse();
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
  });

  it('is discarded when its memory domain closes', () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    expect(here.tryPutShort(new Uint8Array(8), here.unpack(far))).toBe(Status.NO_RESOURCE);
    here.close();
    expect(here.iface.outstanding).toBe(0);
  });
});

describe('the channel service', () => {
  it('disconnects a peer that sends anything else', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const tag = here.unpack(far).place.serviceTag;
    for (const bytes of [new Uint8Array(1), new Uint8Array(80), pattern(500, 5)]) {
      const socket = connectUnix(servicePath(ownIdentity(), tag), SocketType.SEQPACKET);
      expect(socket.sendmsg(bytes)).toBe(bytes.byteLength);
      for (let round = 0; round < 256; round++) there.iface.progress();
      expect(socket.recvmsg(new Uint8Array(64), [])).toBe(0);
      socket.close();
    }
    expect(await here.putShort(new Uint8Array(8), here.unpack(far))).toBe(Status.OK);
  });
});
