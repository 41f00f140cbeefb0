/** Host memory in the address space of a card. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { mapAnonymous } from '../../sys/index.ts';
import { GaudiErrorCode } from '../index.ts';

const fixture = useEmulatedDevice();
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });

describe.each(['gaudi2', 'gaudi'] as const)('host memory of %s', (asic) => {
  it('counts pinned bytes', () => {
    const device = fixture.setUp({ asic });
    const memory = mapAnonymous(8192);
    const first = device.hostMemoryMap(memory.address + 5, 100);
    const second = device.hostMemoryMap(memory.address, 8192);
    expect(first.address % 4096n).toBe(5n);
    expect(first.generation).not.toBe(second.generation);
    expect([device.pinnedBytes, device.hostMemory.count]).toEqual([8292, 2]);
    first.unmap();
    expect(device.pinnedBytes).toBe(8192);
    expect(() => first.unmap()).toThrow(INVALID);
    second.unmap();
    expect(device.pinnedBytes).toBe(0);
    memory.close();
  });

  it('honours a hint', () => {
    const device = fixture.setUp({ asic });
    const memory = mapAnonymous(4096);
    const hint = device.info.profile.va.host.start + 0x1000_0000n;
    const mapping = device.hostMemoryMap(memory.address, 4096, { hint });
    expect(mapping.address).toBe(hint);
    const forced = expect.objectContaining({ code: GaudiErrorCode.OUT_OF_MEMORY });
    expect(() => device.hostMemoryMap(memory.address, 4096, { hint, forceHint: true })).toThrow(forced);
    expect(device.hostMemoryMap(memory.address, 4096, { hint }).address).not.toBe(hint);
    device.close();
    mapping.unmap();
    memory.close();
  });

  it.each([
    ['no address', 0, 4096, 'address'],
    ['an address of the kernel', 2 ** 47, 4096, 'address'],
    ['a fraction', 4096.5, 1, 'address'],
    ['no bytes', 4096, 0, 'byteLength'],
    ['too many bytes', 4096, 2 ** 53, 'byteLength'],
  ])('refuses %s', (_, address, byteLength, argument) => {
    const device = fixture.setUp({ asic });
    const details = expect.objectContaining({ argument });
    expect(() => device.hostMemoryMap(address, byteLength)).toThrow(expect.objectContaining({ details }));
    expect(device.pinnedBytes).toBe(0);
  });

  it('rejects unmapped memory', () => {
    const device = fixture.setUp({ asic });
    expect(() => device.hostMemoryMap(2 ** 46 + 4096, 4096)).toThrow(/EFAULT|ENOMEM/);
    expect(device.pinnedBytes).toBe(0);
    device.close();
    expect(() => device.hostMemoryMap(4096, 4096)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });
});
