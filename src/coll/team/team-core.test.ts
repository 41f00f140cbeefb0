/** The state of a team whose other rank is a fake: which reason a failure names, when several become known. */

import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { HEADER_BYTES, type Header, Kind, NO_OPERATION, writeHeader } from './layout/header.ts';
import { DEFAULT_COSTS } from './links.ts';
import { type CallTeam, planCall } from './run/call.ts';
import { Scratch } from './run/plan.ts';
import type { Message } from './run/service.ts';
import type { EndNbx, StartNbx } from './run/slice-run.ts';
import { TeamCore } from './team-core.ts';
import type { TeamParts } from './team-state.ts';

const GRACE_NS = 20e6;

/** A rank 0 of 2 in an operation whose message could not be sent. */
function openFailing(): {
  readonly core: TeamCore;
  readonly clock: ManualClock;
  receive(kind: Kind, text?: string, status?: Status): void;
} {
  const clock = new ManualClock();
  const owner = { memMap: () => expect.fail('maps memory'), memUnmap: () => {} };
  const call: CallTeam = {
    places: { rank: 0, size: 2, nodes: [[0, 1]] },
    group: { rank: 0, size: 2, ranks: [0, 1] },
    costs: DEFAULT_COSTS,
    owner,
  };
  const ends: EndNbx[] = [];
  const issuer = { issue: (_owner: unknown, _start: StartNbx, end: EndNbx) => ends.push(end), restart: () => {} };
  const members = { loss: () => undefined, endpoint: () => undefined };
  const parts = {
    id: 1,
    rank: 0,
    size: 2,
    worker: {},
    amId: 1,
    members,
    memberOf: [0, 1],
    timeoutNs: 0,
    issuer,
    clock,
  };
  const core = new TeamCore({ ...parts, scratch: new Scratch(owner) } as unknown as TeamParts);
  core.begin(planCall(call, 'barrier', { send: undefined, recv: undefined }, {}), undefined);
  ends[0]!(Status.CONNECTION_RESET, undefined);
  const receive = (kind: Kind, text = '', told?: Status): void => {
    const rest = new TextEncoder().encode(text);
    const place = { sequence: 0, from: 1, slice: 0, round: 0 };
    const fields = { ...place, signature: NO_OPERATION, byteLength: 0, offset: 1 };
    const status = told ?? (kind === Kind.FAILURE ? Status.CANCELED : Status.OK);
    const header: Header = { ...fields, kind, team: 1, status };
    const bytes = writeHeader(new Uint8Array(HEADER_BYTES + rest.byteLength), header, rest);
    core.onMessage(header, { header: bytes, isView: true } as Message);
  };
  return { core, clock, receive };
}

describe('a message to a rank that cannot be sent', () => {
  it('fails the team for the reason that the rank gives', () => {
    const { core, receive } = openFailing();
    receive(Kind.FAILURE, 'rank 1 has cancelled barrier');
    expect(core.failure).toMatchObject({ message: expect.stringMatching(/^rank 1 has cancelled barrier/) });
  });

  it('fails it because the rank has left the team, if it has', () => {
    const { core, clock, receive } = openFailing();
    receive(Kind.LEAVE);
    expect(core.failure).toBeUndefined();
    clock.advance(GRACE_NS);
    expect(core.failure).toMatchObject({ message: expect.stringMatching(/^rank 1 has closed the team/) });
    expect(core.lostRanks).toEqual([1]);
  });

  it('fails it for the reason for which the rank has left, which is not lost then', () => {
    const { core, receive } = openFailing();
    receive(Kind.LEAVE, 'rank 2 is lost', Status.CONNECTION_RESET);
    expect(core.failure).toMatchObject({ message: expect.stringMatching(/^rank 2 is lost/) });
    expect(core.lostRanks).toEqual([]);
  });

  it('fails it because the rank is lost, if it says nothing', () => {
    const { core, clock } = openFailing();
    clock.advance(GRACE_NS);
    expect(core.failure).toMatchObject({ message: expect.stringMatching(/^rank 1 is lost/), details: { rank: 1 } });
  });
});
