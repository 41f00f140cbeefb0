/** The messages from a rank's process to the one that has started it. Types only. */

import type { CollRow } from './measure.ts';
import type { CollSpec } from './spec.ts';

/** The argument of the process. */
export interface RankAssignment {
  readonly spec: CollSpec;
  readonly rank: number;
  readonly size: number;
}

/** A message. */
export type RankMessage =
  | { readonly kind: 'begin'; readonly emulated: boolean; readonly explanation: string | undefined }
  | { readonly kind: 'row'; readonly row: CollRow }
  | { readonly kind: 'failure'; readonly text: string };
