/** The features of a context of libucp: their bits, and the check that an operation has its own. libucp would refuse without a reason, or crash. */

import { type Feature, missingFeature } from '../ucp/api/features.ts';
import { UCP_FEATURE } from './abi.ts';

const BITS: Readonly<Record<Feature, number>> = {
  tag: UCP_FEATURE.TAG,
  rma: UCP_FEATURE.RMA,
  amo32: UCP_FEATURE.AMO32,
  amo64: UCP_FEATURE.AMO64,
  stream: UCP_FEATURE.STREAM,
  am: UCP_FEATURE.AM,
};

/** The bits for ucp_init, waking up included. */
export function featureBits(features: readonly Feature[]): number {
  return features.reduce<number>((bits, feature) => bits | BITS[feature], UCP_FEATURE.WAKEUP);
}

/**
 * Checks that a context has a feature.
 * @param bits of the context
 * @param bit of the feature
 * @throws UcxError ERR_FEATURE_MISSING
 */
export function requireFeature(bits: number, bit: number): void {
  if ((bits & bit) !== 0) return;
  const [name] = Object.entries(BITS).find(([, value]) => value === bit)!;
  throw missingFeature(name as Feature);
}
