/**
 * The sysfs attributes of a card (Documentation/ABI/testing/sysfs-driver-habanalabs), for reading.
 */

import { type AsicName, HL_DEVICE_STATUS_TEXT } from '../../../uapi/index.ts';
import type { CardPort } from './card-port.ts';
import { CLOCK_MHZ } from './clock-rates.ts';

/** Version reported by the emulated firmware. */
export const FIRMWARE_VERSION = 'gaudi-ucx-emulator-fw-1.22.0-sec-11';
/** PCI revision: the first one (REV_ID_A). 0 is not a revision: the C library does not recognise a gaudi2 of it (pci_general.h). */
export const PCI_REVISION = 1;
/** Version of a firmware component where only a number is shown. */
const COMPONENT_VERSION = '0x00000001';
/** Power limits in microwatts: those of the OAM cards of each generation. */
const MAX_POWER_UW: Readonly<Record<AsicName, number>> = { gaudi: 350e6, gaudi2: 600e6, gaudi3: 900e6 };

const DEVICE_TYPE: Readonly<Record<AsicName, string>> = { gaudi: 'GAUDI', gaudi2: 'GAUDI2', gaudi3: 'GAUDI3' };

const READERS: Readonly<Record<string, (card: CardPort) => string>> = {
  armcp_kernel_ver: () => 'Linux gaudi-ucx-emulator 5.10.18',
  armcp_ver: () => FIRMWARE_VERSION,
  clk_cur_freq_mhz: ({ profile }) => String(CLOCK_MHZ[profile.name].current),
  clk_max_freq_mhz: ({ profile }) => String(CLOCK_MHZ[profile.name].max),
  cpld_ver: () => COMPONENT_VERSION,
  cpucp_kernel_ver: () => 'Linux gaudi-ucx-emulator 5.10.18',
  cpucp_ver: () => FIRMWARE_VERSION,
  device_type: ({ profile }) => DEVICE_TYPE[profile.name],
  fuse_ver: () => '00P1-HL2080A0-14-P64W99-07-07-07',
  fw_os_ver: () => FIRMWARE_VERSION,
  hard_reset_cnt: ({ hardResets }) => String(hardResets),
  max_power: ({ profile }) => String(MAX_POWER_UW[profile.name]),
  module_id: ({ place }) => String(place.moduleId),
  parent_device: ({ place }) => place.busId,
  pci_addr: ({ place }) => place.busId,
  preboot_btl_ver: () => FIRMWARE_VERSION,
  security_enabled: () => '0',
  soft_reset_cnt: ({ computeResets }) => String(computeResets),
  status: ({ status }) => HL_DEVICE_STATUS_TEXT.get(status) ?? 'unknown',
  thermal_ver: () => COMPONENT_VERSION,
  uboot_ver: () => 'U-Boot gaudi-ucx-emulator 2021.04',
  vrm_ver: () => COMPONENT_VERSION,
};

/** The names of the readable attributes. */
export const CARD_ATTRIBUTES: readonly string[] = Object.keys(READERS);

/** The value of an attribute without the trailing newline; undefined for a name that the driver does not have or that is not readable. */
export function readCardAttribute(card: CardPort, name: string): string | undefined {
  return Object.hasOwn(READERS, name) ? READERS[name]!(card) : undefined;
}
