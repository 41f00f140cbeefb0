import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AddressRange, dmmuRange, NO_USER_RESOURCE, reportedDramBase, reportedDramSize } from './asic-profile.ts';
import { GAUDI_PROFILE } from './asic-profile-gaudi.ts';
import { GAUDI2_PROFILE } from './asic-profile-gaudi2.ts';
import { GAUDI3_PROFILE } from './asic-profile-gaudi3.ts';
import { ASIC_PROFILES, asicOfPciDeviceId } from './asic-profiles.ts';
import { GAUDI3_ENGINE_IDS } from './engine-ids.ts';

const contains = (outer: AddressRange, inner: AddressRange): boolean =>
  outer.start <= inner.start && inner.end <= outer.end;

describe('reported DRAM', () => {
  it('is 31.5 GiB behind the reserved part on gaudi', () => {
    const { dram } = GAUDI_PROFILE;
    expect(reportedDramBase(dram, dram.size)).toBe(0x20000000n);
    expect(reportedDramSize(dram, dram.size)).toBe(0x7e0000000n);
  });

  it('is 127 pages in the MMU range on gaudi2', () => {
    const { dram } = GAUDI2_PROFILE;
    expect(reportedDramBase(dram, dram.size)).toBe(0x1001001800000000n);
    expect(reportedDramSize(dram, dram.size)).toBe(0x17d0000000n);
    expect(reportedDramSize(dram, dram.size)).toBe(127n * dram.pageSize);
    expect(dmmuRange(dram, dram.size)).toEqual({ start: 0x1001001800000000n, end: 0x1001c00600000000n });
  });

  it('is nothing when the reserved part is all there is', () => {
    expect(reportedDramSize(GAUDI2_PROFILE.dram, GAUDI2_PROFILE.dram.reservedSize)).toBe(0n);
    expect(reportedDramSize(GAUDI2_PROFILE.dram, 1n)).toBe(0n);
  });

  it('never overlaps physical memory that is not reported, and is in whole pages', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 1n << 40n }), (size) => {
        for (const { dram } of Object.values(ASIC_PROFILES)) {
          const reported = reportedDramSize(dram, size);
          expect(reported % dram.pageSize).toBe(0n);
          expect(reported + dram.reservedSize <= size || reported === 0n).toBe(true);
          if (dram.reportedBase === 'dmmuStart') expect(reportedDramBase(dram, size) >= dram.base + size).toBe(true);
        }
      }),
    );
  });
});

describe.each(Object.values(ASIC_PROFILES).map((profile) => [profile.name, profile] as const))(
  'profile of %s',
  (name, profile) => {
    it('has ordered ranges, with reserved parts inside them', () => {
      const { va, sram, cfg } = profile;
      for (const range of [va.host, va.hostHuge, sram, cfg, ...va.reservedHost, ...va.reservedDram]) {
        expect(range.start < range.end).toBe(true);
      }
      for (const reserved of va.reservedHost) {
        expect(contains(va.host, reserved) || contains(va.hostHuge, reserved)).toBe(true);
      }
      const { dram } = profile;
      const dmmu = dmmuRange(dram, dram.size);
      for (const reserved of va.reservedDram) expect(contains(dmmu!, reserved)).toBe(true);
    });

    it('agrees with its capabilities', () => {
      const { capabilities, queues, maxPendingCs, dram, interrupts, userBlocks } = profile;
      expect(queues.length > 0).toBe(capabilities.submits);
      expect(maxPendingCs > 0).toBe(capabilities.submits);
      expect(maxPendingCs & (maxPendingCs - 1)).toBe(0);
      expect(dram.dmmuEnd !== undefined).toBe(capabilities.dramMmu);
      expect(interrupts.firstUserInterrupt !== NO_USER_RESOURCE).toBe(capabilities.userInterrupts);
      expect(userBlocks.length > 0).toBe(capabilities.mapBlock);
      expect(queues.some((queue) => queue.kind === 'hw')).toBe(capabilities.submits && capabilities.userCbOnly);
      expect(queues.some((queue) => queue.streamMaster)).toBe(capabilities.multiCs);
    });

    it('has its registers inside configuration space', () => {
      const cfgSize = Number(profile.cfg.end - profile.cfg.start);
      for (const manager of profile.sync.managers) expect(manager.monStatus).toBeLessThan(cfgSize);
      for (const fence of profile.fences) expect(fence.fence0).toBeLessThan(cfgSize);
      for (const block of profile.userBlocks) {
        expect(contains(profile.cfg, { start: block.address, end: block.address + BigInt(block.size) })).toBe(true);
      }
    });

    it('names one QMAN per fence, each at the first of its queues', () => {
      const firsts = profile.fences.map((fence) => fence.firstQueue);
      expect(new Set(firsts).size).toBe(firsts.length);
      expect(new Set(profile.fences.map((fence) => fence.fence0)).size).toBe(firsts.length);
      for (const first of firsts) expect(profile.queues[first]?.firstOfQman).toBe(first);
    });

    it('is found by each of its PCI device ids', () => {
      for (const id of [profile.pciDeviceId, ...profile.otherPciDeviceIds])
        expect(asicOfPciDeviceId(id)?.name).toBe(name);
    });
  },
);

describe('registers', () => {
  it('of gaudi are those of the driver', () => {
    const eastNorth = GAUDI_PROFILE.sync.managers.find((manager) => manager.name === 'E_N');
    expect(eastNorth).toMatchObject({ dcore: 2, sobObj: 0x4f2000, firstUserSob: 0 });
    const westSouth = GAUDI_PROFILE.sync.managers[0];
    expect(westSouth).toMatchObject({
      monPayAddrL: 0x494000,
      monPayAddrH: 0x494800,
      monPayData: 0x495000,
      monArm: 0x495800,
    });
    expect(westSouth).toMatchObject({ monStatus: 0x496000, firstUserSob: 144, firstUserMonitor: 72 });
    expect(GAUDI_PROFILE.fences.find((fence) => fence.firstQueue === 33)).toMatchObject({
      qman: 'MME2',
      fence0: 0x168308,
    });
    expect((GAUDI_PROFILE.fences[0]?.fence0 ?? 0) + GAUDI_PROFILE.arbCfgFromFence0).toBe(0x508a00);
  });

  it('of gaudi2 are those of the driver', () => {
    expect(GAUDI2_PROFILE.sync.managers[3]).toMatchObject({ sobObj: 0x4700000, firstUserSob: 0, firstUserCq: 0 });
    expect(GAUDI2_PROFILE.sync.managers[0]).toMatchObject({ firstUserSob: 413, firstUserMonitor: 289, firstUserCq: 2 });
    expect(GAUDI2_PROFILE.fences.find((fence) => fence.qman === 'DCORE0_TPC6')).toMatchObject({ firstQueue: 44 });
    expect((GAUDI2_PROFILE.fences[0]?.fence0 ?? 0) + GAUDI2_PROFILE.arbCfgFromFence0).toBe(0x4c8a4a4);
  });

  it('of gaudi3 are those of the driver: two groups in each of eight hdcores', () => {
    const { managers, cqRegisters } = GAUDI3_PROFILE.sync;
    expect(GAUDI3_PROFILE.fences).toEqual([]);
    expect(managers.map(({ dcore, group }) => dcore * 2 + group)).toEqual(Array.from({ length: 16 }, (_, i) => i));
    expect(managers[0]).toMatchObject({ sobObj: 0xe380000, monPayAddrL: 0xe388000, monStatus: 0xe38d000 });
    expect(managers[0]).toMatchObject({ firstUserSob: 19, firstUserMonitor: 19, firstUserCq: 19, cqDirect: 0xe38e000 });
    expect(managers[1]).toMatchObject({ sobObj: 0xe390000, firstUserSob: 0, firstUserMonitor: 0, cqDirect: 0 });
    expect(managers[15]).toMatchObject({ dcore: 7, group: 1, sobObj: 0xff90000 });
    expect([cqRegisters?.baseAddrL, cqRegisters?.lbwAddrL, cqRegisters?.incMode]).toEqual([
      0xe3a0050, 0xe3a0450, 0xe3a0750,
    ]);
  });
});

describe('gaudi3', () => {
  it('has the HBM, the addresses and the interrupts of its driver', () => {
    const { dram, va, interrupts } = GAUDI3_PROFILE;
    expect([reportedDramBase(dram, dram.size), reportedDramSize(dram, dram.size)]).toEqual([
      0x0201002000000000n,
      0x1ff4000000n,
    ]);
    expect(dmmuRange(dram, dram.size)?.end).toBe(0x0202000000000000n);
    expect(dram.pageSizes.reduce((mask, size) => mask | size)).toBe(0x42000000n);
    expect(va.host.start).toBe(0xff70000000000000n);
    expect(va.hostHuge.start).toBe(0xfff0000000000000n);
    expect(va.reservedHost.map(({ start }) => start)).toEqual([0xff70780000000000n, 0xfff0780000000000n]);
    expect(va.reservedHost.map(({ end }) => end)).toEqual([va.host.end, va.hostHuge.end]);
    expect(interrupts).toMatchObject({
      firstUserInterrupt: 71,
      userInterruptCount: 256,
      tpcInterrupt: NO_USER_RESOURCE,
    });
    expect(interrupts.msixDoorbell).toBe(0x0300007ffc417000n);
  });

  it('has a virtual doorbell on gaudi2 only', () => {
    const doorbells = Object.values(ASIC_PROFILES).map(({ interrupts }) => interrupts.virtualDoorbell);
    expect(doorbells).toEqual([undefined, GAUDI2_PROFILE.va.reservedHost[0]!.start, undefined]);
  });

  it('has engines in its ids', () => {
    const { engines, channels } = GAUDI3_PROFILE;
    expect(channels!.firstEngineId + channels!.groups.length * channels!.perGroup).toBeLessThanOrEqual(engines.idCount);
    expect(engines.stallable.map(({ count }) => count)).toEqual([
      engines.edmaCount,
      engines.mmeCount,
      engines.tpcCount,
    ]);
    expect(channels!.groups.length * channels!.perGroup).toBe(engines.pdmaCount);
    expect(channels!.firstEngineId).toBe(GAUDI3_ENGINE_IDS.PDMA);
    expect(GAUDI3_ENGINE_IDS.STLB - GAUDI3_ENGINE_IDS.PDMA).toBe(engines.pdmaCount);
  });

  it('is two cards in sysfs', () => {
    const { pciDeviceId, otherPciDeviceIds, deviceTypes } = GAUDI3_PROFILE;
    expect([pciDeviceId, ...otherPciDeviceIds].map((id) => deviceTypes[id])).toEqual(['GAUDI3', 'GAUDI3 HL-338']);
  });
});

describe('PCI device ids', () => {
  it('of other devices belong to no profile', () => {
    expect(asicOfPciDeviceId(0x0001)).toBeUndefined();
  });

  it('of single dies of gaudi3 belong to no profile, because the driver does not bind to them', () => {
    expect([0x1061, 0x1062].map(asicOfPciDeviceId)).toEqual([undefined, undefined]);
  });
});
