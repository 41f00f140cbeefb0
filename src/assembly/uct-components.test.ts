/** Components as a program without a context opens them: with the defaults of a program, or with any of its services. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../test/fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../test/fixtures/transports/own-segments.ts';
import { createEmulatedNode } from '../emulator/index.ts';
import { Config } from '../index.ts';
import { systemClock } from '../ucs/sys/clock.ts';
import { isUcxError } from '../ucs/type/error.ts';
import * as uct from '../uct.ts';

const ENV = { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1', UCX_GAUDI_EMULATOR_NICS: '1' };

/** Opens a memory domain, opens all its interfaces, and closes it. */
function use(component: uct.OwnComponent, options?: uct.MdOptions): uct.MdAttributes {
  const md = component.openMd(options);
  try {
    for (const resource of md.resources) md.openIface(resource).close();
    return md.attributes;
  } finally {
    md.close();
  }
}

function messageOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (isUcxError(error)) return `${error.code}: ${error.message}`;
    throw error;
  }
  return 'no error';
}

describe('the components of gaudi-ucx/uct', () => {
  expectNoLeaks(SEGMENT_PROBES);

  /** Every component of the entry, on one emulated node. */
  function onNode(check: (components: readonly uct.OwnComponent[]) => void): void {
    const node = createEmulatedNode({ cards: 1, nics: 1, dmaThreads: 0 });
    const shared = new uct.GaudiResources({ node, mappingTable: undefined });
    check([
      uct.selfComponent(),
      uct.posixComponent(),
      uct.cmaComponent(),
      uct.tcpComponent(),
      uct.ibComponent(node.verbs),
      uct.gaudiCopyComponent(shared),
      uct.gaudiIpcComponent(shared),
    ]);
    node.close();
  }

  it('are all components of a context, and open without options', () => {
    onNode((components) => {
      const names = ['self', 'posix', 'cma', 'tcp', 'ib', 'gaudi_copy', 'gaudi_ipc'];
      expect(components.map(({ name }) => name)).toEqual(names);
      expect(components.map((component) => use(component).name)).toEqual(names);
      const managers = components.flatMap(({ openConnectionManager }) => openConnectionManager?.() ?? []);
      expect(managers).toHaveLength(1);
      for (const manager of managers) manager.close();
    });
  });

  it('take a Config, its values, and options by name', () => {
    const source = Config.read({ env: {}, configDirectories: [] }).modify('GAUDI_COPY_RCACHE', 'n');
    for (const config of [source, source.values, { GAUDI_COPY_RCACHE: 'n' }]) {
      onNode((components) => {
        const caching = components.map((component) => [component.name, use(component, { config }).cacheMemoryTypes]);
        expect(Object.fromEntries(caching)).toMatchObject({ ib: 1, gaudi_copy: 0 });
      });
    }
  });

  it('accept a Config wherever the values of one are expected', () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const { log } = createTestLog();
    const config = Config.read({ env: {}, configDirectories: [] });
    const shared = new uct.GaudiResources({ node, mappingTable: undefined });
    const { cards } = shared.acquire({ log, clock: systemClock, config });
    expect(new uct.RegisterBlocks(cards[0]!.device, config).list().length).toBeGreaterThan(0);
    shared.release();
    node.close();
  });

  it('use the given log and clock, and check both', () => {
    const { log, records } = createTestLog();
    use(uct.posixComponent(), { log, clock: systemClock });
    expect(records.filter(({ level }) => level <= 2)).toEqual([]);
    const bad = [
      { log: {} },
      { log: null },
      { clock: {} },
      { config: 'x' },
      { config: { TLS: 1 } },
      { configuration: {} },
    ];
    for (const options of bad) {
      expect(messageOf(() => uct.selfComponent().openMd(options as uct.MdOptions))).toMatch(/^ERR_INVALID_PARAM: /);
    }
    const misspelt = messageOf(() => uct.selfComponent().openMd({ config: { GAUDI_COPY_RCASH: 'n' } }));
    expect(misspelt).toMatch(/^ERR_CONFIG_UNKNOWN: .*UCX_GAUDI_COPY_RCACHE\?/);
  });

  it('open RDMA devices by the configuration, with a node that ends with the memory domain', () => {
    const config = Config.read({ env: ENV, configDirectories: [] });
    expect(use(uct.ibComponent(), { config }).name).toBe('ib');
    const none = config.clone().modify('GAUDI_EMULATOR_NICS', '0');
    expect(messageOf(() => uct.ibComponent().openMd({ config: none }))).toMatch(
      /^ERR_NO_DEVICE: no RDMA device: set UCX_GAUDI_EMULATOR_NICS=1/,
    );
  });
});
