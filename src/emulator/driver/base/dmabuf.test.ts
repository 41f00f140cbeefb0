/** Dma-bufs: ranges of consecutive runs, their descriptors, and notification that they are lost. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { close, dup, Errno, memfdCreate, OpenFlag } from '../../../sys/index.ts';
import { PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { cutRuns, DmabufRegistry, forEachRun, type MemoryRun } from './dmabuf.ts';

expectNoLeaks();

const RUNS: readonly MemoryRun[] = [
  { offset: 1000, byteLength: 10 },
  { offset: 5000, byteLength: 20 },
  { offset: 3000, byteLength: 30 },
];

describe('a part of consecutive runs', () => {
  it('has the pieces of its range, in order', () => {
    expect(cutRuns(RUNS, 0, 60)).toEqual(RUNS);
    expect(cutRuns(RUNS, 4, 6)).toEqual([{ offset: 1004, byteLength: 6 }]);
    expect(cutRuns(RUNS, 10, 20)).toEqual([{ offset: 5000, byteLength: 20 }]);
    expect(cutRuns(RUNS, 9, 22)).toEqual([
      { offset: 1009, byteLength: 1 },
      { offset: 5000, byteLength: 20 },
      { offset: 3000, byteLength: 1 },
    ]);
  });

  it('is moved piece by piece, until a move fails or the runs end', () => {
    const moved: number[][] = [];
    const move = (...piece: [number, number, number]): boolean => {
      moved.push(piece);
      return true;
    };
    expect(forEachRun(RUNS, 12, 20, move)).toBe(true);
    expect(moved).toEqual([
      [5002, 0, 18],
      [3000, 18, 2],
    ]);
    moved.length = 0;
    expect(forEachRun(RUNS, 10, 20, move)).toBe(true);
    expect(moved).toEqual([[5000, 0, 20]]);
    expect(forEachRun(RUNS, 50, 11, move)).toBe(false);
    let calls = 0;
    const fail = (): boolean => {
      calls += 1;
      return false;
    };
    expect([forEachRun(RUNS, 0, 60, fail), calls, forEachRun(RUNS, 5, 0, fail)]).toEqual([false, 1, true]);
  });
});

describe('a dma-buf', () => {
  const memory = new PhysicalMemory('hbm', { address: 0, byteLength: 8192 });
  const create = (registry: DmabufRegistry, flags = 0) => registry.create({ memory, minor: 3, runs: RUNS }, flags);

  it('is found by each of its descriptors until the last is closed', () => {
    const registry = new DmabufRegistry();
    const { fd, dmabuf } = create(registry, OpenFlag.CLOEXEC);
    const copy = dup(fd);
    expect([dmabuf.byteLength, dmabuf.minor, registry.count]).toEqual([60, 3, 1]);
    expect([registry.find(fd), registry.find(copy)]).toEqual([dmabuf, dmabuf]);
    close(fd);
    expect([registry.find(fd), dmabuf.alive]).toEqual([Errno.EBADF, true]);
    close(copy);
    expect([dmabuf.alive, registry.count]).toEqual([false, 0]);
    const other = memfdCreate('other');
    expect(registry.find(other)).toBe(Errno.EINVAL);
    close(other);
  });

  it('is lost to devices and importers once, when its card leaves the bus, devices first', () => {
    const registry = new DmabufRegistry();
    const { fd, dmabuf } = create(registry);
    const lost: string[] = [];
    const [device, gone] = [() => void lost.push('device'), () => void lost.push('gone')];
    const importer = (): void => void lost.push('importer');
    dmabuf.attach(importer);
    dmabuf.attach(gone);
    dmabuf.detach(gone);
    dmabuf.attachDevice(device);
    dmabuf.attachDevice(gone);
    dmabuf.detachDevice(gone);
    expect(dmabuf.isOnBus).toBe(true);
    dmabuf.leaveBus();
    expect([lost, dmabuf.isOnBus, dmabuf.alive]).toEqual([['device', 'importer'], false, true]);
    dmabuf.revoke();
    expect([lost, dmabuf.alive]).toEqual([['device', 'importer'], false]);
    // Its descriptor refers to nothing.
    expect(registry.find(fd)).toBe(Errno.EINVAL);
    dmabuf.revoke();
    close(fd);
  });
});
