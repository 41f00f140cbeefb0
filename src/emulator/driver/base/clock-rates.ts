/**
 * The clock of the compute engines by generation, as INFO CLK_RATE and sysfs report it.
 */

import type { AsicName } from '../../../uapi/index.ts';

/** Clock of the compute engines in MHz: the maximum that the driver reports, and the idle one. */
export const CLOCK_MHZ: Readonly<Record<AsicName, { readonly current: number; readonly max: number }>> = {
  gaudi: { current: 1900, max: 2200 },
  gaudi2: { current: 1650, max: 1650 },
  gaudi3: { current: 1600, max: 1600 },
};
