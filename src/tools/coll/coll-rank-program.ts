/** The program of one rank that `gaudi-ucx coll` starts. */

import { runRankProgram } from '../ranks/rank-side.ts';
import { type CollResult, runRank } from './rank.ts';
import type { CollSpec } from './spec.ts';

await runRankProgram<CollSpec, CollResult>(runRank);
