/** Creates sub-teams: every rank announces its color, and the ranks of each color become a team over the same connections. */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { SplitOptions } from './options.ts';
import type { CallTeam } from './run/call.ts';
import { Scratch } from './run/plan.ts';
import { TeamService } from './run/service.ts';
import { TeamCore } from './team-core.ts';

const NO_COLOR = -1;
/** Team ids are below this, so that Numbers represent them exactly. */
const ID_END = 2 ** 52;

/**
 * Implements Team.split.
 * @param allGather the operation of the parent team
 * @returns the parts of the sub-team; undefined without a color
 */
export async function splitTeam(
  allGather: (send: Uint8Array, recv: Uint8Array) => Promise<void>,
  core: TeamCore,
  call: CallTeam,
  options: SplitOptions,
): Promise<readonly [TeamCore, CallTeam] | undefined> {
  checkOptions(options, 'options', ['color', 'key']);
  const { color, key = 0 } = options;
  if (color !== undefined && !(Number.isSafeInteger(color) && color >= 0)) {
    throw invalidParam('color', 'must be an integer of 0 or more, or undefined', color);
  }
  if (!Number.isSafeInteger(key)) throw invalidParam('key', 'must be an integer', key);
  // The sequence number of this operation is equal on all ranks.
  const { id, next: sequence } = core.state;
  const { size } = call.group;
  const own = Float64Array.of(color ?? NO_COLOR, key);
  const all = new Float64Array(own.length * size);
  await allGather(new Uint8Array(own.buffer), new Uint8Array(all.buffer));
  if (color === undefined) return undefined;
  const ranks = Array.from({ length: size }, (_, rank) => rank)
    .filter((rank) => all[rank * 2] === color)
    .sort((one, other) => all[one * 2 + 1]! - all[other * 2 + 1]! || one - other);
  return partsOf(core, call, ranks, idOf(id, sequence, color));
}

function partsOf(core: TeamCore, call: CallTeam, ranks: readonly number[], id: number): [TeamCore, CallTeam] {
  const { parts } = core.state;
  const { worker, amId, members, memberOf } = parts;
  const rank = ranks.indexOf(parts.rank);
  const places = {
    rank,
    size: ranks.length,
    nodes: call.places.nodes
      .map((node) => ranks.flatMap((old, place) => (node.includes(old) ? [place] : [])))
      .filter((node) => node.length > 0),
  };
  const service = TeamService.join(worker, amId);
  const child = new TeamCore({
    ...parts,
    id,
    rank,
    size: ranks.length,
    service,
    members: members.share(),
    memberOf: ranks.map((old) => memberOf[old]!),
    scratch: new Scratch(call.owner),
  });
  child.open();
  const group = { rank, size: ranks.length, ranks: ranks.map((_, place) => place) };
  return [child, { ...call, places, group }];
}

/** The id of a sub-team: a hash of the values that distinguish it, which all its ranks compute. */
function idOf(parent: number, sequence: number, color: number): number {
  let [high, low] = [highOf(parent), parent >>> 0];
  for (const part of [sequence, color >>> 0, highOf(color)]) {
    low = Math.imul(low ^ part ^ (low >>> 15), 0x2c1b3c6d);
    high = Math.imul(high ^ low ^ (high >>> 13), 0x297a2d39);
  }
  return joinWords(low, high >>> 12) % ID_END;
}
