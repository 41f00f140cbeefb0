/**
 * The sensors of a card as files of hwmon, by name. The values are those of an idle card, and constant: nothing here measures.
 *
 * Source: drivers/accel/habanalabs/common/hwmon.c, Linux 6.12: hl_is_visible has the modes, hl_read and hl_write the attributes.
 */

import { Errno } from '../../../sys/index.ts';
import type { AsicName } from '../../../uapi/index.ts';
import { isOperational } from './card-attributes.ts';
import type { CardPort, SensorFile } from './card-port.ts';
import { parseSignedNumber } from './kstrto.ts';

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

/** The files of a card, with their own state. The device is named after the card (hl_hwmon_init); hwmon itself answers that. */
export function sensorFiles(card: CardPort): readonly SensorFile[] {
  const { name, cardName } = card.profile;
  const values = Object.entries(INPUTS[name]).flatMap(([sensor, value]) => valuesOf(sensor, value));
  return [{ name: 'name', read: () => cardName }, ...values.map((value) => fileOf(card, value))];
}

/** The number in a file of hwmon; undefined while the card does not work. @param name such as `temp1_input` */
export function readSensor(card: CardPort, name: string): number | undefined {
  const text = card.removed ? undefined : card.sensors.find((file) => file.name === name)?.read?.();
  return text === undefined ? undefined : Number(text);
}

function fileOf(card: CardPort, { name, read, write }: SensorValue): SensorFile {
  return {
    name,
    ...(read !== undefined && { read: () => (isOperational(card) ? read() : undefined) }),
    ...(write !== undefined && { write: (text) => store(card, text, write) }),
  };
}

/** Parses the number before the driver looks at the card (hwmon_attr_store, Linux 6.12). */
function store(card: CardPort, text: string, write: (value: bigint) => void): number {
  const value = parseSignedNumber(text);
  if (typeof value === 'number') return value;
  if (!isOperational(card)) return -Errno.ENODEV;
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
