/** Messages between the process of a rank and the process that has started it. Types only. */

/** Argument of the process of a rank: specification of the run, and number of the rank. */
export interface RankAssignment<S> {
  readonly spec: S;
  readonly rank: number;
  readonly size: number;
}

/** Message of a rank: a result, or the reason of its failure; `blamed` is the other rank that the error names, if it names one. */
export type RankMessage<R> =
  | { readonly kind: 'result'; readonly result: R }
  | { readonly kind: 'failure'; readonly text: string; readonly blamed?: number | undefined };
