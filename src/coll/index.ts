/**
 * The package entry `gaudi-ucx/coll`: collective operations over UCX workers, for host and Gaudi memory. Re-exports only.
 *
 * @packageDocumentation
 */

export type { CollectiveCandidate, CollectiveExplanation, CollectiveRange } from './choice/choice.ts';
export { COLLECTIVES, type Collective } from './choice/problem.ts';
export {
  bfloat16Bits,
  bfloat16Value,
  DTYPES,
  type Dtype,
  dtypeBytes,
  float16Bits,
  float16Value,
  REDUCE_OPS,
  type ReduceOp,
} from './dtype/dtype.ts';
export { reduceBytes } from './dtype/reduce.ts';
export { type Exchange, localExchange, TEAM_SIZE_MAX } from './exchange/exchange.ts';
export { forkedExchange, type ParentChannel, serveForked } from './exchange/forked.ts';
export {
  type LaunchedRank,
  type ListenerExchangeOptions,
  launchedRank,
  listenerExchange,
} from './exchange/listener.ts';
export { createTeam, type TeamOptions } from './team/create.ts';
export type {
  AllGatherOptions,
  AllToAllOptions,
  DataOptions,
  ReduceOptions,
  ReduceToRootOptions,
  RootOptions,
  SignalOption,
  SplitOptions,
} from './team/options.ts';
export type { Team } from './team/team.ts';
