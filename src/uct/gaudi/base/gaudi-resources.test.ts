import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { createEmulatedNode, type EmulatedNodeOptions } from '../../../emulator/index.ts';
import { getOpenStats, openControl } from '../../../hlthunk/index.ts';
import { systemClock } from '../../../ucs/clock.ts';
import { loadConfig } from '../../../ucs/config.ts';
import type { ComponentServices } from '../../api/memory-domain.ts';
import { GAUDI_COPY_CONFIG_TABLE } from './config.ts';
import { GaudiResources } from './gaudi-resources.ts';

function servicesWith(overrides: Readonly<Record<string, string>>): ComponentServices {
  const config = loadConfig([GAUDI_COPY_CONFIG_TABLE], { overrides });
  return { log: createTestLog().log, clock: systemClock, config };
}

describe('the cards of a context', () => {
  expectNoLeaks();

  const refusals: [string, string, EmulatedNodeOptions, Readonly<Record<string, string>>, object][] = [
    [
      'ports are demanded that the driver does not report',
      'ERR_GAUDI_DEVICE_NOT_FOUND',
      { reportNicPorts: false },
      { GAUDI_COPY_NIC_SCALE_OUT: 'y' },
      {},
    ],
    ['the cache refuses its bounds', 'ERR_INVALID_PARAM', {}, {}, { RCACHE_MAX_REGIONS: 0 }],
  ];
  it.each(refusals)('are closed again where %s', (_why, code, options, overrides, changed) => {
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

  it.each(['RCACHE_MAX_REGIONS', 'RCACHE_MAX_SIZE'])('are not even opened with a cache for nothing: %s=0', (field) => {
    expect(() => servicesWith({ [`GAUDI_COPY_${field}`]: '0' })).toThrow(
      expect.objectContaining({ code: 'ERR_CONFIG_VALUE', message: expect.stringContaining(`GAUDI_COPY_${field}`) }),
    );
    expect(() => servicesWith({ [`GAUDI_COPY_${field}`]: '1' })).not.toThrow();
  });
});
