/** One rank of `gaudi-ucx coll`: its context, its team, and the measurement of all sizes. */

import { Context } from '../../assembly/context.ts';
import type { LaunchedRank } from '../../coll/exchange/listener.ts';
import { createTeam } from '../../coll/team/create.ts';
import { type CollRow, measureSize } from './measure.ts';
import type { CollSpec } from './spec.ts';

/** Reports of rank 0: its environment once, then one row for each size. */
export type CollResult =
  | { readonly kind: 'begin'; readonly emulated: boolean; readonly explanation: string | undefined }
  | { readonly kind: 'row'; readonly row: CollRow };

/**
 * Runs the sizes.
 * @throws UcxError of Context.create, of creating the team, and of its operations
 */
export async function runRank(
  spec: CollSpec,
  launched: LaunchedRank,
  report: (result: CollResult) => void,
): Promise<void> {
  await using context = await Context.create();
  const worker = context.worker({ progress: 'manual' });
  await using team = await createTeam(worker, launched);
  if (team.rank === 0) {
    const explanation = spec.explains ? team.explain(spec.collective).toString() : undefined;
    report({ kind: 'begin', emulated: spec.memory === 'gaudi' && context.emulated, explanation });
  }
  for (const bytes of spec.sizes) {
    const row = await measureSize(team, context, spec, bytes);
    if (team.rank === 0) report({ kind: 'row', row });
  }
  await team.barrier();
}
