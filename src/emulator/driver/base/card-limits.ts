/**
 * The clock of the compute engines and the power limit of a card, which programs may lower through sysfs: what the firmware keeps. Nothing here takes time or
 * power.
 */

import type { AsicName } from '../../../uapi/index.ts';

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
