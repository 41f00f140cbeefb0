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

/** A service, and messages that come at its worker; kept ones are counted until they are given back. */
function open() {
  let handler: AmCallback | undefined;
  const worker = {
    closed: false,
    setAmHandler: (_: number, set: AmCallback | undefined): void => {
      handler = set;
    },
  };
  const service = TeamService.join(worker, COLL_AM_ID);
  const kept = new Set<object>();
  const arrive = (team: number, kind: Kind = Kind.READY): void => {
    const header = writeHeader(new Uint8Array(HEADER_BYTES), { ...HEADER, team, kind });
    const enqueue = (): object => {
      const copy = { header, isView: false, isQueued: true, leaveQueue: () => {}, release: () => kept.delete(copy) };
      kept.add(copy);
      return copy;
    };
    handler!({ header, isView: true, enqueue } as unknown as Message);
  };
  return { worker, service, kept, arrive, hasHandler: () => handler !== undefined };
}

it('gives early messages back with its last user, which removes the handler', () => {
  const { worker, service, kept, arrive, hasHandler } = open();
  TeamService.join(worker, COLL_AM_ID);
  arrive(1);
  arrive(2);
  service.leave();
  expect([kept.size, hasHandler()]).toEqual([2, true]);
  service.leave();
  expect([kept.size, hasHandler()]).toEqual([0, false]);
});

it('does not touch the handlers of a worker that is closed', () => {
  const { worker, service, hasHandler } = open();
  worker.closed = true;
  service.leave();
  expect(hasHandler()).toBe(true);
});

it('keeps no messages that only tell what their sender waits for, and none that are malformed', () => {
  const { service, kept, arrive } = open();
  arrive(1, Kind.CHECK_RECEIVE);
  arrive(1, 99 as Kind);
  expect(kept.size).toBe(0);
  service.leave();
});

it('remembers the last 1,024 teams that were closed', () => {
  const { service, kept, arrive } = open();
  const listen = (): void => {};
  for (let id = 1; id <= 1025; id++) {
    service.add(id, listen);
    service.remove(id, listen);
  }
  arrive(2);
  arrive(1025);
  expect(kept.size).toBe(0);
  arrive(1);
  expect(kept.size).toBe(1);
  service.leave();
});

it('gives each early message to one team, in order', () => {
  const { service, arrive } = open();
  arrive(1, Kind.LEAVE);
  arrive(2, Kind.READY);
  arrive(1, Kind.DATA);
  const received: number[][] = [];
  const listen = ({ team, kind }: Header): number => received.push([team, kind]);
  service.add(1, listen);
  service.remove(1, listen);
  service.add(1, listen);
  expect(received).toEqual([
    [1, Kind.LEAVE],
    [1, Kind.DATA],
  ]);
  service.remove(1, listen);
  service.leave();
});
