/** The messages of a worker by their team: those of a team that is not made yet are kept, those of a closed one are dropped. */

import { expect, it } from 'vitest';
import type { AmCallback } from '../../../api/contract/active-message.ts';
import { Status } from '../../../ucs/type/status.ts';
import { HEADER_BYTES, type Header, Kind, writeHeader } from '../layout/header.ts';
import { COLL_AM_ID, type Message, TeamService } from './service.ts';

const HEADER: Header = {
  kind: Kind.LEAVE,
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

it('gives a team its messages, also those that came before it, and drops those that come later', () => {
  let handler: AmCallback | undefined;
  const setAmHandler = (_: number, set: AmCallback | undefined): void => {
    handler = set;
  };
  const worker = { closed: false, setAmHandler };
  const service = TeamService.join(worker, COLL_AM_ID);
  const arrive = (kind: Kind): void => {
    const header = writeHeader(new Uint8Array(HEADER_BYTES), { ...HEADER, kind });
    const message = { header, isView: true, enqueue: () => ({ ...message, isView: false }) };
    handler!(message as unknown as Message);
  };
  const received: Kind[] = [];
  const team = ({ kind }: Header): number => received.push(kind);
  arrive(Kind.LEAVE);
  arrive(Kind.CHECK_SEND);
  service.add(HEADER.team, team);
  arrive(Kind.READY);
  // A rank of the same team on the same worker is refused, and leaves without effect.
  const other = (): void => {};
  expect(() => service.add(HEADER.team, other)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  service.remove(HEADER.team, other);
  arrive(Kind.DATA);
  service.remove(HEADER.team, team);
  arrive(Kind.READY);
  expect(received).toEqual([Kind.LEAVE, Kind.READY, Kind.DATA]);
  service.leave();
  expect(handler).toBeUndefined();
  // Between two teams: a late message of the first is not one of a team to come.
  expect(TeamService.join(worker, COLL_AM_ID)).toBe(service);
  arrive(Kind.READY);
  service.add(HEADER.team, team);
  expect(received).toEqual([Kind.LEAVE, Kind.READY, Kind.DATA]);
  service.remove(HEADER.team, team);
  service.leave();
});
