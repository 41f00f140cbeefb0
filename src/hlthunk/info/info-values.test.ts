/** Each query of INFO returns its own answer, with every value under its own name: a card whose values all differ. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SCRIPTED_BUSES, SCRIPTED_MINORS, scriptedNode } from '../../../test/fixtures/driver/scripted-node.ts';
import { HL_INFO_OP } from '../../uapi/index.ts';
import * as hlthunk from '../index.ts';

const MIB = 2 ** 20;
const node = scriptedNode();
let first: hlthunk.ControlDevice;
let second: hlthunk.ControlDevice;

beforeAll(() => {
  first = hlthunk.openControl(node, SCRIPTED_MINORS[0]);
  second = hlthunk.openControl(node, SCRIPTED_MINORS[1]);
});

afterAll(() => {
  first.close();
  second.close();
});

/** `length` bytes from `from` on. */
function bytes(from: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => from + index);
}

describe('a query of a card', () => {
  it('of its hardware has all fields', () => {
    expect(hlthunk.getHwIpInfo(second)).toEqual({
      sramBaseAddress: 0x1002n,
      dramBaseAddress: 0x1004n,
      dramSize: BigInt(97_537 * MIB),
      sramSize: 48 * MIB,
      numOfEvents: 5,
      deviceId: 0x1020,
      moduleId: 3,
      decoderEnabledMask: 1008,
      firstAvailableInterruptId: 1010,
      serverType: 3,
      cpldVersion: 1012,
      psocPciPllNr: 1014,
      psocPciPllNf: 1016,
      psocPciPllOd: 1018,
      psocPciPllDivFactor: 1020,
      tpcEnabledMask: 22,
      dramEnabled: 1,
      securityEnabled: 34,
      mmeMasterSlaveMode: 36,
      cpucpVersion: 'cpucp-1',
      cardName: 'HL225-1',
      tpcEnabledMaskExt: 1022n,
      dramPageSize: BigInt(2 * MIB),
      edmaEnabledMask: 1024,
      numberOfUserInterrupts: 1026,
      reserved1: 42,
      reserved2: 44,
      reserved3: 1028n,
      deviceMemAllocDefaultPageSize: 1030n,
      reserved4: 0b1_0000_1010n,
      reserved5: 0b1_0000_0000n,
      reserved6: 1032,
      reserved7: 46,
      revisionId: 48,
      tpcInterruptId: 1034,
      rotatorEnabledMask: 1036,
      reserved9: 1038,
      engineCoreInterruptRegAddr: 1040n,
      reservedDramSize: 1042n,
      interposerVersion: 42,
      substrateVersion: 44,
      pdmaUserOwnedChMask: 1028n,
      nicPortsMask: 0b1_0000_1010n,
      nicPortsExternalMask: 0b1_0000_0000n,
      mmeEnabledMask: 1032,
      odpSupported: 46,
      schedArcEnabledMask: 1038,
    });
    expect(hlthunk.getDeviceIdFromFd(first)).toBe(0x1020);
  });

  it('of memory, clock, resets and time', () => {
    expect(hlthunk.getDramUsage(first)).toEqual({
      dramFreeMem: BigInt(61_440 * MIB),
      ctxDramMem: BigInt(1234 * MIB),
    });
    expect(hlthunk.getClkRate(first)).toEqual({ curClkRateMhz: 1411, maxClkRateMhz: 1653 });
    expect(hlthunk.getResetCount(first)).toEqual({ hardResetCnt: 11, softResetCnt: 23 });
    expect(hlthunk.getTimeSync(first)).toEqual({ deviceTime: 71_001n, hostTime: 72_003n, tscTime: 73_005n });
    expect(hlthunk.getDeviceStatus(first)).toBe(0);
    expect(hlthunk.getDevMemAllocPageOrders(first)).toBe(0x0220_0000n);
  });

  it('of its engines', () => {
    expect(hlthunk.isIdle(first)).toBe(false);
    expect(hlthunk.getHwIdle(first)).toEqual({ isIdle: false, busyEnginesMaskExt: [8n, 32n, 128n, 1n << 63n] });
    expect(hlthunk.getEngineStatus(first)).toBe('engines of 0\n');
    expect(hlthunk.getEngineStatus(second, 1024)).toBe('engines of 1\n');
    expect(hlthunk.getSyncManagerInfo(second, 5)).toEqual({
      firstAvailableSyncObject: 582,
      firstAvailableMonitor: 584,
      firstAvailableCq: 586,
      reserved: 0,
    });
  });

  it('of its use: opens, utilization in a period, refused submissions', () => {
    expect([first, second].map((card) => hlthunk.getOpenStats(card))).toEqual([
      {
        openCounter: 31n,
        lastOpenPeriodMs: 3300n,
        isComputeCtxActive: 1,
        computeCtxInRelease: 0,
        computeCtxHasMappedResources: 0,
        pad: bytes(0, 6).fill(0),
      },
      {
        openCounter: 32n,
        lastOpenPeriodMs: 3301n,
        isComputeCtxActive: 0,
        computeCtxInRelease: 1,
        computeCtxHasMappedResources: 0,
        pad: bytes(0, 6).fill(0),
      },
    ]);
    expect(hlthunk.getDeviceUtilization(second)).toBe(38);
    expect(hlthunk.getDeviceUtilization(second, 20)).toBe(58);
    expect(hlthunk.getCsCounters(second)).toEqual({
      totalOutOfMemDropCnt: 2n,
      ctxOutOfMemDropCnt: 3_000_001n,
      totalParsingDropCnt: 10n,
      ctxParsingDropCnt: 3_000_003n,
      totalQueueFullDropCnt: 200n,
      ctxQueueFullDropCnt: 3_000_005n,
      totalDeviceInResetDropCnt: 3000n,
      ctxDeviceInResetDropCnt: 3_000_007n,
      totalMaxCsInFlightDropCnt: 40_000n,
      ctxMaxCsInFlightDropCnt: 3_000_009n,
      totalValidationDropCnt: 500_000n,
      ctxValidationDropCnt: 3_000_011n,
    });
  });

  it('of its firmware: power, energy, PCIe, throttling, PLLs', () => {
    expect(hlthunk.getPower(first)).toBe(345_678n);
    expect(hlthunk.getTotalEnergyConsumption(first)).toBe(987_654_321n);
    expect(hlthunk.getPciCounters(first)).toEqual({ rxThroughput: 4321n, txThroughput: 8765n, replayCnt: 97n });
    expect(hlthunk.getClkThrottleInfo(first)).toEqual({
      clkThrottlingReason: 2,
      pad: 0,
      clkThrottlingTimestampUs: [51_001n, 52_003n],
      clkThrottlingDurationNs: [7_654_321n, 3_210_987n],
    });
    expect(hlthunk.getPllFrequency(second, 3)).toEqual([3602, 3604, 3606, 3608]);
  });

  it('of hardware events, and of rows that were or will be replaced', () => {
    expect([...hlthunk.getHwEvents(second)]).toEqual([201, 203, 205, 207, 209]);
    expect([...hlthunk.getHwEvents(second, true)]).toEqual([301, 303, 305, 307, 309]);
    expect([first, second].map((card) => hlthunk.getDramPendingRows(card))).toEqual([5, 0]);
    const rows = hlthunk.getDramReplacedRows(first);
    expect(rows.map(({ replacedRowCause }) => replacedRowCause)).toEqual([0, 1, 0, 7, 1, 0]);
    expect(rows[2]).toEqual({ hbmIdx: 30, pc: 31, sid: 32, bankIdx: 33, rowAddr: 0x0402, replacedRowCause: 0 });
  });

  it('of the ports that this driver reports', () => {
    expect(hlthunk.getNicPortsMasks(first)).toEqual({ ports: 0b1_0000_1010n, externalPorts: 0b1_0000_0000n });
    const [, busId] = SCRIPTED_BUSES;
    expect(hlthunk.getNicPorts(first, undefined, node)).toEqual([
      { port: 1, external: false, linkUp: true, peer: { busId, port: 3 }, connected: true, netdev: 'eth01' },
      { port: 3, external: false, linkUp: true, peer: { busId, port: 1 }, connected: true, netdev: undefined },
      { port: 8, external: true, linkUp: true, peer: undefined, connected: true, netdev: 'eth08' },
    ]);
  });

  it('of any op', () => {
    const answer = new Uint8Array(13);
    expect(hlthunk.getInfo(second, HL_INFO_OP.ENGINE_STATUS, answer, 99)).toBe(13);
    expect(new TextDecoder().decode(answer)).toBe('engines of 1\n');
  });
});

describe('a record of a fault', () => {
  it('has all fields', () => {
    expect(hlthunk.getLastErrOpenDevTime(first)).toBe(61_001n);
    expect(hlthunk.getCsTimeoutInfo(first)).toEqual({ timestamp: 62_001n, seq: 62_003n });
    expect(hlthunk.getRazwiInfo(first)).toEqual({
      timestamp: 63_001n,
      addr: 63_003n,
      engineIds: [500, 501, 502],
      flags: 5,
    });
    expect(hlthunk.getUndefinedOpcodeInfo(first)).toEqual({
      timestamp: 64_001n,
      cbAddrStreams: Array.from({ length: 32 }, (_, index) => BigInt(0x9000 + index)),
      cqAddr: 64_003n,
      cqSize: 64_005,
      cbAddrStreamsLen: 64_007,
      engineId: 64_009,
      streamId: 64_011,
    });
    expect(hlthunk.getPageFaultInfo(first)).toMatchObject({ timestamp: 65_001n, addr: 65_003n, engineId: 65_005 });
    expect(hlthunk.getHwErrInfo(first)).toMatchObject({ timestamp: 67_001n, eventId: 67 });
    expect(hlthunk.getFwErrInfo(first)).toMatchObject({ timestamp: 68_001n, errType: 1, eventId: 69 });
    expect(hlthunk.getEngineErrInfo(first)).toMatchObject({ timestamp: 69_001n, engineId: 71, errorCount: 73 });
    expect(hlthunk.getUserMappings(first)).toEqual([
      { devVa: 66_001n, size: 66_003n },
      { devVa: 66_005n, size: 66_007n },
    ]);
  });
});

describe('a signed report', () => {
  it('about the boot has each part in its own length', () => {
    expect(hlthunk.getSecAttestInfo(second, 4711)).toEqual({
      nonce: 4711,
      pcrNumReg: 2,
      pcrRegLen: 3,
      pcrData: bytes(10, 6),
      pcrQuote: bytes(40, 5),
      quoteSig: bytes(70, 5),
      publicData: bytes(100, 7),
      certificate: bytes(130, 9),
    });
  });

  it('about the device likewise', () => {
    expect(hlthunk.getDevInfoSigned(second, 4713)).toEqual({
      nonce: 4713,
      devInfo: bytes(110, 5),
      infoSig: bytes(80, 4),
      publicData: bytes(20, 6),
      certificate: bytes(50, 8),
    });
  });
});
