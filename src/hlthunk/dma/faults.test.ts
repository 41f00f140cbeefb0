/** Attribution of faults to transfers from the driver's records: by address, by engine, by ownership of memory, and with insufficient records. */

import { describe, expect, it } from 'vitest';
import { HL_NOTIFIER_EVENT, HL_RAZWI } from '../../uapi/index.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import type { DeviceFault } from '../info/events.ts';
import { doubtsData, type QueueFlight, suspectsOf } from './faults.ts';
import { type DmaRequest, DmaRequestPool } from './request.ts';

const HOST = 0xfff0_0000_0001_0000n;
const HBM = 0x1001_0018_0000_0000n;
const FOREIGN = 0xfff0_0001_0000_0000n;
const PUT_ENGINE = 45;
const GET_ENGINE = 46;
const timestamp = 1n;

function request(source: bigint, destination: bigint, byteLength: number): DmaRequest {
  const made = new DmaRequestPool({}, 1).get()!;
  made.begin(byteLength);
  made.setSource(lowWord(source), highWord(source));
  made.setDestination(lowWord(destination), highWord(destination));
  return made;
}

const PUT = request(HOST + 0x10n, HBM, 0x2000);
const GET = request(HBM + 0x10_0000n, HOST + 0x8000n, 8);
const FOREIGN_GET = request(FOREIGN, HOST + 0x10_0000n, 8);
const OWN: readonly QueueFlight[] = [
  { engineId: PUT_ENGINE, isNamed: false, requests: [PUT] },
  { engineId: GET_ENGINE, isNamed: false, requests: [GET] },
];
const MIXED: readonly QueueFlight[] = [OWN[0]!, { engineId: GET_ENGINE, isNamed: false, requests: [GET, FOREIGN_GET] }];
/** Of a card with channels, whose driver names the engine in every record. */
const NAMED: readonly QueueFlight[] = OWN.map((flight) => ({ ...flight, isNamed: true }));
const isForeign = (address: bigint): boolean => address >= FOREIGN;

const NO_RECORD = {
  pageFault: undefined,
  razwi: undefined,
  undefinedOpcode: undefined,
  engineErr: undefined,
  csTimeout: undefined,
};

function fault(mask: number, records: Partial<DeviceFault> = {}): DeviceFault {
  return { sequence: 1, signals: 1, mask, events: [], ...NO_RECORD, ...records };
}

const pageFaultAt = (addr: bigint, engineId = 0xffff): Partial<DeviceFault> => ({
  pageFault: { timestamp, addr, engineId, pad: new Uint8Array(6) },
});
const engineErrOf = (engineId: number): Partial<DeviceFault> => ({
  engineErr: { timestamp, engineId, errorCount: 1, pad: 0 },
});
const razwiOf = (engineIds: readonly number[]): Partial<DeviceFault> => ({
  razwi: { timestamp, addr: 0n, engineIds, flags: HL_RAZWI.HBW },
});
const { PAGE_FAULT, RAZWI, UNDEFINED_OPCODE, USER_ENGINE_ERR, GENERAL_HW_ERR, CS_TIMEOUT, DEVICE_RESET } =
  HL_NOTIFIER_EVENT;

describe('the suspects of a fault', () => {
  it.each<[string, DeviceFault, readonly QueueFlight[], readonly DmaRequest[]]>([
    ['that touch the address', fault(PAGE_FAULT | RAZWI, pageFaultAt(HOST + 0x1000n)), OWN, [PUT]],
    ['that touch the page of the address', fault(PAGE_FAULT, pageFaultAt(HOST + 0x8fffn)), OWN, [GET]],
    ['of the last page of a transfer', fault(PAGE_FAULT, pageFaultAt(HBM + 0x1fffn)), OWN, [PUT]],
    ['all, where none touches the address', fault(PAGE_FAULT, pageFaultAt(HBM + 0x2000n)), OWN, [PUT, GET]],
    ['of the engine', fault(RAZWI, razwiOf([GET_ENGINE, 3])), OWN, [GET]],
    ['all, where the engine has none', fault(RAZWI, razwiOf([3])), OWN, [PUT, GET]],
    ['all, where nothing is on record', fault(PAGE_FAULT | RAZWI), OWN, [PUT, GET]],
    ['with memory of others, where nothing is on record', fault(PAGE_FAULT | RAZWI), MIXED, [FOREIGN_GET]],
    [
      'with memory of others, where the record is of one fault of several',
      fault(PAGE_FAULT, { signals: 2, ...pageFaultAt(HOST) }),
      MIXED,
      [FOREIGN_GET],
    ],
    [
      'of the engine with an undefined opcode',
      fault(UNDEFINED_OPCODE, { undefinedOpcode: undefinedOpcode(GET_ENGINE) }),
      OWN,
      [GET],
    ],
    ['none of another engine', fault(UNDEFINED_OPCODE, { undefinedOpcode: undefinedOpcode(3) }), OWN, []],
    [
      'of the engine with an undefined opcode, which is also an error of the engine',
      fault(UNDEFINED_OPCODE | USER_ENGINE_ERR, { undefinedOpcode: undefinedOpcode(GET_ENGINE) }),
      OWN,
      [GET],
    ],
    [
      'of the engine with an error',
      fault(USER_ENGINE_ERR, { engineErr: { timestamp, engineId: PUT_ENGINE, errorCount: 1, pad: 0 } }),
      OWN,
      [PUT],
    ],
    ['all, after an unknown error of an engine', fault(USER_ENGINE_ERR), MIXED, [PUT, GET, FOREIGN_GET]],
    ['all, after an error of the hardware', fault(GENERAL_HW_ERR | PAGE_FAULT, pageFaultAt(HOST)), OWN, [PUT, GET]],
    [
      'of the engine that a page fault names, wherever its address is',
      fault(PAGE_FAULT | USER_ENGINE_ERR, pageFaultAt(HOST, GET_ENGINE)),
      NAMED,
      [GET],
    ],
    [
      'of the engines that the records name, as many as there are signals',
      fault(PAGE_FAULT | USER_ENGINE_ERR | DEVICE_RESET, {
        signals: 2,
        ...pageFaultAt(0n, GET_ENGINE),
        ...engineErrOf(GET_ENGINE),
      }),
      NAMED,
      [GET],
    ],
    [
      'all, where more engines may have faulted than are on record',
      fault(USER_ENGINE_ERR, { signals: 2, ...engineErrOf(GET_ENGINE) }),
      NAMED,
      [PUT, GET],
    ],
    [
      'all of a card with channels, after another error',
      fault(GENERAL_HW_ERR, engineErrOf(GET_ENGINE)),
      NAMED,
      [PUT, GET],
    ],
    ['all, after events that could not be read', fault(0), MIXED, [PUT, GET, FOREIGN_GET]],
  ])('are those %s', (_, report, flights, expected) => {
    expect(suspectsOf(report, flights, isForeign)).toEqual(expected);
    expect(doubtsData(report)).toBe(true);
  });

  it('are not determined for events that spoil no data', () => {
    expect([CS_TIMEOUT, DEVICE_RESET, CS_TIMEOUT | DEVICE_RESET].map((mask) => doubtsData(fault(mask)))).toEqual([
      false,
      false,
      false,
    ]);
  });
});

function undefinedOpcode(engineId: number): NonNullable<DeviceFault['undefinedOpcode']> {
  return {
    timestamp,
    cbAddrStreams: [],
    cqAddr: 0n,
    cqSize: 0,
    cbAddrStreamsLen: 0,
    engineId,
    streamId: 0,
  } as unknown as NonNullable<DeviceFault['undefinedOpcode']>;
}
