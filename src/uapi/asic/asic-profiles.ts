/** The profiles by name and by PCI device id. */

import type { AsicName, AsicProfile } from './asic-profile.ts';
import { GAUDI_PROFILE } from './asic-profile-gaudi.ts';
import { GAUDI2_PROFILE } from './asic-profile-gaudi2.ts';
import { GAUDI3_PROFILE } from './asic-profile-gaudi3.ts';

/** The profile of each generation. */
export const ASIC_PROFILES: Readonly<Record<AsicName, AsicProfile>> = {
  gaudi: GAUDI_PROFILE,
  gaudi2: GAUDI2_PROFILE,
  gaudi3: GAUDI3_PROFILE,
};

/** The profile to which a PCI device id belongs, secured parts and variants included; undefined for an unknown id. */
export function asicOfPciDeviceId(deviceId: number): AsicProfile | undefined {
  return Object.values(ASIC_PROFILES).find(
    (profile) => profile.pciDeviceId === deviceId || profile.otherPciDeviceIds.includes(deviceId),
  );
}
