/** The contract of a connection manager: the cases, to be run for each implementation. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../../src/ucs/type/status.ts';
import { PRIVATE_DATA_BYTES_MAX, REASON_BYTES_MAX } from '../../../src/uct/api/connection-manager.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';
import { type OpenManager, useManagers } from '../../fixtures/transports/connection-managers.ts';

const NO_BYTES = new Uint8Array(0);

/** Runs the cases. */
export function describeConnectionManager(name: string, open: OpenManager): void {
  describe(`connection manager ${name}`, () => {
    const fixture = useManagers(open);
    describeAnswers(fixture);
    describeAddresses(fixture);
    describeEnds(fixture);
    describeSleep(fixture);
  });
}

type Fixture = ReturnType<typeof useManagers>;

function describeAnswers(fixture: Fixture): void {
  it.each([0, 1, 1000, PRIVATE_DATA_BYTES_MAX])('carries %i bytes each way', async (byteLength) => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server);
    const { answers } = fixture.connect(client, listener.address, pattern(byteLength, 1));
    await fixture.until(() => requests.length === 1);
    const [request] = requests;
    expect(request!.live).toBe(true);
    expectSame(request!.privateData, pattern(byteLength, 1));
    expect(request!.serverAddress).toEqual(listener.address);
    const settled: Status[] = [];
    request!.accept(pattern(byteLength, 2), (status) => settled.push(status));
    expect(request!.live).toBe(false);
    await fixture.until(() => answers.length === 1 && settled.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.OK, clientAddress: request!.clientAddress });
    expect(answers[0]!.serverAddress).toEqual(listener.address);
    expectSame(answers[0]!.privateData, pattern(byteLength, 2));
    expect(settled).toEqual([Status.OK]);
    await fixture.idle();
    expect([answers.length, settled.length, requests.length, client.outstanding]).toEqual([1, 1, 1, 0]);
  });

  it('notifies the server when the client aborts', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    fixture.connect(manager, listener.address, NO_BYTES, Status.UNREACHABLE);
    await fixture.until(() => requests.length === 1);
    const settled: Status[] = [];
    requests[0]!.accept(NO_BYTES, (status) => settled.push(status));
    await fixture.until(() => settled.length > 0);
    expect(settled).toEqual([Status.UNREACHABLE]);
  });

  it.each([
    [Status.REJECTED, 'not today'],
    [Status.BUSY, ''],
    [Status.ENDPOINT_TIMEOUT, 'é'.repeat(REASON_BYTES_MAX)],
  ])('rejects with status %i and a reason', async (status, reason) => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server);
    const { answers } = fixture.connect(client, listener.address);
    await fixture.until(() => requests.length === 1);
    requests[0]!.reject(status, reason);
    expect(requests[0]!.live).toBe(false);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]!.status).toBe(status);
    expect(answers[0]!.privateData.byteLength).toBe(0);
    expect(answers[0]!.error?.message).toContain(reason.slice(0, REASON_BYTES_MAX / 2));
    requests[0]!.reject(status, 'again');
    await fixture.until(() => server.outstanding === 1);
    expect(answers.length).toBe(1);
  });

  it('accepts one answer', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const one = fixture.connect(manager, listener.address);
    await fixture.until(() => requests.length === 1);
    const two = fixture.connect(manager, listener.address);
    await fixture.until(() => requests.length === 2);
    requests[0]!.accept(NO_BYTES, () => undefined);
    requests[0]!.reject(Status.REJECTED, 'late');
    requests[1]!.reject(Status.REJECTED, 'no');
    const refused = expect.objectContaining({ code: 'ERR_NOT_CONNECTED' });
    for (const request of requests) expect(() => request.accept(NO_BYTES, () => undefined)).toThrow(refused);
    await fixture.until(() => one.answers.length === 1 && two.answers.length === 1);
    expect([one, two].map(({ answers }) => answers[0]!.status)).toEqual([Status.OK, Status.REJECTED]);
  });

  it('can be answered in any order', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server, {}, 8);
    const clients = Array.from({ length: 40 }, (_, i) => fixture.connect(client, listener.address, Uint8Array.of(i)));
    await fixture.until(() => requests.length === clients.length);
    for (const [i, request] of [...requests].reverse().entries()) {
      if (i % 3 === 0) request.reject(Status.REJECTED, `number ${request.privateData[0]}`);
      else request.accept(Uint8Array.of(request.privateData[0]! + 100), () => undefined);
    }
    await fixture.until(() => clients.every(({ answers }) => answers.length === 1));
    for (const [i, { answers }] of clients.entries()) {
      const [answer] = answers;
      if (answer!.status === Status.OK) expect(answer!.privateData[0]).toBe(i + 100);
      else expect(answer!.error?.message).toBe(`number ${i}`);
    }
    expect(clients.filter(({ answers }) => answers[0]!.status === Status.REJECTED).length).toBe(14);
  });
}

function describeAddresses(fixture: Fixture): void {
  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['0.0.0.0', '127.0.0.1'],
    ['0.0.0.0', '127.0.0.5'],
    ['::1', '::1'],
    ['::', '::1'],
    ['::', '127.0.0.1'],
  ])('listens on %s for %s', async (address, to) => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager, { address });
    expect(listener.address).toEqual({ address, port: expect.any(Number) });
    expect(listener.address.port).toBeGreaterThan(0);
    const { answers } = fixture.connect(manager, { address: to, port: listener.address.port });
    await fixture.until(() => requests.length === 1);
    expect(requests[0]!.serverAddress).toEqual({ address: to, port: listener.address.port });
    requests[0]!.accept(NO_BYTES, () => undefined);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]!.status).toBe(Status.OK);
  });

  it('can bind an address again after its listener has closed, and not before', async () => {
    const manager = fixture.open();
    for (let round = 0; round < 5; round++) {
      const { listener, requests } = fixture.listen(manager);
      const { address } = listener;
      const failure = await failureOf(() => fixture.listen(manager, address));
      expect(failure.code).toBe('ERR_SYSCALL_EADDRINUSE');
      const { answers } = fixture.connect(manager, address);
      await fixture.until(() => requests.length === 1);
      requests[0]!.accept(NO_BYTES, () => undefined);
      await fixture.until(() => answers.length === 1);
      listener.close();
      const again = fixture.listen(manager, address);
      expect(again.listener.address).toEqual(address);
      again.listener.close();
    }
  });

  it('refuses invalid addresses, backlogs and data', () => {
    const manager = fixture.open();
    const bad = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
    for (const address of ['', 'localhost', '127.0.0.1:80', '1.2.3', 5 as unknown as string]) {
      expect(() => fixture.listen(manager, { address }), address).toThrow(bad);
      expect(() => fixture.connect(manager, { address, port: 80 }), address).toThrow(bad);
    }
    for (const port of [-1, 65_536, 1.5, Number.NaN, '80' as unknown as number]) {
      expect(() => fixture.listen(manager, { port }), String(port)).toThrow(bad);
      expect(() => fixture.connect(manager, { address: '127.0.0.1', port }), String(port)).toThrow(bad);
    }
    expect(() => fixture.connect(manager, { address: '127.0.0.1', port: 0 })).toThrow(bad);
    for (const backlog of [0, -1, 1.5, 65_536]) expect(() => fixture.listen(manager, {}, backlog)).toThrow(bad);
    const { listener } = fixture.listen(manager);
    const long = new Uint8Array(PRIVATE_DATA_BYTES_MAX + 1);
    expect(() => fixture.connect(manager, listener.address, long)).toThrow(bad);
    expect(manager.outstanding).toBe(1);
  });

  it('fails to connect without a listener', async () => {
    const manager = fixture.open();
    const { listener } = fixture.listen(manager);
    listener.close();
    const { answers } = fixture.connect(manager, listener.address);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.UNREACHABLE, error: { code: 'ERR_SYSCALL_ECONNREFUSED' } });
    const nowhere = fixture.connect(manager, { address: '255.255.255.255', port: 9 });
    await fixture.until(() => nowhere.answers.length === 1);
    expect(nowhere.answers[0]!.status).toBe(Status.UNREACHABLE);
    expect(manager.outstanding).toBe(0);
  });
}

function describeEnds(fixture: Fixture): void {
  it('drops an abandoned attempt at any time', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server);
    const early = fixture.connect(client, listener.address);
    early.attempt.cancel();
    early.attempt.cancel();
    await fixture.idle();
    expect(requests.filter(({ live }) => live)).toEqual([]);
    const late = fixture.connect(client, listener.address);
    await fixture.until(() => requests.some(({ live }) => live));
    late.attempt.cancel();
    await fixture.until(() => requests.every(({ live }) => !live));
    expect(() => requests.at(-1)!.accept(NO_BYTES, () => undefined)).toThrow(
      expect.objectContaining({ code: 'ERR_NOT_CONNECTED' }),
    );
    await fixture.until(() => server.outstanding === 1);
    expect([early.answers, late.answers, client.outstanding]).toEqual([[], [], 0]);
  });

  it('reports that an accepted client has disconnected', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server);
    const { attempt, answers } = fixture.connect(client, listener.address);
    await fixture.until(() => requests.length === 1);
    const settled: Status[] = [];
    requests[0]!.accept(NO_BYTES, (status) => settled.push(status));
    attempt.cancel();
    await fixture.until(() => settled.length > 0);
    await fixture.idle();
    expect(settled).toEqual([Status.CONNECTION_RESET]);
    expect(answers).toEqual([]);
  });

  it('continues with requests when their listener is closed', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const { answers } = fixture.connect(manager, listener.address);
    await fixture.until(() => requests.length === 1);
    listener.close();
    listener.close();
    expect(requests[0]!.live).toBe(true);
    requests[0]!.accept(Uint8Array.of(7), () => undefined);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.OK, privateData: Uint8Array.of(7) });
  });

  it('rejects pending requests when it closes, and reports nothing afterwards', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server);
    const clients = Array.from({ length: 3 }, () => fixture.connect(client, listener.address));
    await fixture.until(() => requests.length === 3);
    let settled = 0;
    requests[0]!.accept(NO_BYTES, () => (settled += 1));
    server.close();
    server.close();
    expect(requests.every(({ live }) => !live)).toBe(true);
    expect(server.progress()).toBe(0);
    await fixture.until(() => clients.every(({ answers }) => answers.length === 1));
    expect(clients.map(({ answers }) => answers[0]!.status)).toEqual([Status.OK, Status.CANCELED, Status.CANCELED]);
    expect(settled).toBe(0);
    expect(() => fixture.listen(server)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
    expect(() => fixture.connect(server, listener.address)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });

  it('abandons its attempts when it closes', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server);
    const { answers } = fixture.connect(client, listener.address);
    await fixture.until(() => requests.length === 1);
    client.close();
    await fixture.until(() => !requests[0]!.live);
    expect(answers).toEqual([]);
  });

  it('survives callbacks that throw, and that close it', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    const listener = server.listen({ address: '127.0.0.1', port: 0 }, 8, () => {
      throw new Error('of the application');
    });
    const { answers } = fixture.connect(client, listener.address);
    let thrown = 0;
    while (thrown === 0) {
      client.progress();
      try {
        server.progress();
      } catch {
        thrown += 1;
      }
      await new Promise(setImmediate);
    }
    const other = client.connect(listener.address, NO_BYTES, () => Status.OK);
    other.cancel();
    server.close();
    await fixture.until(() => answers.length === 1);
    const closing = fixture.open();
    const { address } = closing.listen({ address: '127.0.0.1', port: 0 }, 8, () => closing.close());
    const last = fixture.connect(client, address);
    await fixture.until(() => last.answers.length === 1);
    expect(last.answers[0]!.status).not.toBe(Status.OK);
  });
}

function describeSleep(fixture: Fixture): void {
  it('sleeps until there is something to do', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    await server.wait(1e9);
    const { listener, requests } = fixture.listen(server);
    const { answers } = fixture.connect(client, listener.address);
    while (requests.length === 0) {
      server.progress();
      client.progress();
      // The time-out of the test ends a sleep that is too long.
      if (requests.length === 0) await server.wait(3600e9);
    }
    const asleep = client.wait(3600e9);
    requests[0]!.accept(NO_BYTES, () => undefined);
    await asleep;
    await fixture.until(() => answers.length === 1);
    expect(answers[0]!.status).toBe(Status.OK);
    const ending = server.wait(3600e9);
    server.close();
    await ending;
  });

  it('does not wake the event loop for events that are not awaited', async () => {
    const [server, client] = [fixture.open(), fixture.open()];
    const { listener, requests } = fixture.listen(server);
    await server.wait(1);
    fixture.connect(client, listener.address);
    client.progress();
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    expect(requests).toEqual([]);
    // It was readable all the time, and still is.
    await server.wait(3600e9);
    await fixture.until(() => requests.length === 1);
  });

  it('wakes after its timeout', async () => {
    const manager = fixture.open();
    const { requests } = fixture.listen(manager);
    await manager.wait(1e6);
    expect([manager.progress(), requests]).toEqual([0, []]);
  });
}
