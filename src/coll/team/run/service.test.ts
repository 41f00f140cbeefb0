/** The messages of a worker for teams that it has closed: their senders are answered, unless this rank closes the connection to them. */

import { expect, it } from 'vitest';
import type { AmCallback } from '../../../ucp/api/active-message.ts';
import { closedError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { HEADER_BYTES, type Header, Kind, readHeader, writeHeader } from '../wire/header.ts';
import { COLL_AM_ID, type Message, TeamService } from './service.ts';

const HEADER: Header = {
  kind: Kind.CHECK_RECEIVE,
  team: 5,
  sequence: 3,
  from: 1,
  slice: 0,
  round: 0,
  signature: { collective: 'barrier', dtype: 'uint8', op: undefined, root: 0, count: 0, algorithm: 0 },
  status: Status.OK,
  byteLength: 0,
  offset: 0,
};

it.each([
  [false, Kind.CHECK_RECEIVE, [Kind.FAILURE]],
  [false, Kind.READY, [Kind.FAILURE, Kind.NOTICE]],
  [true, Kind.CHECK_SEND, []],
  [true, Kind.READY, []],
] as const)('with its connection closed: %s, a sender of kind %i gets %j', (closed, kind, answers) => {
  let handler: AmCallback | undefined;
  const setAmHandler = (_: number, set: AmCallback | undefined): void => {
    handler = set;
  };
  const service = TeamService.join({ closed: false, setAmHandler }, COLL_AM_ID);
  const team = { id: HEADER.team, rank: 0, onMessage: () => {} };
  service.add(team);
  service.remove(team);
  const sent: (number | undefined)[] = [];
  const amSendNbx = (_: number, header: Uint8Array): Status => {
    if (closed) throw closedError('endpoint');
    sent.push(readHeader(header)?.kind);
    return Status.OK;
  };
  const header = writeHeader(new Uint8Array(HEADER_BYTES), { ...HEADER, kind });
  handler!({ header, replyEndpoint: { closed, amSendNbx } } as unknown as Message);
  expect(sent).toEqual(answers);
  service.leave();
});
