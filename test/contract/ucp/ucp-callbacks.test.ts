/** Runs the contract of callbacks over every kind of connection; errors of callbacks outside of progress. */

import { describe, expect, it, vi } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import { CONNECTION_KINDS, connectionKind, usePairs } from '../../fixtures/pair.ts';
import { useUncaught } from '../../fixtures/processes/uncaught.ts';
import { callbackContract, drive, expectOk, ID, KEEP } from './ucp-callbacks.ts';

for (const kind of CONNECTION_KINDS) callbackContract(kind);

describe('an error of a callback outside of progress', () => {
  const fixture = usePairs();
  const uncaught = useUncaught();

  it('is uncaught when the job ends, and the call returns what it has done', async () => {
    const { ab, one, two } = await fixture.pair(connectionKind('loopback over self alone'));
    const callback = (): void => {
      throw new Error('of the callback');
    };
    const sent = ab.tagSendNbx(new Uint8Array(8), 0, 8, 1, { ...KEEP, callback });
    expect(sent).toMatchObject({ status: Status.OK });
    (sent as Request).free();
    await new Promise(setImmediate);
    expect(uncaught).toEqual([expect.objectContaining({ message: 'of the callback' })]);
    expect(one.worker.requestsInUse).toBe(0);
    await two.worker.tagRecv(new Uint8Array(8), { tag: 1 });
  });

  it('is uncaught while an endpoint closes, which continues', async () => {
    const { ab, ba, one, two } = await fixture.pair();
    one.worker.setAmHandler(ID, () => {
      throw new Error('of the handler');
    });
    const sent = ab.tagSendSyncNbx(new Uint8Array(8), 0, 8, 1, KEEP) as Request;
    const closing = ab.close();
    await ba.amSend(ID, new Uint8Array(8));
    await vi.waitUntil(() => uncaught.length > 0);
    expect(uncaught).toEqual([expect.objectContaining({ message: 'of the handler' })]);
    await two.worker.tagRecv(new Uint8Array(8), { tag: 1 });
    await closing;
    expectOk([sent]);
  });

  it('does not keep earlier notifications from a handler', async () => {
    const pair = await fixture.pair(connectionKind('loopback over self alone'));
    const { ab, two } = pair;
    for (let i = 0; i < 5; i++) await ab.notify(Uint8Array.of(i));
    await drive(pair, () => pair.one.worker.requestsInUse === 0);
    const taken: number[] = [];
    two.worker.setNotificationHandler(({ bytes }) => {
      taken.push(bytes[0]!);
      if (bytes[0] === 1) throw new Error('of the handler');
    });
    expect(taken).toEqual([0, 1, 2, 3, 4]);
    await new Promise(setImmediate);
    expect(uncaught).toEqual([expect.objectContaining({ message: 'of the handler' })]);
  });

  it('is uncaught for each callback of awaited operations, which go on', async () => {
    const { ab, two } = await fixture.pair();
    const arrived: number[] = [];
    const last = new Promise<void>((resolve) =>
      two.worker.setAmHandler(ID, ({ header }) => {
        arrived.push(header[0]!);
        if (header[0] === 9) resolve();
        throw new Error(`message ${header[0]}`);
      }),
    );
    const stop = new AbortController();
    const served = two.worker.serve(stop.signal);
    for (let i = 0; i < 10; i++) await ab.amSend(ID, new Uint8Array(8), { header: Uint8Array.of(i) });
    await last;
    stop.abort();
    await served;
    await new Promise(setImmediate);
    expect(arrived).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(uncaught.map((error) => (error as Error).message).sort()).toEqual(arrived.map((i) => `message ${i}`));
  });
});
