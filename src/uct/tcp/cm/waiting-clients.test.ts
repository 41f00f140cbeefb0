/** Clients of a listener that wait for the program, and those that it has answered: their time limits, their share of the limits, and their connections. */

import { readdirSync } from 'node:fs';
import { connect as netConnect, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { useManagers } from '../../../../test/fixtures/transports/connection-managers.ts';
import { getSocketOption, isSyscallError, type SocketOption, tcpRemoteAddress } from '../../../sys/index.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ClientRequest } from '../../api/connection-manager.ts';
import { tcpConnectionManager } from './manager.ts';

const DATA = Uint8Array.of(1, 2, 3);
/** SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT. */
const KEEPALIVE: readonly SocketOption[] = [
  [1, 9],
  [6, 4],
  [6, 5],
  [6, 6],
];

const fixture = useManagers(tcpConnectionManager);
const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** Values of options of the socket of this process whose peer has this port. */
function optionsOf(peerPort: number, options: readonly SocketOption[]): readonly number[] {
  for (const fd of readdirSync('/proc/self/fd').map(Number)) {
    try {
      if (tcpRemoteAddress(fd).port === peerPort) return options.map((option) => getSocketOption(fd, option));
    } catch (error) {
      // Not a connected socket.
      if (!isSyscallError(error)) throw error;
    }
  }
  throw new Error(`no socket is connected to port ${peerPort}`);
}

/** A socket that connects to a listener, and whether it was disconnected. */
function rawClient(port: number): { readonly socket: Socket; readonly isEnded: () => boolean } {
  const socket = netConnect(port, '127.0.0.1');
  sockets.push(socket);
  let isEnded = false;
  socket.on('close', () => {
    isEnded = true;
  });
  socket.on('error', () => undefined);
  socket.resume();
  return { socket, isEnded: () => isEnded };
}

describe('a client that waits for the program', () => {
  it('waits without a time limit', async () => {
    const clock = new ManualClock();
    const { listener, requests } = fixture.listen(fixture.open({}, clock));
    const client = fixture.connect(fixture.open({}, new ManualClock()), listener.address, DATA);
    await fixture.until(() => requests.length === 1);
    clock.advance(3600e9);
    await fixture.idle();
    expect(requests[0]!.live).toBe(true);
    requests[0]!.accept(DATA, () => undefined);
    await fixture.until(() => client.answers.length === 1);
    expect(client.answers[0]!.status).toBe(Status.OK);
  });

  it('and has a connection with keepalive, which notices that its host has vanished', async () => {
    const manager = fixture.open();
    const { listener } = fixture.listen(manager);
    const { socket } = rawClient(listener.address.port);
    await fixture.until(() => manager.outstanding === 2);
    expect(optionsOf(socket.localPort!, KEEPALIVE)).toEqual([1, 10, 10, 3]);
  });

  it.each(['disconnects', 'is rejected'])('and %s makes way for another one', async (how) => {
    const { listener, requests } = fixture.listen(fixture.open({ TCP_CM_MAX_REQUESTS: '1' }));
    const client = fixture.open();
    const first = fixture.connect(client, listener.address, DATA);
    await fixture.until(() => requests.length === 1);
    if (how === 'disconnects') first.attempt.cancel();
    else requests[0]!.reject(Status.REJECTED, 'no');
    await fixture.until(() => !requests[0]!.live);
    const second = fixture.connect(client, listener.address, DATA);
    await fixture.until(() => requests.length === 2 || second.answers.length > 0);
    expect(second.answers).toEqual([]);
    expect(requests.map(({ live }) => live)).toEqual([false, true]);
  });

  it('is rejected when the manager closes', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const client = fixture.connect(fixture.open(), listener.address, DATA);
    await fixture.until(() => requests.length === 1);
    manager.close();
    await fixture.until(() => client.answers.length === 1);
    expect(client.answers[0]).toMatchObject({
      status: Status.CANCELED,
      error: { message: 'the worker that listens has closed' },
    });
  });
});

describe('a client that was accepted', () => {
  it('late has the whole time limit to confirm, and not more', async () => {
    fixture.log.allow(/did not confirm in time/);
    const clock = new ManualClock();
    const manager = fixture.open({}, clock);
    const { listener, requests } = fixture.listen(manager);
    const client = fixture.open({}, new ManualClock());
    fixture.connect(client, listener.address, DATA);
    await fixture.until(() => requests.length === 1);
    clock.advance(25e9);
    await fixture.idle();
    const settled: Status[] = [];
    requests[0]!.accept(DATA, (status) => settled.push(status));
    // Only the listener runs from here on, so that the client does not confirm.
    clock.advance(9e9);
    manager.progress();
    expect(settled).toEqual([]);
    clock.advance(1e9);
    manager.progress();
    expect(settled).toEqual([Status.TIMED_OUT]);
  });

  it('is closed before the program learns the result', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    fixture.connect(fixture.open(), listener.address, DATA);
    await fixture.until(() => requests.length === 1);
    const seen: unknown[] = [];
    requests[0]!.accept(DATA, (status) => seen.push([status, manager.outstanding]));
    await fixture.until(() => seen.length === 1);
    // The listener is left.
    expect(seen).toEqual([[Status.OK, 1]]);
  });
});

describe('a client that was rejected', () => {
  it('and sends more than a MiB is disconnected', async () => {
    fixture.log.allow(/does not use this protocol/);
    // The clock stands still: no time limit ends the connection.
    const { listener } = fixture.listen(fixture.open({}, new ManualClock()));
    const { socket, isEnded } = rawClient(listener.address.port);
    let isSent = false;
    socket.write(new Uint8Array(8 << 20), () => {
      isSent = true;
    });
    await fixture.until(() => isEnded() || isSent);
    await fixture.idle();
    expect(isEnded()).toBe(true);
  });
});

describe('a listener', () => {
  it('that closes in the callback of a request accepts no further connection', async () => {
    const manager = fixture.open({ TCP_CM_MAX_CLIENTS: '1' });
    const requests: ClientRequest[] = [];
    const listener = manager.listen({ address: '127.0.0.1', port: 0 }, 8, (request) => {
      requests.push(request);
      listener.close();
    });
    const client = fixture.open();
    fixture.connect(client, listener.address, DATA);
    while (manager.outstanding < 2) manager.progress();
    // It is at the head of the queue of events, and evicts the first client, whose request has arrived by then.
    const raw = rawClient(listener.address.port);
    while (raw.socket.connecting) await new Promise(setImmediate);
    for (let turn = 0; turn < 50; turn++) client.progress();
    manager.progress();
    expect(requests.map(({ live }) => live)).toEqual([true]);
    await fixture.until(raw.isEnded);
    // Its client is left, the listener is not.
    expect(manager.outstanding).toBe(1);
  });
});
