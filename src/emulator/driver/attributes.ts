/**
 * The sysfs attributes of a card: their contents, and the effects of writes.
 *
 * Source: drivers/accel/habanalabs/common/sysfs.c, Linux 6.12. `soft_reset` and `soft_reset_cnt` exist only on inference cards
 * (allow_inference_soft_reset), so not on Gaudi; `eeprom` is not emulated.
 */

import { Errno } from '../../sys/index.ts';
import { type AsicName, HL_DEVICE_STATUS_TEXT } from '../../uapi/index.ts';
import { FIRMWARE_VERSION } from './base/firmware.ts';
import { parseNumber } from './base/numbers.ts';
import type { Card } from './card.ts';

/** Version of a firmware component that is shown as a number. */
const COMPONENT_VERSION = '0x00000001';

const U64_MAX = 0xffff_ffff_ffff_ffffn;

interface Attribute {
  /** Returns the contents; undefined if they cannot be read now (ENODEV). Omitted for a write-only attribute. */
  readonly read?: (card: Card) => string | undefined;
  /** Omitted for a read-only attribute. */
  readonly write?: (card: Card, value: bigint) => void;
  /** Only usable while the card is operational; otherwise reading and writing fail with ENODEV. */
  readonly ofOperational?: boolean;
  /** Generations that have the attribute; omitted for all. */
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
  device_type: { read: ({ profile }) => profile.deviceTypes[profile.pciDeviceId] },
  fuse_ver: constant('00P1-HL2080A0-14-P64W99-07-07-07'),
  fw_os_ver: constant(FIRMWARE_VERSION),
  hard_reset: { write: ({ resets }) => resets.now('write to hard_reset') },
  hard_reset_cnt: { read: ({ hardResets }) => String(hardResets) },
  // On gaudi, the version of the voltage regulators has another name (gaudi_add_device_attr of gaudi.c).
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

/** Name and permissions of an attribute. */
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

/** The contents of an attribute without the trailing newline; undefined for an unknown name, or if it cannot be read now. */
export function readCardAttribute(card: Card, name: string): string | undefined {
  const attribute = Object.hasOwn(ATTRIBUTES, name) ? ATTRIBUTES[name]! : undefined;
  return attribute === undefined || !isThere(card, attribute) ? undefined : attribute.read?.(card);
}

/**
 * Writes to an attribute, in one call.
 * @returns 0, or a negative errno: EINVAL for a string that is not a 64-bit number, ENODEV while it cannot be written
 */
export function writeCardAttribute(card: Card, name: string, text: string): number {
  const attribute = ATTRIBUTES[name]!;
  if (!isThere(card, attribute)) return -Errno.ENODEV;
  const value = parseNumber(text, 0, U64_MAX);
  if (typeof value === 'number') return -Errno.EINVAL;
  attribute.write!(card, value);
  return 0;
}

function isThere(card: Card, { ofOperational, of }: Attribute): boolean {
  if (card.removed || of?.includes(card.profile.name) === false) return false;
  return !ofOperational || card.isOperational;
}

/** Scripts for the first versions of the driver expect this form. */
function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
