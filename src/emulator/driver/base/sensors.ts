/**
 * The sensors of a card as files of hwmon, by name. The values are those of an idle card, and constant: nothing here measures.
 *
 * Source: drivers/accel/habanalabs/common/hwmon.c, Linux 6.12: hl_is_visible has the modes, hl_read and hl_write the attributes.
 */

import { Errno } from '../../../sys/index.ts';
import type { AsicName } from '../../../uapi/index.ts';
import { isOperational } from './card-attributes.ts';
import type { CardPort } from './card-port.ts';

/** Sensors that the firmware reports. Temperatures in thousandths of a degree, volts and amperes in thousandths, power in millionths of a watt. */
const INPUTS: Readonly<Record<AsicName, Readonly<Record<string, number>>>> = {
  gaudi: { temp1: 38_000, temp2: 41_000, in0: 12_000, curr1: 8_000, power1: 96_000_000 },
  gaudi2: { temp1: 36_000, temp2: 40_000, in0: 54_000, curr1: 2_200, power1: 118_000_000 },
  gaudi3: { temp1: 37_000, temp2: 42_000, in0: 54_000, curr1: 3_500, power1: 190_000_000 },
};
/** Limits of temperatures. */
const LIMITS: Readonly<Record<string, number>> = { max: 95_000, crit: 105_000, max_hyst: 90_000, crit_hyst: 100_000 };
/** Limits of the numbers that programs write. */
const S64_MAX = 2n ** 63n - 1n;
const S64_MIN: bigint = -(2n ** 63n);

/** A file of hwmon. */
export interface SensorFile {
  readonly name: string;
  /** Undefined for a write-only file. Returns undefined while the card does not work: ENODEV. */
  readonly read?: () => string | undefined;
  /** Returns 0, or a negative errno: EINVAL for text that is no number, ERANGE for a number of more than 64 bits, ENODEV while the card does not work. */
  readonly write?: (text: string) => number;
}

/** The files of a card, with their own state. The device is named after the card (hl_hwmon_init); hwmon itself answers that. */
export function sensorFiles(card: CardPort): readonly SensorFile[] {
  const { name, cardName } = card.profile;
  const files: SensorFile[] = [{ name: 'name', read: () => cardName }];
  for (const [sensor, value] of Object.entries(INPUTS[name])) {
    for (const file of filesOf(sensor, value)) files.push(whileOperational(card, file));
  }
  return files;
}

/** A file that the firmware serves. The number is parsed before the driver looks at the card (hwmon_attr_store, Linux 6.12). */
function whileOperational(card: CardPort, { name, read, write }: SensorFile): SensorFile {
  const file: { name: string; read?: () => string | undefined; write?: (text: string) => number } = { name };
  if (read !== undefined) file.read = () => (isOperational(card) ? read() : undefined);
  if (write !== undefined) {
    file.write = (text) => {
      const errno = numberErrno(text);
      if (errno !== 0) return -errno;
      return isOperational(card) ? write(text) : -Errno.ENODEV;
    };
  }
  return file;
}

function filesOf(sensor: string, value: number): readonly SensorFile[] {
  const constant = (name: string, number: number): SensorFile => ({
    name: `${sensor}_${name}`,
    read: () => String(number),
  });
  const history: SensorFile = { name: `${sensor}_reset_history`, write: () => 0 };
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
      write: (text) => {
        offset = BigInt(text.trim());
        return 0;
      },
    },
    history,
  ];
}

/** The errno of a number as kstrtol parses it; 0 for one that it takes. */
function numberErrno(text: string): number {
  if (!/^[+-]?\d+\n?$/.test(text)) return Errno.EINVAL;
  const value = BigInt(text.trim());
  return value < S64_MIN || value > S64_MAX ? Errno.ERANGE : 0;
}
