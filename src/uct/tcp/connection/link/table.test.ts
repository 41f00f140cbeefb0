/** The connections of one interface: heartbeats on time, what leaves before a sleep, what ends a sleep, and no trace of one that has ended. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import { amFrame, putFrame, signalFrame } from '../../../../../test/fixtures/transports/tcp-frames.ts';
import { type TcpLine, TcpLines } from '../../../../../test/fixtures/transports/tcp-line.ts';
import { Errno, PollEvent, pollNow } from '../../../../sys/index.ts';
import { Status } from '../../../../ucs/type/status.ts';
import { TcpEndpoint } from '../../endpoint.ts';
import { FrameType } from '../../layout.ts';
import type { TcpConnection } from '../connection.ts';
import { ConnectionTable } from '../connection-table.ts';

expectNoLeaks();
const lines = new TcpLines();
const EIGHT = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
const BEAT = [FrameType.HEARTBEAT, 1000] as const;

let line: TcpLine;
let table: ConnectionTable;
let sizesAtEnd: number[] = [];

beforeEach(() => {
  line = lines.idle();
  line.shrink();
  sizesAtEnd = [];
  table = new ConnectionTable(
    line.shared,
    () => undefined,
    (link) => sizesAtEnd.push(table.size + (table.find(link.peerId) === undefined ? 0 : 100)),
  );
});
afterEach(() => {
  table.closeLinks();
  table.close();
});

/** A connection of the table on the socket of a line, which its end closes. */
function attached(on: TcpLine = line, id = 7): TcpConnection {
  const link = table.create(new Uint8Array(16).fill(id));
  table.attach(link, on.fd, 65_536, undefined);
  on.ends.push({ status: Status.OK, reason: 'of the table', fd: on.fd });
  return link;
}

function endpointOf(link: TcpConnection): TcpEndpoint {
  return new TcpEndpoint(link, line.shared, 8192, () => undefined);
}

/** Sends until the socket has no room. */
function fill(link: TcpConnection): void {
  const endpoint = endpointOf(link);
  const payload = new Uint8Array(20_000);
  while (!link.wantsWrite || link.transmitter.length <= 12) {
    expect(endpoint.amShort(2, new Int32Array(0), 0, payload, 0, 20_000)).toBe(Status.OK);
  }
}

function isReady(fd: number): boolean {
  return (pollNow(fd, PollEvent.IN) & PollEvent.IN) !== 0;
}

describe('a new connection', () => {
  it('wakes the operations that wait for it, and begins with a heartbeat', async () => {
    const slept = line.shared.sleeper.sleep(1e9);
    attached();
    expect(line.shared.sleeper.sleeping).toBe(false);
    await slept;
    expect([table.size, line.frames()]).toEqual([1, [BEAT]]);
  });

  it('has heartbeats in their interval until it ends', () => {
    const link = attached();
    line.frames();
    line.clock.advance(1e9 - 1);
    expect(line.frames()).toEqual([]);
    line.clock.advance(1);
    line.clock.advance(2e9);
    expect(line.frames()).toEqual([BEAT, BEAT, BEAT]);
    link.fail(Status.CANCELED, '');
    line.clock.advance(1e9);
    expect(line.clock.pendingTimers).toBe(0);
  });

  it('is found by its peer once it is added, until it ends', () => {
    const link = attached();
    expect(table.find(link.peerId)).toBeUndefined();
    table.add(link);
    expect(table.find(link.peerId)).toBe(link);
    link.fail(Status.CANCELED, '');
    expect([table.find(link.peerId), table.size, sizesAtEnd]).toEqual([undefined, 0, [0]]);
  });
});

describe('a connection that ends', () => {
  it('is neither polled nor watched, and leaves its successor alone', () => {
    const link = attached();
    line.write(amFrame(3, EIGHT));
    link.progress(1);
    expect([table.reports.hot, table.ready.size, table.making.size]).toEqual([link, 1, 1]);
    table.add(link);
    const next = table.create(link.peerId);
    table.add(next);
    fill(link);
    expect(table.reports.blocked.has(link)).toBe(true);
    link.fail(Status.CANCELED, '');
    expect([table.reports.hot, table.reports.blocked.size, table.ready.size, table.making.size]).toEqual([
      undefined,
      0,
      0,
      0,
    ]);
    expect(table.find(link.peerId)).toBe(next);
  });

  it('with the interface sends no heartbeats any more', () => {
    const link = attached();
    table.closeLinks();
    expect([link.state, table.size, line.clock.pendingTimers]).toEqual(['down', 0, 0]);
  });
});

describe('before a sleep', () => {
  it('acknowledgements leave', () => {
    const link = attached();
    line.write(putFrame(line.keyed(8).words, 0, EIGHT));
    link.progress(1);
    line.frames();
    expect(table.prepareSleep()).toBe(true);
    expect([line.frames(), link.hasMore]).toEqual([[[FrameType.ACK, 1]], false]);
  });

  it('a failed connection is ended first', () => {
    const link = attached();
    link.transmitter.failure = Errno.ETIMEDOUT;
    link.check(Status.IO_ERROR);
    expect(table.prepareSleep()).toBe(false);
    table.poll();
    expect([link.state, link.status]).toEqual(['down', Status.ENDPOINT_TIMEOUT]);
    expect(table.prepareSleep()).toBe(true);
  });

  it('a socket without room is watched for it, and not any more once everything is sent', () => {
    const link = attached();
    // The one that received last is polled without the event set, which would end the watch as well.
    line.write(amFrame(3, EIGHT));
    link.progress(1);
    fill(link);
    expect(table.prepareSleep()).toBe(true);
    expect(isReady(table.ready.fd)).toBe(false);
    while (!isReady(table.ready.fd)) line.receive();
    for (let round = 0; round < 1000 && link.wantsWrite; round++) {
      line.receive();
      table.poll();
    }
    expect([link.wantsWrite, table.reports.hot, table.prepareSleep()]).toEqual([false, link, true]);
    expect(isReady(table.ready.fd)).toBe(false);
  });
});

describe('polling', () => {
  it('continues each of several connections whose sockets are not writable', () => {
    const other = lines.idle();
    other.shrink();
    const links = [attached(), attached(other, 8)];
    for (const link of links) fill(link);
    for (let round = 0; round < 5; round++) table.poll();
    expect(links.map((link) => table.reports.blocked.has(link))).toEqual([true, true]);
    for (let round = 0; round < 1000 && links.some(({ wantsWrite }) => wantsWrite); round++) {
      line.receive();
      other.receive();
      table.poll();
    }
    expect(links.map(({ wantsWrite }) => wantsWrite)).toEqual([false, false]);
    for (const link of links) link.fail(Status.CANCELED, '');
  });

  it('by the event loop sends the messages that were reported as sent', () => {
    const link = attached();
    fill(link);
    for (let round = 0; round < 1000 && link.wantsWrite; round++) {
      line.receive();
      table.making.poll();
    }
    expect(link.wantsWrite).toBe(false);
  });

  it('by the event loop continues after the first connection', async () => {
    let count = 0;
    table.making.add({
      token: 0,
      fd: line.fd,
      wantsWrite: false,
      onReady: () => {
        count += 1;
        return line.link.progress(1);
      },
    });
    line.attach();
    table.reserveAlarm();
    table.watchMaking();
    for (let beat = 1; beat <= 3; beat++) {
      line.write(signalFrame(FrameType.HEARTBEAT, 1000));
      while (count < beat) await new Promise(setImmediate);
    }
    expect(count).toBe(3);
  });
});
