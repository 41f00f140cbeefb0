/**
 * The sysfs attributes of a card: their texts, and the effects of writes. It does not serve them as files.
 *
 * Source: drivers/accel/habanalabs/common/sysfs.c, Linux 6.12. `soft_reset` and `soft_reset_cnt` are those of inference cards (allow_inference_soft_reset),
 * which Gaudi is not; `eeprom` is not emulated.
 */

import { Errno } from '../../../sys/index.ts';
import { type AsicName, HL_DEVICE_STATUS, HL_DEVICE_STATUS_TEXT } from '../../../uapi/index.ts';
import type { CardPort, SensorFile } from './card-port.ts';
import { parseNumber, parseSignedNumber } from './numbers.ts';

/** Version reported by the emulated firmware. */
export const FIRMWARE_VERSION = 'gaudi-ucx-emulator-fw-1.22.0-sec-11';
/** PCI revision: the first one (REV_ID_A). 0 is not a revision: the C library does not recognise a gaudi2 of it (pci_general.h). */
export const PCI_REVISION = 1;
/** Version of a firmware component where only a number is shown. */
const COMPONENT_VERSION = '0x00000001';
const DEVICE_TYPE: Readonly<Record<AsicName, string>> = { gaudi: 'GAUDI', gaudi2: 'GAUDI2', gaudi3: 'GAUDI3' };

const U64_MAX = 0xffff_ffff_ffff_ffffn;

/** The card as its attributes use it. */
export interface AttributeCard extends CardPort {
  /** Resets the card at once, whatever its user has registered for. */
  resetNow(reason: string): void;
}

/** An attribute. */
interface Attribute {
  /** Its text; undefined if it cannot be read now (ENODEV). Omitted for a write-only attribute. */
  readonly read?: (card: AttributeCard) => string | undefined;
  /** Takes a number. Omitted for a read-only attribute. */
  readonly write?: (card: AttributeCard, value: bigint) => void;
  /** It exists while the card is operational; else reading and writing fails with ENODEV. */
  readonly ofOperational?: boolean;
  /** Only cards of these generations have it. */
  readonly of?: readonly AsicName[];
}

const constant = (text: string): Attribute => ({ read: () => text });

const ATTRIBUTES: Readonly<Record<string, Attribute>> = {
  armcp_kernel_ver: constant('Linux gaudi-ucx-emulator 5.10.18'),
  armcp_ver: constant(FIRMWARE_VERSION),
  clk_cur_freq_mhz: { read: ({ limits }) => String(limits.clockMhz), ofOperational: true },
  clk_max_freq_mhz: {
    read: ({ limits }) => String(limits.maxClockMhz),
    write: ({ limits }, value) => limits.setMaxClock(value),
    ofOperational: true,
  },
  cpld_ver: constant('0x0000000000000001'),
  cpucp_kernel_ver: constant('Linux gaudi-ucx-emulator 5.10.18'),
  cpucp_ver: constant(FIRMWARE_VERSION),
  device_type: { read: ({ profile }) => DEVICE_TYPE[profile.name] },
  fuse_ver: constant('00P1-HL2080A0-14-P64W99-07-07-07'),
  fw_os_ver: constant(FIRMWARE_VERSION),
  hard_reset: { write: (card) => card.resetNow('hard_reset was written') },
  hard_reset_cnt: { read: ({ hardResets }) => String(hardResets) },
  // The version of the voltage regulators has another name on gaudi (gaudi_add_device_attr of gaudi.c).
  infineon_ver: { ...constant('0x01'), of: ['gaudi'] },
  max_power: {
    read: ({ limits }) => String(limits.maxPowerUw),
    write: ({ limits }, value) => limits.setMaxPower(value),
    ofOperational: true,
  },
  module_id: { read: ({ place }) => String(place.moduleId) },
  parent_device: { read: ({ place }) => place.busId },
  pci_addr: { read: ({ place }) => place.busId },
  preboot_btl_ver: constant(FIRMWARE_VERSION),
  security_enabled: constant('0'),
  status: { read: ({ status }) => capitalized(HL_DEVICE_STATUS_TEXT.get(status) ?? 'unknown') },
  thermal_ver: constant(COMPONENT_VERSION),
  uboot_ver: constant('U-Boot gaudi-ucx-emulator 2021.04'),
  vrm_ver: { ...constant('0x01'), of: ['gaudi2', 'gaudi3'] },
};

/** The file of an attribute: its name, and what a program may do with it. */
export interface CardAttribute {
  readonly name: string;
  readonly readable: boolean;
  readonly writable: boolean;
}

/** The attributes of a card of a generation. */
export function cardAttributes(asic: AsicName): readonly CardAttribute[] {
  return Object.entries(ATTRIBUTES)
    .filter(([, { of }]) => of?.includes(asic) !== false)
    .map(([name, { read, write }]) => ({ name, readable: read !== undefined, writable: write !== undefined }));
}

/** The text of an attribute without the trailing newline; undefined for a name that the driver does not have, and for one that cannot be read now. */
export function readCardAttribute(card: AttributeCard, name: string): string | undefined {
  const attribute = Object.hasOwn(ATTRIBUTES, name) ? ATTRIBUTES[name]! : undefined;
  return attribute === undefined || !isThere(card, attribute) ? undefined : attribute.read?.(card);
}

/**
 * Writes to an attribute, in one call.
 * @returns 0; or a negative errno: EINVAL for text that is no number of 64 bits, ENODEV while it cannot be written
 */
export function writeCardAttribute(card: AttributeCard, name: string, text: string): number {
  const attribute = ATTRIBUTES[name]!;
  if (!isThere(card, attribute)) return -Errno.ENODEV;
  const value = parseNumber(text, 0, U64_MAX);
  if (typeof value === 'number') return -Errno.EINVAL;
  attribute.write!(card, value);
  return 0;
}

function isThere(card: AttributeCard, { ofOperational, of }: Attribute): boolean {
  if (card.removed || of?.includes(card.profile.name) === false) return false;
  return !ofOperational || isOperational(card);
}

/** Whether the firmware of a card answers (hl_device_operational of device.c). */
function isOperational({ removed, status }: CardPort): boolean {
  if (removed) return false;
  return status === HL_DEVICE_STATUS.OPERATIONAL || status === HL_DEVICE_STATUS.IN_DEVICE_CREATION;
}

/** As scripts for the first versions of the driver expect it. */
function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/*
 * The sensors of a card as files of hwmon, by name. The values are those of an idle card, and constant: nothing here measures.
 *
 * Source: drivers/accel/habanalabs/common/hwmon.c, Linux 6.12: hl_is_visible has the modes, hl_read and hl_write the attributes.
 */

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
