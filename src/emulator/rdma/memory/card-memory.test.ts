/** RDMA devices and the memory of cards of the same process. */

import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../../../test/contract/driver/driver-client.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { fillPattern } from '../../../../test/fixtures/pattern.ts';
import { addSeals, close, Errno, ftruncate, mapAnonymous, memfdCreate, SealFlag } from '../../../sys/index.ts';
import { AccessFlag } from '../../../verbs/abi.ts';
import { createEmulatedNode } from '../../index.ts';
import type { RdmaContext } from '../rdma-context.ts';

const BYTES = 65_536;

function setUp() {
  const node = createEmulatedNode({ cards: 1, dmaThreads: 0, nics: 1 });
  const client = new DriverClient(node.open(0));
  const fd = client.exportDmabuf(client.mapDevice(client.allocate(1).out).out, BYTES).out;
  const host = mapAnonymous(BYTES);
  const context = node.verbs!.open('hca0') as RdmaContext;
  const done = () => {
    host.close();
    close(fd);
    client.close();
    node.close();
  };
  return { node, client, fd, host, context, done };
}

describe('memory of a card behind a dma-buf', () => {
  expectNoLeaks();

  it('is read and written at any offset inside it', () => {
    const { context, fd, host, done } = setUp();
    fillPattern(host.u8, 5);
    const [whole, part] = [context.dmabufs.attach(fd, 0, BYTES), context.dmabufs.attach(fd, 5000, 3000)];
    expect(part.write(0, host.address, 3000)).toBe(true);
    expect(whole.read(5000, host.address + 8192, 3000)).toBe(true);
    expect(Buffer.compare(host.u8.subarray(0, 3000), host.u8.subarray(8192, 11_192))).toBe(0);
    for (const memory of [whole, part]) memory.release();
    done();
  });

  it.each([
    [-4096, 4096],
    [BYTES, 4096],
    [0, BYTES + 1],
  ])('is not registered from %i for %i bytes', (offset, byteLength) => {
    const { context, fd, done } = setUp();
    expect(() => context.allocPd().regDmabufMr(fd, offset, byteLength, 0, AccessFlag.LOCAL_WRITE)).toThrow(
      expect.objectContaining({ errno: Errno.EINVAL }),
    );
    done();
  });

  it.each(['close', 'hard-reset', 'unplug'] as const)('is lost by %s of the card', (how) => {
    const { node, client, context, fd, host, done } = setUp();
    const memory = context.dmabufs.attach(fd, 0, BYTES);
    expect([memory.write(0, host.address, 8), memory.read(0, host.address, 8)]).toEqual([true, true]);
    if (how === 'close') client.close();
    else node.inject(0, { kind: how });
    expect([memory.write(0, host.address, 8), memory.read(0, host.address, 8)]).toEqual([false, false]);
    const errno = how === 'close' ? Errno.EINVAL : Errno.ENODEV;
    expect(() => context.dmabufs.attach(fd, 0, BYTES)).toThrow(expect.objectContaining({ errno }));
    memory.release();
    done();
  });
});

describe('memory of a foreign device', () => {
  expectNoLeaks();

  it('is a memfd that cannot shrink, and a range of it', () => {
    const { context, host, done } = setUp();
    const fd = memfdCreate('foreign', { sealing: true });
    ftruncate(fd, BYTES);
    const refused = expect.objectContaining({ errno: Errno.EINVAL });
    expect(() => context.dmabufs.attach(fd, 0, BYTES)).toThrow(refused);
    addSeals(fd, SealFlag.SHRINK);
    expect(() => context.dmabufs.attach(fd, 4096, BYTES)).toThrow(refused);
    const [whole, part] = [context.dmabufs.attach(fd, 0, BYTES), context.dmabufs.attach(fd, 5000, 3000)];
    close(fd);
    fillPattern(host.u8, 5);
    expect(part.write(0, host.address, 3000)).toBe(true);
    expect(whole.read(5000, host.address + 8192, 3000)).toBe(true);
    expect(Buffer.compare(host.u8.subarray(0, 3000), host.u8.subarray(8192, 11_192))).toBe(0);
    for (const memory of [whole, part]) memory.release();
    done();
  });
});
