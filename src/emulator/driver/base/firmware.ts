/**
 * The state and reports of the firmware of a card: its versions, the clock of the compute engines and the power limit, which programs may lower through
 * sysfs, its sensors, and the events of the hardware. Clock and power limit do not change the execution.
 */

import { Errno } from '../../../sys/index.ts';
import type { AsicName, AsicProfile } from '../../../uapi/index.ts';
import { parseSignedNumber } from './numbers.ts';

/** Version reported by the emulated firmware. */
export const FIRMWARE_VERSION = 'gaudi-ucx-emulator-fw-1.22.0-sec-11';
/** PCI revision: the first one (REV_ID_A). 0 is not a revision: the C library does not recognise a gaudi2 of it (pci_general.h). */
export const PCI_REVISION = 1;

/** Clock of the compute engines in MHz: the maximum that the driver reports, and the idle one. */
const CLOCK_MHZ: Readonly<Record<AsicName, { readonly idle: number; readonly max: number }>> = {
  gaudi: { idle: 1900, max: 2200 },
  gaudi2: { idle: 1650, max: 1650 },
  gaudi3: { idle: 1600, max: 1600 },
};
/** Power limits in microwatts: those of the OAM cards of each generation. */
const MAX_POWER_UW: Readonly<Record<AsicName, number>> = { gaudi: 350e6, gaudi2: 600e6, gaudi3: 900e6 };

/** The limits of one card. Firmware refuses values beyond those of the hardware, which the driver does not report: the value before remains. */
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

/*
 * The sensors of a card as files of hwmon, by name. The values are those of an idle card, and constant: nothing here measures.
 *
 * Source: drivers/accel/habanalabs/common/hwmon.c, Linux 6.12: hl_is_visible has the modes, hl_read and hl_write the attributes.
 */

/** A file of hwmon. */
export interface SensorFile {
  readonly name: string;
  /** Undefined for a write-only file. Returns undefined while the card does not work: ENODEV. */
  readonly read?: () => string | undefined;
  /** Returns 0, or a negative errno: EINVAL for text that is no number, ERANGE for a number of more than 64 bits, ENODEV while the card does not work. */
  readonly write?: (text: string) => number;
}

/** Sensors that the firmware reports. Temperatures in thousandths of a degree, volts and amperes in thousandths, power in millionths of a watt. */
const INPUTS: Readonly<Record<AsicName, Readonly<Record<string, number>>>> = {
  gaudi: { temp1: 38_000, temp2: 41_000, in0: 12_000, curr1: 8_000, power1: 96_000_000 },
  gaudi2: { temp1: 36_000, temp2: 40_000, in0: 54_000, curr1: 2_200, power1: 118_000_000 },
  gaudi3: { temp1: 37_000, temp2: 42_000, in0: 54_000, curr1: 3_500, power1: 190_000_000 },
};
/** Limits of temperatures. */
const LIMITS: Readonly<Record<string, number>> = { max: 95_000, crit: 105_000, max_hyst: 90_000, crit_hyst: 100_000 };

/** What the firmware serves as a file. */
interface SensorValue {
  readonly name: string;
  readonly read?: () => string;
  readonly write?: (value: bigint) => void;
}

/**
 * The files of a card, with their own state. The device is named after the card (hl_hwmon_init); hwmon itself answers that.
 * @param isOperational whether the firmware of the card answers
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

/** Parses the number before the driver looks at the card (hwmon_attr_store, Linux 6.12). */
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

/*
 * Events that the hardware reports through its firmware, as far as programs raise them to inject errors. Handling them belongs to card.ts.
 *
 * Source: mmGIC_DISTRIBUTOR__5_GICD_SETSPI_NSR of include/gaudi/asic_reg/gaudi_regs.h, gaudi_async_events.h and gaudi_handle_eqe of gaudi.c; for gaudi2, the fields gic_host_* of the
 * dynamic registers of its firmware (gaudi2.c), Linux 6.12. hl-thunk injects events into gaudi only.
 */

/** How a program makes the hardware of a generation report an event. */
export type EventInjection =
  /** It writes the number of the event to this register, an offset from CFG_BASE. */
  | { readonly register: bigint; readonly refusal?: undefined }
  /** It cannot, for this reason. */
  | { readonly register?: undefined; readonly refusal: string };

const DYNAMIC =
  'the firmware tells its driver at run time to which register events are written, and no public header names it';

/** By generation. */
export const EVENT_INJECTION: Readonly<Record<AsicName, EventInjection>> = {
  gaudi: { register: 0x80_0040n },
  gaudi2: { refusal: DYNAMIC },
  gaudi3: { refusal: DYNAMIC },
};

/** ECC errors of the eight TPCs of gaudi: those that were corrected (GAUDI_EVENT_TPC0_SERR to TPC7_SERR), and those that were not (TPC0_DERR to TPC7_DERR). */
const GAUDI_TPC_SERR = { first: 38, end: 46 } as const;
const GAUDI_TPC_DERR = { first: 46, end: 54 } as const;

/** How the driver treats an event: it resets the card, notifies of an error of the hardware, or counts only. */
export type EventSeverity = 'fatal' | 'corrected' | 'none';

/** The severity of an event. */
export function severityOf(asic: AsicName, event: number): EventSeverity {
  if (asic !== 'gaudi') return 'none';
  if (event >= GAUDI_TPC_DERR.first && event < GAUDI_TPC_DERR.end) return 'fatal';
  return event >= GAUDI_TPC_SERR.first && event < GAUDI_TPC_SERR.end ? 'corrected' : 'none';
}
