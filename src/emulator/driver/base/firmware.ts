/**
 * State and reports of the firmware of a card: its versions, the clock of the compute engines and the power limit, which programs may lower through sysfs,
 * its sensors, and hardware events. Clock and power limit do not affect the execution.
 */

import { Errno } from '../../../sys/index.ts';
import type { AsicName, AsicProfile } from '../../../uapi/index.ts';
import { parseSignedNumber } from './numbers.ts';

/** Version reported by the emulated firmware. */
export const FIRMWARE_VERSION = 'gaudi-ucx-emulator-fw-1.22.0-sec-11';
/** PCI revision: the first one (REV_ID_A). With 0, the C library does not recognise a gaudi2 (pci_general.h). */
export const PCI_REVISION = 1;

/** Clock of the compute engines in MHz: the reported maximum, and the idle clock. */
const CLOCK_MHZ: Readonly<Record<AsicName, { readonly idle: number; readonly max: number }>> = {
  gaudi: { idle: 1900, max: 2200 },
  gaudi2: { idle: 1650, max: 1650 },
  gaudi3: { idle: 1600, max: 1600 },
};
/** Power limits in microwatts: those of the OAM cards of each generation. */
const MAX_POWER_UW: Readonly<Record<AsicName, number>> = { gaudi: 350e6, gaudi2: 600e6, gaudi3: 900e6 };

/** The limits of one card. Firmware ignores a value above the limit of the hardware: the previous value remains, and the driver reports no error. */
export class CardLimits {
  readonly #asic: AsicName;
  #maxClockMhz: number;
  #maxPowerUw: number;

  constructor(asic: AsicName) {
    this.#asic = asic;
    this.#maxClockMhz = CLOCK_MHZ[asic].max;
    this.#maxPowerUw = MAX_POWER_UW[asic];
  }

  get clockMhz(): number {
    return Math.min(CLOCK_MHZ[this.#asic].idle, this.#maxClockMhz);
  }

  get maxClockMhz(): number {
    return this.#maxClockMhz;
  }

  /** In microwatts. */
  get maxPowerUw(): number {
    return this.#maxPowerUw;
  }

  setMaxClock(mhz: bigint): void {
    if (mhz > 0n && mhz <= CLOCK_MHZ[this.#asic].max) this.#maxClockMhz = Number(mhz);
  }

  setMaxPower(microwatt: bigint): void {
    if (microwatt > 0n && microwatt <= MAX_POWER_UW[this.#asic]) this.#maxPowerUw = Number(microwatt);
  }
}

/** A sensor attribute of a card as a hwmon file. */
export interface SensorFile {
  readonly name: string;
  /** Omitted for a write-only file. Returns undefined while the card does not work: ENODEV. */
  readonly read?: () => string | undefined;
  /**
   * Returns 0, or a negative errno: EINVAL for a string that is not a number, ERANGE for a number of more than 64 bits, ENODEV while the card does not
   * work.
   */
  readonly write?: (text: string) => number;
}

/** Sensors that the firmware reports: millidegrees Celsius, millivolts, milliamperes, microwatts. */
const INPUTS: Readonly<Record<AsicName, Readonly<Record<string, number>>>> = {
  gaudi: { temp1: 38_000, temp2: 41_000, in0: 12_000, curr1: 8_000, power1: 96_000_000 },
  gaudi2: { temp1: 36_000, temp2: 40_000, in0: 54_000, curr1: 2_200, power1: 118_000_000 },
  gaudi3: { temp1: 37_000, temp2: 42_000, in0: 54_000, curr1: 3_500, power1: 190_000_000 },
};
/** Temperature limits. */
const LIMITS: Readonly<Record<string, number>> = { max: 95_000, crit: 105_000, max_hyst: 90_000, crit_hyst: 100_000 };

/** A value of the firmware that is a file. */
interface SensorValue {
  readonly name: string;
  readonly read?: () => string;
  readonly write?: (value: bigint) => void;
}

/**
 * The sensor files of a card, with their state. The values are constants, those of an idle card. hwmon itself provides the device name, which is that of
 * the card (hl_hwmon_init).
 *
 * Source: drivers/accel/habanalabs/common/hwmon.c, Linux 6.12: hl_is_visible has the modes, hl_read and hl_write the attributes.
 * @param isOperational whether the firmware of the card replies
 */
export function sensorFiles({ name, cardName }: AsicProfile, isOperational: () => boolean): readonly SensorFile[] {
  const values = Object.entries(INPUTS[name]).flatMap(([sensor, value]) => valuesOf(sensor, value));
  return [{ name: 'name', read: () => cardName }, ...values.map((value) => fileOf(value, isOperational))];
}

function fileOf({ name, read, write }: SensorValue, isOperational: () => boolean): SensorFile {
  return {
    name,
    ...(read !== undefined && { read: () => (isOperational() ? read() : undefined) }),
    ...(write !== undefined && { write: (text) => store(text, write, isOperational) }),
  };
}

/** The number is parsed before the state of the card is checked (hwmon_attr_store, Linux 6.12). */
function store(text: string, write: (value: bigint) => void, isOperational: () => boolean): number {
  const value = parseSignedNumber(text);
  if (typeof value === 'number') return value;
  if (!isOperational()) return -Errno.ENODEV;
  write(value);
  return 0;
}

function valuesOf(sensor: string, value: number): readonly SensorValue[] {
  const constant = (name: string, number: number): SensorValue => ({
    name: `${sensor}_${name}`,
    read: () => String(number),
  });
  const history: SensorValue = { name: `${sensor}_reset_history`, write: () => {} };
  if (sensor.startsWith('power')) return [constant('input', value), constant('input_highest', value), history];
  if (!sensor.startsWith('temp')) {
    return [
      constant('input', value),
      constant('min', 0),
      constant('max', 2 * value),
      constant('highest', value),
      history,
    ];
  }
  let offset = 0n;
  return [
    { name: `${sensor}_input`, read: () => String(BigInt(value) + offset) },
    ...Object.entries(LIMITS).map(([name, limit]) => constant(name, limit)),
    constant('highest', value),
    {
      name: `${sensor}_offset`,
      read: () => String(offset),
      write: (given) => {
        offset = given;
      },
    },
    history,
  ];
}

/** How a program can make the hardware of a generation report an event. */
export type EventInjection =
  /** By writing the number of the event to this register, an offset from CFG_BASE. */
  | { readonly register: bigint; readonly reason?: undefined }
  /** Not possible, for this reason. */
  | { readonly register?: undefined; readonly reason: string };

const DYNAMIC = 'the firmware reports the event register to its driver at run time, and no public header names it';

/**
 * How programs raise hardware events, which the firmware reports, to inject errors. card.ts handles the events.
 *
 * Source: mmGIC_DISTRIBUTOR__5_GICD_SETSPI_NSR of include/gaudi/asic_reg/gaudi_regs.h, gaudi_async_events.h and gaudi_handle_eqe of gaudi.c; for gaudi2,
 * the fields gic_host_* of the dynamic registers of its firmware (gaudi2.c), Linux 6.12. hl-thunk injects events only into gaudi.
 */
export const EVENT_INJECTION: Readonly<Record<AsicName, EventInjection>> = {
  gaudi: { register: 0x80_0040n },
  gaudi2: { reason: DYNAMIC },
  gaudi3: { reason: DYNAMIC },
};

/** ECC errors of the eight TPCs of gaudi: corrected (GAUDI_EVENT_TPC0_SERR to TPC7_SERR) and uncorrected (TPC0_DERR to TPC7_DERR). */
const GAUDI_TPC_SERR = { first: 38, end: 46 } as const;
const GAUDI_TPC_DERR = { first: 46, end: 54 } as const;

/** How the driver handles an event: `fatal` resets the card, `corrected` notifies the user of a hardware error, `none` only counts. */
export type EventSeverity = 'fatal' | 'corrected' | 'none';

export function severityOf(asic: AsicName, event: number): EventSeverity {
  if (asic !== 'gaudi') return 'none';
  if (event >= GAUDI_TPC_DERR.first && event < GAUDI_TPC_DERR.end) return 'fatal';
  return event >= GAUDI_TPC_SERR.first && event < GAUDI_TPC_SERR.end ? 'corrected' : 'none';
}
