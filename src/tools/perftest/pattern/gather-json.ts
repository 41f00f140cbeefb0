/** All-gather of data of variable length over a team. */

import type { Team } from '../../../coll/team/team.ts';

/** The data of every rank, as JSON carries it, in the order of the ranks. @throws UcxError of the team's operations */
export async function gatherJson<T>(team: Team, own: T): Promise<T[]> {
  const all = await gatherBytes(team, Buffer.from(JSON.stringify(own)));
  return all.map((bytes): T => JSON.parse(Buffer.from(bytes).toString()));
}

/** The bytes of every rank, in the order of the ranks. @throws UcxError of the team's operations */
async function gatherBytes(team: Team, own: Uint8Array): Promise<Uint8Array[]> {
  const lengths = new Float64Array(team.size);
  await team.allGather(bytesOf(Float64Array.of(own.length)), bytesOf(lengths), { dtype: 'float64', count: 1 });
  const recvCounts = [...lengths];
  const all = new Uint8Array(recvCounts.reduce((sum, length) => sum + length, 0));
  await team.allGather(own, all, { recvCounts });
  let offset = 0;
  return recvCounts.map((length) => {
    offset += length;
    return all.subarray(offset - length, offset);
  });
}

function bytesOf(numbers: Float64Array): Uint8Array {
  return new Uint8Array(numbers.buffer);
}
