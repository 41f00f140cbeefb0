/** What the process of a rank and the one that has started it tell each other. Types only. */

/** The argument of the process: what to run, as data, and which rank it is. */
export interface RankAssignment<S> {
  readonly spec: S;
  readonly rank: number;
  readonly size: number;
}

/** A message of the process: a result, or why it has failed. */
export type RankMessage<R> =
  | { readonly kind: 'result'; readonly result: R }
  | { readonly kind: 'failure'; readonly text: string };
