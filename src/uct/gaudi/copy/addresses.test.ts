/** The addresses that gaudi_copy knows: of imports, of freed memory, and of nothing after it has closed. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { createEmulatedNode } from '../../../emulator/index.ts';
import { GaudiErrorCode } from '../../../hlthunk/index.ts';
import { close as closeFd } from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { MemoryTypeCache } from '../../../ucs/memory/memory-type-cache.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import type { MdMemory } from '../../api/memory.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../base/config.ts';
import type { GaudiMemory } from '../base/memory.ts';
import { GaudiResources } from '../base/resources.ts';
import { CopyMd } from './md.ts';

expectNoLeaks();

const GAUDI = { memoryType: MemoryType.GAUDI };

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

function open() {
  const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
  const log = createTestLog();
  const shared = new GaudiResources({ node, mappingTable: undefined });
  const memoryTypes = new MemoryTypeCache();
  const services = { log: log.log, clock: systemClock, config: loadConfig([GAUDI_COPY_CONFIG_TABLE]), memoryTypes };
  const md = new CopyMd(shared, services);
  const known = ({ address, sysDevice }: MdMemory): boolean => memoryTypes.lookup(sysDevice, address, 1) !== undefined;
  closing.push(() => {
    md.close();
    node.close();
    log.expectQuiet();
  });
  /** Memory of the first card in the second one. */
  const imported = (byteLength: number): MdMemory => {
    const memory = md.memAlloc(byteLength, { ...GAUDI, sysDevice: 0, shared: true });
    const { fd, offset } = md.memExportDmabuf(memory.address, byteLength, 0);
    try {
      return md.memRegDmabuf!({ fd, offset, byteLength, address: 0n, ...GAUDI, sysDevice: 1 });
    } finally {
      closeFd(fd);
    }
  };
  return { md, shared, services, known, imported };
}

it('of interfaces on different cards differ', () => {
  const { md } = open();
  const addresses = md.resources.map((resource) => Buffer.from(md.openIface(resource).address).toString('hex'));
  expect(addresses).toHaveLength(2);
  expect(new Set(addresses).size).toBe(2);
});

describe('an import', () => {
  it('has the addresses of its length', () => {
    const { md, imported } = open();
    const imports = [imported(4096), imported(8192)];
    for (const { address, byteLength } of imports) {
      const last = address + BigInt(byteLength - 1);
      const found = { memoryType: MemoryType.GAUDI, sysDevice: 1, baseAddress: address, allocLength: byteLength };
      expect([md.memQuery(address, 1, 1), md.memQuery(last, 1, 1)]).toEqual([found, found]);
    }
    for (const each of imports) md.memDereg(each);
  });

  it('that has ended leaves no device memory at its addresses', () => {
    const { md, imported, known } = open();
    const memory = imported(4096);
    expect([known(memory), md.detectMemoryType(memory.address, 1, 1)?.allocLength]).toEqual([true, 4096]);
    md.memDereg(memory);
    expect([known(memory), md.detectMemoryType(memory.address, 1, 1)]).toEqual([false, undefined]);
  });

  it('that a transfer uses stays, and can be ended after the transfer', () => {
    const { md, imported, known } = open();
    const memory = imported(4096) as GaudiMemory;
    const used = memory.dmaIn();
    used.retain();
    expect(() => md.memDereg(memory)).toThrow(expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY }));
    expect([memory.live, known(memory), md.memQuery(memory.address, 1, 1).allocLength]).toEqual([true, true, 4096]);
    used.release();
    md.memDereg(memory);
    expect([memory.live, known(memory)]).toEqual([false, false]);
  });
});

describe('memory', () => {
  it('is known to the context until it is freed', () => {
    const { md, known } = open();
    const memory = md.memAlloc(4096, GAUDI);
    expect(known(memory)).toBe(true);
    md.memFree(memory);
    expect(known(memory)).toBe(false);
  });

  it('from before the memory domain is known, and none from after its end', () => {
    const { md, shared, services } = open();
    const memoryTypes = new MemoryTypeCache();
    const { memory } = shared.cards[1]!.device;
    const before = memory.allocate(4096);
    const later = new CopyMd(shared, { ...services, memoryTypes });
    expect(later.memQuery(before.address, 4096, 1).baseAddress).toBe(before.address);
    expect(memoryTypes.lookup(1, before.address, 1)).toBeDefined();
    before.free();
    later.close();
    const after = memory.allocate(4096);
    expect(memoryTypes.lookup(1, after.address, 1)).toBeUndefined();
    expect(md.memQuery(after.address, 4096, 1).baseAddress).toBe(after.address);
    after.free();
  });
});
