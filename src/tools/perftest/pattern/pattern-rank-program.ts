/** Program of a rank of `gaudi-ucx perftest --pattern`. */

import { runRankProgram } from '../../ranks/launch.ts';
import { type PatternResult, runPatternRank } from './pattern-rank.ts';
import type { PatternSpec } from './pattern-spec.ts';

await runRankProgram<PatternSpec, PatternResult>(runPatternRank);
