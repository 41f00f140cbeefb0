/** Program of a rank of `gaudi-ucx coll`. */

import { runRankProgram } from '../ranks/launch.ts';
import { type CollResult, runRank } from './rank.ts';
import type { CollSpec } from './spec.ts';

await runRankProgram<CollSpec, CollResult>(runRank);
