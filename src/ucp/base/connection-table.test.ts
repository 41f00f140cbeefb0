/** The numbers of connections: which message finds which connection. */

import { describe, expect, it } from 'vitest';
import type { AmFrame } from '../../uct/api/iface.ts';
import type { Connection } from './connection.ts';
import { CONNECTIONS_MAX, ConnectionTable } from './worker-core.ts';

const SOURCE = 'tcp/eth0';

/** A connection with a number, whose peer has one interface. */
function added(table: ConnectionTable): Connection {
  const connection = { id: table.takeId(), isFrom: (source: string) => source === SOURCE } as unknown as Connection;
  table.add(connection);
  return connection;
}

/** A message that names a connection. */
function frameTo(id: number, source: string): AmFrame {
  return { words: Int32Array.of(id), offset: 0, source } as unknown as AmFrame;
}

describe('ConnectionTable', () => {
  it('finds the connection that a message names, if it comes from its peer', () => {
    const table = new ConnectionTable();
    const [first, second] = [added(table), added(table)];
    expect(table.all).toEqual([first, second]);
    expect(table.of(frameTo(second.id, SOURCE))).toBe(second);
    expect(table.of(frameTo(second.id, 'tcp/eth1'))).toBeUndefined();
    expect(table.of(frameTo(0, SOURCE))).toBeUndefined();
  });

  it('gives the place of a removed connection to another, which late messages to the first do not reach', () => {
    const table = new ConnectionTable();
    const [first, second] = [added(table), added(table)];
    table.remove(first);
    table.remove(first);
    const third = added(table);
    expect(table.all).toEqual([third, second]);
    expect(third.id).not.toBe(first.id);
    expect(table.of(frameTo(first.id, SOURCE))).toBeUndefined();
    expect(table.of(frameTo(third.id, SOURCE))).toBe(third);
    table.remove(first);
    expect(table.byId(third.id)).toBe(third);
  });

  it('refuses more connections than there are numbers', () => {
    const table = new ConnectionTable();
    const connections = Array.from({ length: CONNECTIONS_MAX }, () => added(table));
    expect(() => table.checkFreeSlot()).toThrow('at most 65535 connections');
    table.remove(connections[7]!);
    table.checkFreeSlot();
  });
});
