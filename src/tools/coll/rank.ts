/** One rank of a run of `gaudi-ucx coll`: its context, its team, and all sizes. Where its results go is decided by its callers. */

import { Context } from '../../assembly/context.ts';
import type { LaunchedRank } from '../../coll/exchange/listener.ts';
import { createTeam } from '../../coll/team/create.ts';
import { type CollRow, measureSize } from './measure.ts';
import type { CollSpec } from './spec.ts';

/** Receives the results of rank 0. */
export interface CollListener {
  /** Before the first size. @param explanation of the algorithms, if it was asked for */
  begin(emulated: boolean, explanation: string | undefined): void;
  row(row: CollRow): void;
}

/**
 * Runs the sizes.
 * @throws UcxError of Context.create, of creating the team, and of its operations
 */
export async function runRank(spec: CollSpec, launched: LaunchedRank, listener: CollListener): Promise<void> {
  await using context = await Context.create();
  const worker = context.worker();
  await using team = await createTeam(worker, launched);
  if (team.rank === 0) {
    const explanation = spec.explains ? team.explain(spec.collective).toString() : undefined;
    listener.begin(spec.memory === 'gaudi' && context.emulated, explanation);
  }
  for (const bytes of spec.sizes) {
    const row = await measureSize(team, context, spec, bytes);
    if (team.rank === 0) listener.row(row);
  }
  await team.barrier();
}
