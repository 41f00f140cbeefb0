/**
 * The sensors of a card as files of hwmon, by name. The values are those of an idle card, and constant: nothing here measures.
 *
 * Source: drivers/accel/habanalabs/common/hwmon.c, Linux 6.12: hl_is_visible has the modes, hl_read and hl_write the attributes.
 */

import { Errno } from '../../../sys/index.ts';
import type { AsicName } from '../../../uapi/index.ts';

/** Sensors that the firmware reports. Temperatures in thousandths of a degree, volts and amperes in thousandths, power in millionths of a watt. */
const INPUTS: Readonly<Record<AsicName, Readonly<Record<string, number>>>> = {
  gaudi: { temp1: 38_000, temp2: 41_000, in0: 12_000, curr1: 8_000, power1: 96_000_000 },
  gaudi2: { temp1: 36_000, temp2: 40_000, in0: 54_000, curr1: 2_200, power1: 118_000_000 },
  gaudi3: { temp1: 37_000, temp2: 42_000, in0: 54_000, curr1: 3_500, power1: 190_000_000 },
};
/** Limits of temperatures. */
const LIMITS: Readonly<Record<string, number>> = { max: 95_000, crit: 105_000, max_hyst: 90_000, crit_hyst: 100_000 };
/** The largest offset of a temperature. */
const OFFSET_MAX = 2 ** 31 - 1;

/** A file of hwmon. */
export interface SensorFile {
  readonly name: string;
  /** Undefined for a write-only file. */
  readonly read?: () => string;
  /** Returns 0, or a negative errno: EINVAL for text that is no number. */
  readonly write?: (text: string) => number;
}

/** The files of a card, with their own state. */
export function sensorFiles(asic: AsicName, busId: string): readonly SensorFile[] {
  const files: SensorFile[] = [{ name: 'name', read: () => busId }];
  for (const [sensor, value] of Object.entries(INPUTS[asic])) files.push(...filesOf(sensor, value));
  return files;
}

function filesOf(sensor: string, value: number): readonly SensorFile[] {
  const constant = (name: string, number: number): SensorFile => ({
    name: `${sensor}_${name}`,
    read: () => String(number),
  });
  const history: SensorFile = { name: `${sensor}_reset_history`, write: (text) => onInteger(text, () => {}) };
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
  let offset = 0;
  return [
    { name: `${sensor}_input`, read: () => String(value + offset) },
    ...Object.entries(LIMITS).map(([name, limit]) => constant(name, limit)),
    constant('highest', value),
    {
      name: `${sensor}_offset`,
      read: () => String(offset),
      write: (text) =>
        onInteger(text, (number) => {
          offset = number;
        }),
    },
    history,
  ];
}

/** Parses a number as kstrtol does. */
function onInteger(text: string, action: (number: number) => void): number {
  if (!/^[+-]?\d+\n?$/.test(text) || Math.abs(Number(text)) > OFFSET_MAX) return -Errno.EINVAL;
  action(Number(text));
  return 0;
}
