/** Attempts to connect: how often they try, what they send, and how they end. */

import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { withoutDescriptors } from '../../../../test/fixtures/processes/no-descriptors.ts';
import { useManagers } from '../../../../test/fixtures/transports/connection-managers.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { SocketAddress } from '../../api/connection-manager.ts';
import { CmFrameType, NONCE_BYTES, packFrame } from './layout.ts';
import { tcpConnectionManager } from './manager.ts';

const HELLO = packFrame(CmFrameType.HELLO, Status.OK, new Uint8Array(NONCE_BYTES));

const fixture = useManagers(tcpConnectionManager);
const sockets: Socket[] = [];
const servers: Server[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await new Promise((resolve) => server.close(resolve));
});

/** A server that is not a listener of this library. */
async function rawServer(onClient: (socket: Socket) => void): Promise<SocketAddress> {
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    onClient(socket);
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  return { address: '127.0.0.1', port };
}

describe('an attempt', () => {
  it('waits for the first bytes of a listener twice as long with each try', async () => {
    const clock = new ManualClock();
    const triesNs: number[] = [];
    const to = await rawServer(() => triesNs.push(clock.nowNs()));
    const { answers } = fixture.connect(fixture.open({ TCP_CM_TIMEOUT: '60s' }, clock), to);
    while (answers.length === 0) {
      await fixture.idle();
      clock.advance(0.25e9);
    }
    const waitsNs = triesNs.slice(1).map((atNs, i) => atNs - triesNs[i]!);
    expect(waitsNs.length).toBeGreaterThanOrEqual(4);
    for (const [i, waitNs] of waitsNs.entries()) {
      const tryNs = 2 ** i * 1e9;
      expect(waitNs).toBeGreaterThanOrEqual(tryNs);
      expect(waitNs).toBeLessThanOrEqual(2 * tryNs + 0.25e9);
    }
  });

  it('returns at most 16 times to a listener that evicts it', async () => {
    let tries = 0;
    const to = await rawServer((socket) => {
      tries += 1;
      socket.end(packFrame(CmFrameType.REJECT, Status.NO_RESOURCE, Buffer.from('full')));
    });
    const { answers } = fixture.connect(fixture.open({}, new ManualClock()), to);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.NO_RESOURCE, error: { message: 'full' } });
    expect(tries).toBe(17);
  });

  it('does not return to a listener that has sent something', async () => {
    let tries = 0;
    const to = await rawServer((socket) => {
      tries += 1;
      socket.write(HELLO);
      socket.once('data', () => socket.end());
    });
    const { answers } = fixture.connect(fixture.open({}, new ManualClock()), to);
    await fixture.until(() => answers.length === 1);
    expect([answers[0]!.status, tries]).toEqual([Status.CONNECTION_RESET, 1]);
  });

  it('that fails at once is reported by the next progress call, for which no wait sleeps', async () => {
    const manager = fixture.open({}, new ManualClock());
    const to = { address: '127.0.0.1', port: 9 };
    const { answers } = await withoutDescriptors(() => fixture.connect(manager, to));
    expect([answers, manager.outstanding]).toEqual([[], 1]);
    const ends = [manager.wait(1e9).then(() => 'awake'), new Promise(setImmediate).then(() => 'asleep')];
    expect(await Promise.race(ends)).toBe('awake');
    expect(manager.progress()).toBe(1);
    expect(answers).toMatchObject([{ status: Status.EXCEEDS_LIMIT }]);
    expect(manager.outstanding).toBe(0);
  });

  it('that is cancelled is not outstanding and has no answer', async () => {
    const manager = fixture.open({}, new ManualClock());
    const { listener, requests } = fixture.listen(fixture.open());
    const connecting = fixture.connect(manager, listener.address);
    const waiting = fixture.connect(manager, listener.address);
    connecting.attempt.cancel();
    await fixture.until(() => requests.length === 1);
    expect(manager.outstanding).toBe(1);
    waiting.attempt.cancel();
    expect(manager.outstanding).toBe(0);
    await fixture.idle();
    expect([...connecting.answers, ...waiting.answers]).toEqual([]);
  });

  it('sends the private data as they were when it began', async () => {
    const { listener, requests } = fixture.listen(fixture.open());
    const data = Uint8Array.of(1, 2, 3);
    fixture.connect(fixture.open(), listener.address, data);
    data.fill(9);
    await fixture.until(() => requests.length === 1);
    expect([...requests[0]!.privateData]).toEqual([1, 2, 3]);
  });

  it('ends without an answer when its manager closes', async () => {
    const manager = fixture.open({}, new ManualClock());
    const { listener, requests } = fixture.listen(fixture.open());
    const { answers } = fixture.connect(manager, listener.address);
    await fixture.until(() => requests.length === 1);
    manager.close();
    expect(manager.outstanding).toBe(0);
    await fixture.until(() => !requests[0]!.live);
    expect(answers).toEqual([]);
  });
});
