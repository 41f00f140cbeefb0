/** Exchanges by a listener, by the environment and among forked processes: all bytes arrive everywhere, missing ranks and other programs are errors. */

import type { ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { freePort } from '../../../test/fixtures/processes/free-port.ts';
import { closedError } from '../../ucs/type/error.ts';
import { localExchange } from './exchange.ts';
import { forkedExchange, serveForked } from './forked.ts';
import { launchedRank, listenerExchange, sendFrame } from './listener.ts';

const HOST = '127.0.0.1';
const bytesOf = (rank: number): Uint8Array => new Uint8Array(100 + rank).fill(rank);
const sorted = (all: readonly Uint8Array[]): readonly Uint8Array[] => [...all].sort((a, b) => a.length - b.length);

describe('an exchange', () => {
  it('in one process gives every rank all bytes, more than once', async () => {
    const exchange = localExchange(3);
    for (let round = 0; round < 2; round++) {
      const all = await Promise.all([0, 1, 2].map((rank) => exchange(bytesOf(rank))));
      for (const each of all) expect(sorted(each)).toEqual([0, 1, 2].map(bytesOf));
    }
  });

  it('by a listener gives every rank all bytes, in any order of arrival, and refuses other programs', async () => {
    const port = await freePort();
    const exchangeOf = (rank: number): Promise<readonly Uint8Array[]> =>
      listenerExchange({ rank, size: 3, host: HOST, port })(bytesOf(rank));
    const others = [exchangeOf(2), exchangeOf(1)];
    const first = exchangeOf(0);
    const other = connect(port, HOST);
    other.on('error', () => {});
    other.on('connect', () => other.write(Buffer.alloc(100, 0xff)));
    for (const each of await Promise.all([first, ...others])) expect(sorted(each)).toEqual([0, 1, 2].map(bytesOf));
    if (!other.closed) await once(other, 'close');
  });

  it('by a listener does not keep the program alive for a rank that is stopped', async () => {
    const port = await freePort();
    const all = listenerExchange({ rank: 0, size: 2, host: HOST, port })(bytesOf(0));
    const stopped = connect({ port, host: HOST, allowHalfOpen: true }).pause();
    await once(stopped, 'connect');
    stopped.unref();
    for (const bytes of [Buffer.from('gaudi-ucx/coll 1'), bytesOf(1)]) sendFrame(stopped, bytes);
    expect(await all).toHaveLength(2);
    while (process.getActiveResourcesInfo().includes('TCPSocketWrap')) await new Promise(setImmediate);
    stopped.destroy();
  });

  it('by a listener fails where ranks are missing, in time', async () => {
    const port = await freePort();
    const options = { size: 2, host: HOST, port, timeoutMs: 50 };
    await expect(listenerExchange({ ...options, rank: 0 })(bytesOf(0))).rejects.toMatchObject({
      code: 'ERR_TIMED_OUT',
      message: expect.stringContaining('1 of 2 ranks'),
    });
    await expect(listenerExchange({ ...options, rank: 1 })(bytesOf(1))).rejects.toMatchObject({
      code: 'ERR_TIMED_OUT',
      message: expect.stringContaining('rank 0 has not replied: connect ECONNREFUSED'),
    });
  });

  it('by the environment checks every variable', async () => {
    const port = String(await freePort());
    const env = (RANK: string): Record<string, string> => ({
      RANK,
      WORLD_SIZE: '2',
      MASTER_ADDR: HOST,
      MASTER_PORT: port,
    });
    const ranks = [launchedRank(env('0')), launchedRank(env('1'))];
    expect(ranks.map(({ rank, size }) => [rank, size])).toEqual([
      [0, 2],
      [1, 2],
    ]);
    const all = await Promise.all(ranks.map(({ rank, exchange }) => exchange(bytesOf(rank))));
    for (const each of all) expect(sorted(each)).toEqual([0, 1].map(bytesOf));
    for (const [name, value] of [
      ['RANK', '2'],
      ['RANK', 'one'],
      ['WORLD_SIZE', undefined],
      ['MASTER_PORT', '65536'],
    ] as const) {
      const argument = name === 'MASTER_PORT' ? 'port' : name;
      expect(() => launchedRank({ ...env('0'), [name]: value })).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument }) }),
      );
    }
  });

  it('checks its options', async () => {
    const options = { rank: 0, size: 2, host: HOST, port: 1 };
    for (const [argument, make] of [
      ['size', () => localExchange(0)],
      ['size', () => localExchange(Number.NaN)],
      ['size', () => localExchange(1.5)],
      ['size', () => listenerExchange({ ...options, size: -3 })],
      ['rank', () => listenerExchange({ ...options, rank: 2 })],
      ['rank', () => listenerExchange({ ...options, rank: 'x' as unknown as number })],
      ['timeoutMs', () => listenerExchange({ ...options, timeoutMs: Number.POSITIVE_INFINITY })],
      ['timeoutMs', () => listenerExchange({ ...options, timeoutMs: '5' as unknown as number })],
    ] as const) {
      expect(make, argument).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument }) }),
      );
    }
  });

  it('among forked processes fails where the channel is closed already', async () => {
    const send = (_message: unknown, _handle: undefined, _options: undefined, callback: (error: Error) => void): void =>
      callback(closedError('channel'));
    const channel = Object.assign(new EventEmitter(), { send });
    await expect(forkedExchange(channel)(bytesOf(0))).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    expect(channel.eventNames()).toEqual([]);
  });

  it('among forked processes does not wait for children that have ended or have not started', async () => {
    const childOf = (fields: object): ChildProcess & { readonly sent: unknown[] } => {
      const sent: unknown[] = [];
      const send = (message: unknown): number => sent.push(message);
      return Object.assign(new EventEmitter(), { sent, send, pid: 5, connected: true, ...fields }) as never;
    };
    const child = childOf({});
    serveForked([childOf({ connected: false }), childOf({ pid: undefined }), child]);
    const bytes = forkedExchange(
      Object.assign(new EventEmitter(), { send: (message: unknown) => child.emit('message', message) }),
    );
    void bytes(bytesOf(0));
    expect(child.sent).toHaveLength(1);
  });

  it.each(['exit', 'disconnect'])('among forked processes does not wait for a child after its %s', (end) => {
    const sent: unknown[] = [];
    const childOf = (): ChildProcess =>
      Object.assign(new EventEmitter(), {
        send: (message: unknown) => sent.push(message),
        pid: 5,
        connected: true,
      }) as never;
    const [leaving, staying] = [childOf(), childOf()];
    serveForked([leaving, staying]);
    void forkedExchange(
      Object.assign(new EventEmitter(), { send: (message: unknown) => staying.emit('message', message) }),
    )(bytesOf(0));
    expect(sent).toEqual([]);
    Object.assign(leaving, { connected: false }).emit(end);
    expect(sent).toHaveLength(1);
  });

  it('among forked processes fails where the parent ends', async () => {
    const channel = Object.assign(new EventEmitter(), { send: () => true });
    const pending = forkedExchange(channel)(bytesOf(0));
    channel.emit('disconnect');
    await expect(pending).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    expect(channel.eventNames()).toEqual([]);
  });
});
