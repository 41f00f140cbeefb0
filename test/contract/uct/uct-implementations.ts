/** The memory domains of the contract suites: self, posix, cma, and gaudi_copy on emulated nodes of every kind that supports transfers. */

import { expect } from 'vitest';
import { createEmulatedNode, type EmulatedNodeOptions } from '../../../src/emulator/index.ts';
import type { AsicName } from '../../../src/uapi/index.ts';
import { loadConfig } from '../../../src/ucs/config/config.ts';
import { MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import type { Component, DmabufExport } from '../../../src/uct/api/memory-domain.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../../../src/uct/gaudi/base/config.ts';
import { GaudiResources } from '../../../src/uct/gaudi/base/resources.ts';
import { CopyMd } from '../../../src/uct/gaudi/copy/md.ts';
import { GAUDI_IPC_CONFIG_TABLE } from '../../../src/uct/gaudi/ipc/config.ts';
import { IpcMd } from '../../../src/uct/gaudi/ipc/md.ts';
import { IB_CONFIG_TABLE, RC_CONFIG_TABLE } from '../../../src/uct/ib/base/config.ts';
import { ibComponent } from '../../../src/uct/ib/md.ts';
import { selfComponent } from '../../../src/uct/self/md.ts';
import { cmaComponent } from '../../../src/uct/shm/cma/md.ts';
import { posixComponent } from '../../../src/uct/shm/posix/md.ts';
import { tcpComponent } from '../../../src/uct/tcp/md.ts';
import { IS_FULL } from '../../fixtures/extent.ts';
import type { TestLog } from '../../fixtures/test-log.ts';
import { DEVICES_TITLE, REAL_DEVICES, REAL_SETTINGS, realVerbs } from '../../fixtures/transports/rdma-devices.ts';
import { AllocatingIpcMd } from './allocating-ipc-md.ts';
import type { MdSetup, MdUnderTest } from './uct-fixture.ts';

/** Opens the loopback memory domain. */
export function openSelf(log: TestLog): MdUnderTest {
  const services = { log: log.log, clock: systemClock, config: loadConfig([]) };
  const md = selfComponent().openMd(services);
  return { md, pinnedBytes: () => 0, deviceBytes: () => 0, close: () => {} };
}

/** Opens the memory domain of shared memory. */
export function openPosix(log: TestLog, config: Readonly<Record<string, string>> = {}): MdUnderTest {
  return openHost(posixComponent(), log, config);
}

/** Opens the memory domain of copies between processes. */
export function openCma(log: TestLog): MdUnderTest {
  return openHost(cmaComponent(), log, {});
}

/** Opens the memory domain of sockets. */
export function openTcp(log: TestLog, config: Readonly<Record<string, string>> = {}): MdUnderTest {
  return openHost(tcpComponent(), log, config);
}

function openHost(component: Component, log: TestLog, overrides: Readonly<Record<string, string>>): MdUnderTest {
  const config = loadConfig([component.configTable!], { overrides });
  const md = component.openMd({ log: log.log, clock: systemClock, config });
  return { md, pinnedBytes: () => 0, deviceBytes: () => 0, close: () => {} };
}

/** Opens gaudi_copy on its own emulated node. */
export function openGaudiCopy(
  log: TestLog,
  node: EmulatedNodeOptions = {},
  config: Readonly<Record<string, string>> = {},
): MdUnderTest {
  const emulated = createEmulatedNode({ cards: 2, dmaThreads: 0, strict: true, log: log.log, ...node });
  const shared = new GaudiResources({ node: emulated, mappingTable: undefined });
  const loaded = loadConfig([GAUDI_COPY_CONFIG_TABLE], { overrides: config });
  const md = new CopyMd(shared, { log: log.log, clock: systemClock, config: loaded });
  const { cards } = shared;
  return {
    md,
    foreignDmabuf: (byteLength) => dmabufOf(md, byteLength),
    pinnedBytes: () => cards.reduce((sum, { device }) => sum + device.pinnedBytes, 0),
    deviceBytes: () => cards.reduce((sum, { device }) => sum + device.memory.statistics.usedBytes, 0),
    close: () => emulated.close(),
  };
}

function dmabufOf(md: CopyMd, byteLength: number): DmabufExport {
  const { address } = md.memAlloc(byteLength, { memoryType: MemoryType.GAUDI, sysDevice: 1 });
  return md.memExportDmabuf(address, byteLength, 1);
}

/** Opens gaudi_ipc with gaudi_copy, which allocates for it, on its own emulated node. */
export function openGaudiIpc(log: TestLog, node: EmulatedNodeOptions = {}): MdUnderTest {
  const emulated = createEmulatedNode({ cards: 2, dmaThreads: 0, strict: true, log: log.log, ...node });
  const shared = new GaudiResources({ node: emulated, mappingTable: undefined });
  const config = loadConfig([GAUDI_COPY_CONFIG_TABLE, GAUDI_IPC_CONFIG_TABLE]);
  const services = { log: log.log, clock: systemClock, config };
  const copy = new CopyMd(shared, services);
  const md = new AllocatingIpcMd(copy, new IpcMd(shared, services));
  const { cards } = shared;
  return {
    md,
    foreignDmabuf: (byteLength) => dmabufOf(copy, byteLength),
    pinnedBytes: () => cards.reduce((sum, { device }) => sum + device.pinnedBytes, 0),
    deviceBytes: () => cards.reduce((sum, { device }) => sum + device.memory.statistics.usedBytes, 0),
    close: () => emulated.close(),
  };
}

/** Generations and numbers of engine threads; the gate runs the oldest generation without threads only. */
export const ENGINE_THREADS: readonly (readonly [AsicName, number])[] = [
  ['gaudi2', 0],
  ['gaudi2', 1],
  ['gaudi3', 0],
  ['gaudi3', 1],
  ['gaudi', 0],
  ...(IS_FULL ? ([['gaudi', 1]] as const) : []),
];

/** Opens the memory domain of RDMA on two devices: those of an emulated node, whose second card provides dma-bufs, or real ones. */
export function openIb(log: TestLog, overrides: Readonly<Record<string, string>> = {}): MdUnderTest {
  const config = loadConfig([IB_CONFIG_TABLE, RC_CONFIG_TABLE], { overrides: { ...REAL_SETTINGS, ...overrides } });
  const services = { log: log.log, clock: systemClock, config };
  const counts = { pinnedBytes: () => 0, deviceBytes: () => 0 };
  if (REAL_DEVICES !== undefined) {
    const isDeviceAllowed = (_type: string, name: string): boolean => REAL_DEVICES!.includes(name.replace(/:1$/, ''));
    const md = ibComponent(realVerbs()).openMd({ ...services, isDeviceAllowed });
    return { md, peer: md.resources.at(-1)!, writesDetached: true, ...counts, close: () => {} };
  }
  const emulated = createEmulatedNode({ cards: 2, dmaThreads: 0, nics: 2, log: log.log });
  const shared = new GaudiResources({ node: emulated, mappingTable: undefined });
  const copy = new CopyMd(shared, { log: log.log, clock: systemClock, config: loadConfig([GAUDI_COPY_CONFIG_TABLE]) });
  const md = ibComponent(emulated.verbs!).openMd(services);
  return {
    md,
    peer: md.resources.at(-1)!,
    foreignDmabuf: (byteLength) => dmabufOf(copy, byteLength),
    ...counts,
    close: () => {
      expect(['hca0', 'hca1'].map((name) => emulated.verbs!.device(name).objectCount)).toEqual([0, 0]);
      copy.close();
      emulated.close();
    },
  };
}

/** The name of that implementation. */
export const IB_TITLE: string = `ib on ${DEVICES_TITLE}`;

/** Every implementation with its name. */
export const IMPLEMENTATIONS: readonly (readonly [string, MdSetup])[] = [
  ['self', openSelf],
  ['posix', openPosix],
  ['cma', openCma],
  ['tcp', (log) => openTcp(log)],
  [IB_TITLE, (log) => openIb(log)],
  ...ENGINE_THREADS.map(([asic, dmaThreads]): readonly [string, MdSetup] => [
    `gaudi_copy on emulated ${asic}, ${dmaThreads} engine threads`,
    (log) => openGaudiCopy(log, { asic, dmaThreads }),
  ]),
  // The driver of gaudi3 imports no dma-bufs, so gaudi_ipc reaches no memory of other cards there: ucp stages it.
  ...(['gaudi2', 'gaudi'] as const).map((asic): readonly [string, MdSetup] => [
    `gaudi_ipc on emulated ${asic}`,
    (log) => openGaudiIpc(log, { asic, dmaThreads: asic === 'gaudi' ? 0 : 1 }),
  ]),
];
