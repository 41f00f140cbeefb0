/** Imported dma-bufs and parts of blocks, over a fake card: descriptors, transfers in flight, ranges. */

import { describe, expect, it } from 'vitest';
import { FakeMemory } from '../../../../test/fixtures/driver/fake-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { GaudiErrorCode } from '../../../hlthunk/index.ts';
import { close, descriptorFile, memfdCreate } from '../../../sys/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { DmabufRegion } from '../../api/memory-domain.ts';
import type { GaudiCard } from './cards.ts';
import { cardAt, importDmabuf, partAt } from './foreign-memory.ts';

expectNoLeaks();

const INVALID = (argument: string) =>
  expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument }) });

/** A card that notes what it imports. */
function cardOf(index: number, canImportDmabuf = true) {
  const imports: unknown[][] = [];
  const mappings: FakeMemory[] = [];
  const counts = { kept: 0, closed: 0, exported: 0 };
  const count = (what: keyof typeof counts): void => {
    counts[what] += 1;
  };
  const made = { refusals: 0, imports, mappings, counts };
  const device = {
    canImportDmabuf,
    busId: `0000:0${index}:00.0`,
    card: {
      name: `card ${index}`,
      dmabufs: {
        kept: () => count('kept'),
        closed: () => count('closed'),
        exported: () => count('exported'),
      },
    },
    registerDmabufFd: (fd: number, byteLength: number, offset = 0) => {
      imports.push([descriptorFile('self', fd)?.ino, byteLength, offset]);
      if (made.refusals > 0) {
        made.refusals -= 1;
        throw Object.assign(Object.create(errorPrototype()), { details: { errno: 'EINVAL' } });
      }
      const mapping = new FakeMemory(0x40, byteLength);
      mappings.push(mapping);
      return mapping;
    },
    memory: {
      find: (address: bigint) => (address >= 0x1000n && address < 0x2000n ? block : undefined),
    },
  };
  const block = {
    address: 0x1000n,
    byteLength: 0x1000,
    part: (offset: number, byteLength: number) => ({ offset, byteLength }),
  };
  return Object.assign(made, { card: { index, device } as unknown as GaudiCard, block });
}

/** The prototype of UcxError, which isUcxError asks for. */
function errorPrototype(): object {
  try {
    cardAt([], 7);
  } catch (error) {
    return Object.getPrototypeOf(error) as object;
  }
  throw new Error('not reached');
}

const region = (fd: number, more: Partial<DmabufRegion> = {}): DmabufRegion =>
  ({ fd, offset: 64, byteLength: 128, memoryType: MemoryType.GAUDI, sysDevice: undefined, ...more }) as DmabufRegion;

describe('an import', () => {
  it('uses the first card that can, its own descriptor, and the range', () => {
    const fd = memfdCreate('dmabuf');
    const [first, second] = [cardOf(0, false), cardOf(1)];
    const imported = importDmabuf([first.card, second.card], region(fd));
    expect(imported.card).toBe(second.card);
    expect(second.imports).toEqual([[descriptorFile('self', fd)?.ino, 128, 64]]);
    close(fd);
    const exported = imported.export();
    expect([exported.offset, descriptorFile('self', exported.fd)?.ino]).toEqual([64, second.imports[0]![0]]);
    imported.close(false);
    imported.close(false);
    // The exported descriptor belongs to the caller.
    expect(descriptorFile('self', exported.fd)).toBeDefined();
    close(exported.fd);
    expect([second.counts, second.mappings[0]!.unmaps]).toEqual([{ kept: 1, closed: 1, exported: 1 }, 1]);
  });

  it('is not ended while exactly one transfer uses it, unless it is forced: then the transfer keeps the mapping', () => {
    const fd = memfdCreate('dmabuf');
    const made = cardOf(0);
    const imported = importDmabuf([made.card], region(fd));
    const [mapping] = made.mappings;
    mapping!.retain();
    const busy = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });
    expect(() => imported.close(false)).toThrow(busy);
    expect(made.counts.closed).toBe(0);
    imported.close(true);
    expect([mapping!.unmaps, made.counts.closed]).toEqual([0, 1]);
    mapping!.release();
    close(fd);
  });

  it('that the card refuses leaves no descriptor, and says why', () => {
    const fd = memfdCreate('dmabuf');
    const made = cardOf(0);
    made.refusals = 1;
    expect(() => importDmabuf([made.card], region(fd))).toThrow(INVALID('byteLength'));
    // The first byte was imported to find out, and given back.
    expect([made.imports.length, made.mappings[0]!.unmaps]).toEqual([2, 1]);
    made.refusals = 2;
    expect(() => importDmabuf([made.card], region(fd))).toThrow(INVALID('fd'));
    expect(made.counts.kept).toBe(0);
    close(fd);
  });

  it('checks its arguments before it opens anything', () => {
    const { card, imports } = cardOf(0);
    const refuse = (argument: string, more: Partial<DmabufRegion>) =>
      expect(() => importDmabuf([card], region(9999, more))).toThrow(INVALID(argument));
    refuse('memoryType', { memoryType: MemoryType.HOST });
    refuse('offset', { offset: -1 });
    refuse('byteLength', { byteLength: 0 });
    refuse('byteLength', { offset: Number.MAX_SAFE_INTEGER - 64, byteLength: 65 });
    refuse('fd', {});
    refuse('fd', { fd: -1 });
    expect(imports).toEqual([]);
    const without = expect.objectContaining({ status: Status.UNSUPPORTED });
    expect(() => importDmabuf([cardOf(0, false).card], region(0))).toThrow(without);
    const missing = expect.objectContaining({ code: GaudiErrorCode.DEVICE_NOT_FOUND });
    expect(() => importDmabuf([card], region(0, { sysDevice: 5 }))).toThrow(missing);
  });
});

describe('a part of a block', () => {
  it('lies in one allocation, to its last byte', () => {
    const { card, block } = cardOf(3);
    const part = (address: bigint, byteLength: number, sysDevice = 3) =>
      partAt([card], { address, byteLength, sysDevice, memoryType: MemoryType.GAUDI });
    expect(part(0x1800n, 0x800)).toEqual({ card, block, part: { offset: 0x800, byteLength: 0x800 } });
    expect(() => part(0x1800n, 0x801)).toThrow(INVALID('address'));
    expect(() => part(0xfffn, 1)).toThrow(INVALID('address'));
    expect(() => part(0x1000n, 0)).toThrow(INVALID('byteLength'));
    expect(() => part(0x1000n, 1, 4)).toThrow(expect.objectContaining({ code: GaudiErrorCode.DEVICE_NOT_FOUND }));
  });
});
