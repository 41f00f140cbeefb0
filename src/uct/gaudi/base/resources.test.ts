import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog, type TestLog } from '../../../../test/fixtures/test-log.ts';
import { createEmulatedNode, type EmulatedNode, type EmulatedNodeOptions } from '../../../emulator/index.ts';
import { getOpenStats, type HostMapping, openControl } from '../../../hlthunk/index.ts';
import { Errno } from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { LogLevel } from '../../../ucs/debug/log.ts';
import type { RcacheRegion } from '../../../ucs/rcache/region.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ComponentServices } from '../../api/memory-domain.ts';
import { GAUDI_COPY_CONFIG_TABLE } from './config.ts';
import type { HostPages } from './memory.ts';
import { GaudiResources, type OpenGaudi } from './resources.ts';

function servicesWith(
  overrides: Readonly<Record<string, string>>,
  testLog: TestLog = createTestLog(),
): ComponentServices {
  const config = loadConfig([GAUDI_COPY_CONFIG_TABLE], { overrides });
  return { log: testLog.log, clock: systemClock, config };
}

describe('the cards of a context', () => {
  expectNoLeaks();

  const refusals: [string, string, EmulatedNodeOptions, Readonly<Record<string, string>>, object][] = [
    [
      'ports are required that the driver does not report',
      'ERR_UNSUPPORTED',
      { reportNicPorts: false },
      { GAUDI_COPY_NIC_SCALE_OUT: 'y' },
      {},
    ],
    [
      'dma-bufs of mapped memory are required of gaudi',
      'ERR_UNSUPPORTED',
      { asic: 'gaudi' },
      { GAUDI_COPY_MAPPED_DMABUF: 'y' },
      {},
    ],
    [
      'dma-bufs are required and forbidden',
      'ERR_UNSUPPORTED',
      {},
      { GAUDI_COPY_DMABUF: 'y', GAUDI_COPY_MAPPED_DMABUF: 'n' },
      {},
    ],
    [
      'register blocks are required that the driver does not map',
      'ERR_UNSUPPORTED',
      { asic: 'gaudi' },
      { GAUDI_COPY_HW_BLOCK_ACCESS: 'y' },
      {},
    ],
    ['the cache rejects its limits', 'ERR_INVALID_PARAM', {}, {}, { RCACHE_MAX_REGIONS: 0 }],
  ];
  it.each(refusals)('are closed again if %s', (_why, code, options, overrides, changed) => {
    const node = createEmulatedNode({ cards: 2, dmaThreads: 0, ...options });
    const services = servicesWith(overrides);
    const config = { ...services.config, get: () => ({ ...services.config.get(GAUDI_COPY_CONFIG_TABLE), ...changed }) };
    const resources = new GaudiResources({ node, mappingTable: undefined });
    const open = (): unknown => resources.acquire({ ...services, config } as never);
    expect(open).toThrow(expect.objectContaining({ code }));
    for (const { minor } of node.cards()) {
      const control = openControl(node, minor);
      expect(getOpenStats(control).isComputeCtxActive).toBe(0);
      control.close();
    }
    expect(resources.cards).toEqual([]);
    node.close();
  });

  it('names the card that lacks a required capability', () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0, asic: 'gaudi' });
    const resources = new GaudiResources({ node, mappingTable: undefined });
    const open = (): unknown => resources.acquire(servicesWith({ GAUDI_COPY_HW_BLOCK_ACCESS: 'y' }));
    expect(open).toThrow(/gaudi0 does not support UCX_GAUDI_COPY_HW_BLOCK_ACCESS=y: .*EPERM/);
    node.close();
  });

  it.each([0, 1])('keep their names while card %i is removed', (gone) => {
    const testLog = createTestLog();
    const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
    const buses = node.cards().map(({ busId }) => busId);
    node.inject(gone, { kind: 'unplug' });
    const resources = new GaudiResources({ node, mappingTable: undefined });
    testLog.allow(new RegExp(`^gaudi${gone} is left out: .*card ${gone} \\(accel${gone}, ${buses[gone]}\\): removed$`));
    const { cards, leftOut } = resources.acquire(servicesWith({}, testLog));
    expect(cards.map(({ index, device }) => [index, device.card.name])).toEqual([
      [1 - gone, `card ${1 - gone} (accel${1 - gone}, ${buses[1 - gone]})`],
    ]);
    expect(leftOut.map(({ name }) => name)).toEqual([`gaudi${gone}`]);
    resources.release();
    const isDeviceAllowed = (_type: unknown, name: string): boolean => name === `gaudi${gone}`;
    const removed = { code: 'ERR_GAUDI_DEVICE_NOT_FOUND', message: expect.stringMatching(/\): removed$/) };
    expect(() => resources.acquire({ ...servicesWith({}, testLog), isDeviceAllowed })).toThrow(
      expect.objectContaining(removed),
    );
    node.close();
  });

  const wanted: [asic: 'gaudi' | 'gaudi2', field: string, values: string[]][] = [
    ['gaudi2', 'DMABUF', ['y', 'n', 'try', 'auto']],
    ['gaudi2', 'MAPPED_DMABUF', ['y', 'n', 'try', 'auto']],
    ['gaudi2', 'RCACHE', ['y', 'n', 'try', 'auto']],
    ['gaudi2', 'HW_BLOCK_ACCESS', ['y', 'n', 'try', 'auto']],
    ['gaudi2', 'NIC_SCALE_OUT', ['y', 'n', 'try', 'auto']],
    ['gaudi', 'DMABUF', ['y', 'n', 'try', 'auto']],
    ['gaudi', 'MAPPED_DMABUF', ['n', 'try', 'auto']],
    ['gaudi', 'HW_BLOCK_ACCESS', ['n', 'try', 'auto']],
  ];
  it.each(wanted)('are opened if they have the required capability: %s, %s=%s', (asic, field, values) => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0, asic });
    for (const value of values) {
      const resources = new GaudiResources({ node, mappingTable: undefined });
      const { cards } = resources.acquire(servicesWith({ [`GAUDI_COPY_${field}`]: value }));
      expect(cards[0]!.device.memory.statistics.arenas).toBe(0);
      resources.release();
    }
    node.close();
  });

  it.each(['RCACHE_MAX_REGIONS', 'RCACHE_MAX_SIZE'])('are not opened with a cache of size zero: %s=0', (field) => {
    expect(() => servicesWith({ [`GAUDI_COPY_${field}`]: '0' })).toThrow(
      expect.objectContaining({ code: 'ERR_CONFIG_VALUE', message: expect.stringContaining(`GAUDI_COPY_${field}`) }),
    );
    expect(() => servicesWith({ [`GAUDI_COPY_${field}`]: '1' })).not.toThrow();
  });
});

describe('host memory in the cards', () => {
  expectNoLeaks();

  function withCards(use: (gaudi: OpenGaudi, node: EmulatedNode, log: TestLog) => void): void {
    const log = createTestLog();
    const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
    const resources = new GaudiResources({ node, mappingTable: undefined });
    use(resources.acquire(servicesWith({}, log)), node, log);
    resources.release();
    node.close();
    log.expectQuiet();
  }
  function acquired({ rcache }: OpenGaudi, owner: ArrayBuffer): RcacheRegion<HostPages> {
    const region = rcache.acquire(owner);
    if (typeof region === 'number') throw new Error(`acquire failed with ${region}`);
    return region;
  }
  function mapped({ cards }: OpenGaudi, { registration }: RcacheRegion<HostPages>): HostMapping[] {
    return cards.map(({ device }, position) => registration.mappingIn(position, device));
  }

  it('evicts idle mappings, and no others, when a card has no room for one more', () => {
    withCards((gaudi, node) => {
      const { rcache } = gaudi;
      const used = acquired(gaudi, new ArrayBuffer(8192));
      const mappings = mapped(gaudi, used);
      const idle = [1, 2].map(() => acquired(gaudi, new ArrayBuffer(8192)));
      const given = idle.flatMap((region) => mapped(gaudi, region));
      for (const region of idle) rcache.release(region);
      const next = acquired(gaudi, new ArrayBuffer(8192));
      node.inject(0, { kind: 'exhausted', resource: 'va' });
      expect(mapped(gaudi, next).map(({ live }) => live)).toEqual([true, true]);
      // One was enough: the least recently used one.
      expect(given.map(({ live }) => live)).toEqual([false, false, true, true]);
      for (let nth = 1; nth <= 2; nth++) node.inject(0, { kind: 'exhausted', resource: 'va', nth });
      const last = acquired(gaudi, new ArrayBuffer(8192));
      expect(() => mapped(gaudi, last)).toThrow(expect.objectContaining({ status: Status.NO_MEMORY }));
      expect([rcache.numRegions, rcache.numInUse]).toEqual([3, 3]);
      expect(mappings.map(({ live }) => live)).toEqual([true, true]);
      for (const region of [used, next, last]) rcache.release(region);
    });
  });

  it('is unmapped from every card, also if one of them fails to unmap it', () => {
    withCards((gaudi, node, log) => {
      const owner = new ArrayBuffer(8192);
      const region = acquired(gaudi, owner);
      const mappings = mapped(gaudi, region);
      gaudi.rcache.release(region);
      node.inject(0, { kind: 'ioctl', ioctl: 'MEMORY', errno: Errno.EINVAL });
      log.allow(/^registration cache: .*EINVAL/);
      gaudi.rcache.invalidate(owner);
      expect(log.records.filter(({ level }) => level === LogLevel.ERROR)).toHaveLength(1);
      expect(mappings[1]!.live).toBe(false);
      expect(gaudi.cards[1]!.device.pinnedBytes).toBe(0);
    });
  });
});
