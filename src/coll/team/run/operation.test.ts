/** One operation of one rank, without other ranks: what it makes of the messages of a rank that waits. */

import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import type { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { type Header, Kind } from '../layout/header.ts';
import { DEFAULT_COSTS } from '../links.ts';
import type { TeamState } from '../team-state.ts';
import { type CallTeam, planCall } from './call.ts';
import { Operation } from './operation.ts';
import { Scratch } from './plan.ts';

const LONG = 20_000;

/** A rank 0 of 2 whose peer does not answer: nothing that it starts ends. */
function openOperation(): { readonly operation: Operation; readonly failures: UcxError[] } {
  const failures: UcxError[] = [];
  const owner = { memMap: () => expect.fail('maps memory'), memUnmap: () => {} };
  const state = {
    rank: 0,
    scratch: new Scratch(owner),
    parts: { clock: new ManualClock() },
    issue: () => {},
    fail: (error: UcxError) => failures.push(error),
  } as unknown as TeamState;
  const team: CallTeam = {
    places: { rank: 0, size: 2, nodes: [[0, 1]] },
    group: { rank: 0, size: 2, ranks: [0, 1] },
    costs: DEFAULT_COSTS,
    owner,
  };
  const counts = { sendCounts: [0, LONG], recvCounts: [0, 2 * LONG] };
  const memories = { send: new Uint8Array(LONG), recv: new Uint8Array(2 * LONG) };
  const operation = new Operation(state, 0, planCall(team, 'allToAll', memories, counts), () => {});
  operation.start();
  return { operation, failures };
}

describe('an operation that waits for both parts of a pair', () => {
  it.each([
    ['the receiver of its part', Kind.CHECK_RECEIVE, LONG],
    ['the sender of its part', Kind.CHECK_SEND, 2 * LONG],
  ] as const)('compares the length of %s with that of this part only', (_name, kind, byteLength) => {
    const { operation, failures } = openOperation();
    const [{ run, round, peer }] = operation.awaitedParts() as [ReturnType<Operation['awaitedParts']>[number]];
    const { sequence, signature } = operation;
    const common = { team: 1, sequence, signature, slice: run.slice, round, from: peer, status: Status.OK, offset: 0 };
    const header: Header = { ...common, kind, byteLength };
    operation.onCheck(header);
    expect(failures).toEqual([]);
    operation.onCheck({ ...header, byteLength: byteLength + 1 });
    expect(failures).toHaveLength(1);
    expect(failures[0]!.message).toContain(
      `sent or expected ${byteLength + 1} bytes for a part that has ${byteLength} bytes here`,
    );
  });
});
