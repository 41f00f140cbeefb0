/**
 * The features of a context of libucp: their bits, the check that an operation has its feature, and differences between versions. Without the check, libucp
 * rejects the operation without a reason or crashes.
 */

import { type Feature, missingFeature } from '../../api/contract/context.ts';
import { UCP_FEATURE } from './abi.ts';

const BITS: Readonly<Record<Feature, number>> = {
  tag: UCP_FEATURE.TAG,
  rma: UCP_FEATURE.RMA,
  amo32: UCP_FEATURE.AMO32,
  amo64: UCP_FEATURE.AMO64,
  stream: UCP_FEATURE.STREAM,
  am: UCP_FEATURE.AM,
};

/** First version whose ucp_worker_fence may flush, and return when the peers have answered: observed in 1.18, 1.13 never waits. */
const FENCE_BLOCKS_MINOR = 14;

/** True if ucp_worker_fence must not be called: it would wait for peers that the same thread drives. */
export function fenceBlocks({ minor }: { readonly minor: number }): boolean {
  return minor >= FENCE_BLOCKS_MINOR;
}

/** The bits for ucp_init, including wake-up. */
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
