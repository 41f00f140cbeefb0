/** The features of a context that a program can select (ucp_feature), by UCX's names. Each engine decides what to omit without a feature. */

import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** The names; wake-up is always available. */
export const FEATURES = ['tag', 'rma', 'amo32', 'amo64', 'stream', 'am'] as const;
/** One of {@link FEATURES}. */
export type Feature = (typeof FEATURES)[number];

/**
 * Checks the selected features.
 * @param features undefined for all
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkFeatures(features: readonly Feature[] | undefined): readonly Feature[] {
  if (features === undefined) return FEATURES;
  if (!Array.isArray(features) || features.length === 0) {
    throw invalidParam('features', 'must be a list with one feature at least', features);
  }
  for (const feature of features) {
    if (!FEATURES.includes(feature)) {
      throw invalidParam('features', `must have the names ${FEATURES.join(', ')} only`, feature);
    }
  }
  return features;
}

/** The error for an operation whose feature was not selected. */
export function missingFeature(feature: Feature): UcxError {
  return new UcxError({
    code: 'ERR_FEATURE_MISSING',
    status: Status.UNSUPPORTED,
    message: `the context was opened without the feature ${feature}: its option features must have it`,
    details: { feature },
  });
}
