/** Contract cases: MEMORY. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { close, Errno, fstat, isCloexec, mapAnonymous } from '../../../src/sys/index.ts';
import { type AsicName, HL_INFO_DRAM_USAGE, HL_INFO_OP, HL_MEM, HL_MEM_OP } from '../../../src/uapi/index.ts';
import { protectPage } from '../../fixtures/driver/protect-page.ts';
import { DriverFixture } from './driver-fixture.ts';

const PAGE = 4096;
const HUGE = 0x200000;
/** Pages of device memory that are allocated one by one. */
const FRAGMENTED_PAGES = 64;

export function memoryCases(asic: AsicName, makeNode: () => DriverNode): void {
  describe('host mappings', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('keeps the offset in the page and unmaps only the exact address', () => {
      const { client, host, profile } = fixture;
      const { result, out } = client.mapHost(host.address + 123, 5000);
      expect(result).toBe(0);
      expect(out & 0xfffn).toBe(123n);
      expect(out).toBeGreaterThanOrEqual(profile.va.host.start);
      expect(client.unmap(out - 123n)).toBe(-Errno.EINVAL);
      expect(client.unmap(out)).toBe(0);
      expect(client.unmap(out)).toBe(-Errno.EINVAL);
    });

    it('refuses what cannot be pinned', () => {
      const { client, host } = fixture;
      expect(client.mapHost(host.address, 0)).toEqual({ result: -Errno.EINVAL, out: 0n });
      expect(client.mapHost(host.address, 2n ** 64n - 1n)).toEqual({ result: -Errno.EINVAL, out: 0n });
      expect(client.mapHost(PAGE, PAGE)).toEqual({ result: -Errno.EFAULT, out: 0n });
      expect(client.mapHost(2n ** 47n, PAGE)).toEqual({ result: -Errno.EFAULT, out: 0n });
      const hole = mapAnonymous(PAGE);
      expect(client.mapHost(hole.address, 2 ** 46).result).toBeLessThan(0);
      hole.close();
    });

    it('refuses pages of which one is read-only: the driver pins for writing', () => {
      const { client } = fixture;
      using memory = mapAnonymous(4 * PAGE);
      memory.u8.fill(7);
      protectPage(memory.address + 2 * PAGE, 'read');
      expect(client.mapHost(memory.address, 4 * PAGE)).toEqual({ result: -Errno.EFAULT, out: 0n });
      expect(client.mapHost(memory.address + 2 * PAGE + 8, 8)).toEqual({ result: -Errno.EFAULT, out: 0n });
      expect(client.unmap(client.mapHost(memory.address, 2 * PAGE).out)).toBe(0);
      protectPage(memory.address + 2 * PAGE, 'write');
      expect(client.unmap(client.mapHost(memory.address, 4 * PAGE).out)).toBe(0);
      expect(memory.u8.every((byte) => byte === 7)).toBe(true);
    });

    it('reuses a freed address, and accepts hints', () => {
      const { client, host } = fixture;
      const one = client.mapHost(host.address, PAGE).out;
      const two = client.mapHost(host.address, PAGE).out;
      expect(two).not.toBe(one);
      expect(client.unmap(one)).toBe(0);
      expect(client.mapHost(host.address, PAGE, one).out).toBe(one);
      // The hint of an occupied address is ignored, unless it is forced.
      expect(client.mapHost(host.address, PAGE, one).out).not.toBe(one);
      expect(client.mapHost(host.address, PAGE, one, HL_MEM.FORCE_HINT)).toEqual({ result: -Errno.ENOMEM, out: 0n });
      const far = two + 0x100000000n;
      expect(client.mapHost(host.address, PAGE, far, HL_MEM.FORCE_HINT).out).toBe(far);
      expect(client.mapHost(host.address, PAGE, far + 5n, HL_MEM.FORCE_HINT).result).toBe(-Errno.ENOMEM);
      // A hint of 0 cannot be respected; nor can one for memory that begins inside a page.
      expect(client.mapHost(host.address, PAGE, 0n, HL_MEM.FORCE_HINT).result).toBe(-Errno.ENOMEM);
      const inside = client.mapHost(host.address + 8, PAGE, far + 0x100000n, HL_MEM.FORCE_HINT);
      expect(inside).toEqual({ result: -Errno.EINVAL, out: 0n });
    });

    it('aligns 2 MiB aligned memory to 2 MiB', () => {
      const { client, host } = fixture;
      const aligned = Math.ceil(host.address / HUGE) * HUGE;
      expect(client.mapHost(aligned, PAGE).out % BigInt(HUGE)).toBe(0n);
      expect(client.mapHost(aligned, HUGE).out % BigInt(HUGE)).toBe(0n);
    });
  });

  describe('device memory', () => {
    const fixture = new DriverFixture(asic, makeNode);
    const usage = () => fixture.client.info(HL_INFO_OP.DRAM_USAGE, HL_INFO_DRAM_USAGE).out;

    it('accounts for memory', () => {
      const { client, hw } = fixture;
      const before = usage();
      expect(before.ctx_dram_mem).toBe(0n);
      const { result, out } = client.allocate(hw.dram_page_size);
      expect(result).toBe(0);
      expect(out).toBe(asic === 'gaudi' ? 0n : 1n);
      expect(usage().ctx_dram_mem).toBe(hw.dram_page_size);
      expect(before.dram_free_mem - usage().dram_free_mem).toBe(hw.dram_page_size);
      expect(client.free(asic === 'gaudi' ? hw.dram_page_size : out)).toBe(0);
      expect(usage()).toEqual(before);
      expect(client.allocate(0)).toEqual({ result: -Errno.EINVAL, out: 0n });
    });

    it('frees everything at close', () => {
      const before = usage();
      fixture.deviceMemory();
      fixture.mapAll();
      fixture.client.close();
      fixture.open();
      expect(usage()).toEqual(before);
    });

    it('refuses an unknown op', () => {
      expect(fixture.client.memory({ op: 7 }).result).toBe(-Errno.EINVAL);
      expect(fixture.client.unmap(0x1234n)).toBe(-Errno.EINVAL);
    });

    if (asic === 'gaudi') {
      it('has no mappings of device memory, as addresses are physical', () => {
        expect(fixture.client.mapDevice(0n)).toEqual({ result: -Errno.EINVAL, out: 0n });
      });
    } else {
      mappedMemory(fixture, usage);
    }
  });

  describe('dma-buf', () => {
    const fixture = new DriverFixture(asic, makeNode);

    it('exports a part of device memory as a descriptor that cannot be mapped', () => {
      const { client } = fixture;
      const address = fixture.deviceMemory();
      const { result, out } = client.exportDmabuf(address, 8192, asic === 'gaudi' ? 0 : PAGE);
      expect(result).toBe(0);
      expect(isCloexec(out)).toBe(true);
      const second = client.exportDmabuf(address, PAGE, 0, 0);
      expect(isCloexec(second.out)).toBe(false);
      expect(fstat(out).ino).not.toBe(fstat(second.out).ino);
      if (fixture.profile.capabilities.dramMmu) {
        expect(client.unmap(address)).toBe(-Errno.EINVAL);
        expect(client.free(fixture.handle)).toBe(-Errno.EINVAL);
      }
      close(out);
      close(second.out);
      if (fixture.profile.capabilities.dramMmu) expect(client.unmap(address)).toBe(0);
    });

    it('checks alignment and bounds', () => {
      const { client, hw } = fixture;
      const address = fixture.deviceMemory();
      const end = asic === 'gaudi' ? hw.dram_base_address + hw.dram_size : address;
      expect(client.exportDmabuf(address + 1n, PAGE)).toEqual({ result: -Errno.EINVAL, out: -Errno.EBADF });
      expect(client.exportDmabuf(address, 100).result).toBe(-Errno.EINVAL);
      expect(client.exportDmabuf(address, PAGE, 100).result).toBe(-Errno.EINVAL);
      expect(client.exportDmabuf(0n, PAGE).result).toBe(-Errno.EINVAL);
      if (asic === 'gaudi') {
        expect(client.exportDmabuf(address, PAGE, PAGE).result).toBe(-Errno.EINVAL);
        expect(client.exportDmabuf(end, PAGE).result).toBe(-Errno.EINVAL);
      } else {
        expect(client.exportDmabuf(address + BigInt(PAGE), PAGE).result).toBe(-Errno.EINVAL);
        expect(client.exportDmabuf(address, PAGE, Number(hw.dram_page_size)).result).toBe(-Errno.EINVAL);
      }
    });
  });
}

function mappedMemory(fixture: DriverFixture, usage: () => { dram_free_mem: bigint; ctx_dram_mem: bigint }): void {
  it('rounds up to pages and runs out with ENOMEM', () => {
    const { client, hw } = fixture;
    expect(client.allocate(1).result).toBe(0);
    expect(usage().ctx_dram_mem).toBe(hw.dram_page_size);
    expect(client.allocate(hw.dram_size)).toEqual({ result: -Errno.ENOMEM, out: 0n });
    expect(client.allocate(hw.dram_size - hw.dram_page_size).result).toBe(0);
    expect(client.allocate(1).result).toBe(-Errno.ENOMEM);
  });

  it('fails CONTIGUOUS in fragmented memory, and uses several pieces otherwise', () => {
    const { client, hw } = fixture;
    // All but the last pages in one allocation.
    expect(client.allocate(hw.dram_size - BigInt(FRAGMENTED_PAGES) * hw.dram_page_size).result).toBe(0);
    const handles = Array.from({ length: FRAGMENTED_PAGES }, () => client.allocate(1).out);
    for (const handle of handles.filter((_, index) => index % 2 === 0)) expect(client.free(handle)).toBe(0);
    expect(client.allocate(hw.dram_page_size * 2n, HL_MEM.CONTIGUOUS).result).toBe(-Errno.ENOMEM);
    const { result, out } = client.allocate(hw.dram_page_size * 2n);
    expect(result).toBe(0);
    const mapped = client.mapDevice(out).out;
    // A transfer across both pieces.
    const hostVa = fixture.mapAll();
    fixture.host.words[0] = 0x01020304;
    fixture.host.words[1] = 0x05060708;
    const border = mapped + hw.dram_page_size - 4n;
    fixture.copy(hostVa, border, 8);
    fixture.copy(border, hostVa + 64n, 8);
    expect([...fixture.host.words.subarray(16, 18)]).toEqual([0x01020304, 0x05060708]);
  });

  it('frees only known handles that are not mapped', () => {
    const { client, hw } = fixture;
    const address = fixture.deviceMemory();
    expect(client.free(fixture.handle)).toBe(-Errno.EINVAL);
    expect(client.free(99n)).toBe(-Errno.EINVAL);
    expect(address % 4096n).toBe(0n);
    expect(address).toBeGreaterThanOrEqual(hw.dram_base_address);
    expect(client.unmap(address + 4096n)).toBe(-Errno.EINVAL);
    expect(client.unmap(address)).toBe(0);
    expect(client.free(fixture.handle)).toBe(0);
    expect(client.mapDevice(fixture.handle)).toEqual({ result: -Errno.EINVAL, out: 0n });
  });

  it('maps one allocation twice, and accepts hints in whole pages', () => {
    const { client, hw, profile } = fixture;
    const one = fixture.deviceMemory();
    const two = client.mapDevice(fixture.handle).out;
    expect(two).not.toBe(one);
    const hint = hw.dram_base_address + hw.dram_page_size * 20n;
    expect(client.mapDevice(fixture.handle, hint).out).toBe(hint);
    expect(client.mapDevice(fixture.handle, hint + 4096n).out).not.toBe(hint + 4096n);
    expect(client.mapDevice(fixture.handle, hint, HL_MEM.FORCE_HINT)).toEqual({ result: -Errno.ENOMEM, out: 0n });
    // On gaudi2 a page takes one of 1 GiB of the device MMU, so that a quarter of its address space is not used (gaudi2_set_dram_properties, Linux 6.12).
    const { dmmuEnd, dmmuPageSize } = profile.dram;
    const pages = (dmmuEnd! - hw.dram_base_address) / dmmuPageSize;
    const last = hw.dram_base_address + (pages - 1n) * hw.dram_page_size;
    expect(client.mapDevice(fixture.handle, last, HL_MEM.FORCE_HINT).out).toBe(last);
    const behind = client.mapDevice(fixture.handle, last + hw.dram_page_size, HL_MEM.FORCE_HINT);
    expect(behind).toEqual({ result: -Errno.ENOMEM, out: 0n });
    expect(client.unmap(one)).toBe(0);
    expect(client.free(fixture.handle)).toBe(-Errno.EINVAL);
  });

  it('has an import op only in the vendor’s driver', () => {
    const { client } = fixture;
    const result = client.memory({
      op: HL_MEM_OP.REG_DMABUF_FD,
      reg_dmabuf_fd_fd: -1,
      reg_dmabuf_fd_length: 4096n,
    }).result;
    expect([-Errno.EBADF, -Errno.EINVAL]).toContain(result);
  });
}
