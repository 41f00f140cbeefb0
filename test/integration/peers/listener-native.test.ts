/**
 * Connections by socket addresses, the behaviour of the native engine only: its settings, its connections, and the detection of disconnected clients.
 */

import { describe, expect, it } from 'vitest';
import { Status, type Worker } from '../../../src/index.ts';
import { packConnectData } from '../../../src/ucp/wireup/sockets.ts';
import { loadConfig } from '../../../src/ucs/config/config.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { tcpConnectionManager } from '../../../src/uct/tcp/cm/manager.ts';
import { TCP_CM_CONFIG_TABLE } from '../../../src/uct/tcp/config.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import { driveUntil, type Side, usePairs } from '../../fixtures/pair.ts';
import { createTestLog } from '../../fixtures/test-log.ts';
import { portOf, requestOf } from '../../fixtures/transports/socket-pairs.ts';

const fixture = usePairs();

/** Two workers; the first one will listen. */
async function sides(env: Readonly<Record<string, string>> = {}): Promise<{ readonly one: Side; readonly two: Side }> {
  const node = fixture.node();
  const settings = { UCX_TLS: 'posix,self', ...env };
  return { one: await fixture.side(node, 0, settings), two: await fixture.side(node, 1, settings) };
}

describe('over the native engine, clients', () => {
  it('that have given up make the accepted endpoint fail once', async () => {
    const { one, two } = await sides();
    const listener = one.worker.listener();
    const stop = new AbortController();
    const connecting = failureOf(() => two.worker.connect({ ...portOf(listener), signal: stop.signal }));
    const request = await requestOf(listener);
    const errors: Status[] = [];
    const server = request.accept({ onError: (_, status) => errors.push(status) });
    const sending = failureOf(() => server.tagSendSync(Uint8Array.of(1), { tag: 1 }));
    stop.abort();
    expect(await connecting).toMatchObject({ code: 'ABORT_ERR' });
    expect(await sending).toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    await server.close();
    expect([errors, server.status]).toEqual([[Status.CONNECTION_RESET], Status.CONNECTION_RESET]);
    expect(nativeWorker(one.worker).connections.all.filter(({ isLoopback }) => !isLoopback)).toEqual([]);
    // Closed before the end is detected, it sends no close message.
    const again = new AbortController();
    const other = failureOf(() => two.worker.connect({ ...portOf(listener), signal: again.signal }));
    await (await requestOf(listener)).accept().close();
    again.abort();
    await other;
    await driveUntil({ one, two }, () =>
      nativeWorker(one.worker).connections.all.every(({ isLoopback }) => isLoopback),
    );
  });

  it('give up after UCX_TCP_CM_ANSWER_TIMEOUT', async () => {
    const { one, two } = await sides({ UCX_TCP_CM_ANSWER_TIMEOUT: '20ms' });
    const listener = one.worker.listener();
    const connecting = failureOf(() => two.worker.connect(portOf(listener)));
    const request = await requestOf(listener);
    expect(await connecting).toMatchObject({ code: 'ERR_TIMED_OUT', status: Status.TIMED_OUT });
    await driveUntil({ one, two }, () => !request.live);
    expect(listener.query().waiting).toBe(0);
  });

  it('that confirm and do not attach make the accepted endpoint fail in time, and leave nothing behind', async () => {
    const { one, two } = await sides({ UCX_TCP_CM_TIMEOUT: '50ms' });
    const listener = one.worker.listener();
    const log = createTestLog();
    const manager = tcpConnectionManager({
      log: log.log,
      clock: systemClock,
      config: loadConfig([TCP_CM_CONFIG_TABLE]),
    });
    const data = packConnectData({ clientId: undefined, workerAddress: two.worker.address() });
    const statuses: Status[] = [];
    manager.connect(portOf(listener), data, ({ status }) => {
      statuses.push(status);
      return Status.OK;
    });
    const drive = { one, two: { ...two, worker: { progress: () => manager.progress() } as unknown as Worker } };
    const requested = requestOf(listener);
    await driveUntil(drive, () => listener.query().waiting === 1);
    const errors: Status[] = [];
    const server = (await requested).accept({ onError: (_, status) => errors.push(status) });
    const sending = failureOf(() => server.tagSendSync(Uint8Array.of(1), { tag: 1 }));
    await driveUntil(drive, () => statuses.length === 1);
    expect(statuses).toEqual([Status.OK]);
    await driveUntil(drive, () => errors.length === 1);
    manager.close();
    expect(errors).toEqual([Status.ENDPOINT_TIMEOUT]);
    expect(await sending).toMatchObject({ code: 'ERR_ENDPOINT_TIMEOUT' });
    await server.close();
    expect(nativeWorker(one.worker).connections.all.filter(({ isLoopback }) => !isLoopback)).toEqual([]);
    log.expectQuiet();
  });

  it('are rejected with BUSY if too many wait', async () => {
    const { one, two } = await sides({ UCX_TCP_CM_MAX_REQUESTS: '2' });
    fixture.allow(/connection requests are pending/);
    const listener = one.worker.listener();
    const clients = Array.from({ length: 5 }, () =>
      two.worker.connect(portOf(listener)).then(
        () => 'connected',
        ({ code }: { code: string }) => code,
      ),
    );
    let busy = 0;
    for (const client of clients) void client.then((code) => (busy += code === 'ERR_BUSY' ? 1 : 0));
    await driveUntil({ one, two }, () => busy === 3);
    for (let i = 0; i < 2; i++) (await requestOf(listener)).accept();
    const outcomes = await Promise.all(clients);
    expect(outcomes.filter((outcome) => outcome === 'connected')).toHaveLength(2);
  });
});
