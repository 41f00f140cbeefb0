/** The names of the protocols of messages: requests, explain(), UCX_PROTO_INFO=y and UCX_PROTO_INFO=used agree about each message. */

import { describe, expect, it } from 'vitest';
import type { LocalMemory, TransferResult } from '../../../src/index.ts';
import { describeProtocol } from '../../../src/ucp/proto/protocol-info.ts';
import {
  connectionKind,
  keyFor,
  mappedOf,
  memoryOf,
  type Pair,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const fixture = usePairs();
const OPERATIONS = ['tag', 'am', 'stream'] as const;
type Operation = (typeof OPERATIONS)[number];
/** Around the limits of short messages and of frames; the last is a rendezvous over every transport. */
const SIZES = [1, 49, 50, 999, 1000, 3000, 9000, 700_000];
const SETTINGS = { UCX_BCOPY_THRESH: '50', UCX_RNDV_THRESH: '1000' };
const AM_ID = 9;

/** A row of a printed table. */
interface Row {
  readonly operation: string;
  readonly from: number;
  readonly to: number;
  readonly description: string;
  readonly transport: string;
}

/** Sends a message, which the other end receives into `target`. */
async function send(
  pair: Pair,
  operation: Operation,
  source: LocalMemory,
  target: LocalMemory,
): Promise<TransferResult> {
  const { two, ab, ba } = pair;
  return await serving(pair, async () => {
    if (operation === 'tag') return (await Promise.all([ab.tagSend(source), two.worker.tagRecv(target)]))[0];
    if (operation === 'stream') {
      return (await Promise.all([ab.streamSend(source), ba.streamRecv(target, { waitAll: true })]))[0];
    }
    const received = new Promise((resolve, reject) => {
      two.worker.setAmHandler(AM_ID, (message) => {
        message.into(target).then(resolve, reject);
      });
    });
    return (await Promise.all([ab.amSend(AM_ID, source), received]))[0];
  });
}

/** The tables in the log behind so many of its records. */
function rows(first: number): Row[] {
  let operation = '';
  return fixture.records.slice(first).flatMap(({ message }) => {
    const title = /^\| ucp_worker[^|]*\| (.*?) +\|$/.exec(message)?.[1];
    if (title !== undefined) operation = /(?:message|stream) by ucp_(\w+?)_send/.exec(title)?.[1] ?? '';
    const cells = /\| +(?:\d+ \| )?(\d+)\.\.(\d+|inf) +\| ([^|]*?) +\| ([\w/]+)/.exec(message);
    if (cells === null) return [];
    const [, from, to, description, transport] = cells;
    const end = to === 'inf' ? Number.POSITIVE_INFINITY : Number(to);
    return [{ operation, from: Number(from), to: end, description: description!, transport: transport! }];
  });
}

describe('messages of host memory', () => {
  it.each([
    ['posix', {}],
    ['posix', SETTINGS],
    ['cma and posix', SETTINGS],
    ['tcp', {}],
    ['tcp', { UCX_RNDV_SCHEME: 'put_zcopy', ...SETTINGS }],
    ['tcp', { UCX_RNDV_SCHEME: 'put_ppln' }],
    ['tcp', { UCX_RNDV_SCHEME: 'am' }],
    ['all transports', {}],
    ['loopback', SETTINGS],
  ])('over %s with %o have the same names everywhere', async (name, env) => {
    const chosen = await fixture.pair(connectionKind(name), { UCX_PROTO_INFO: 'y', ...env });
    // A stream over a loopback has one end only.
    const operations = OPERATIONS.filter((operation) => operation !== 'stream' || !chosen.kind.isLoopback);
    const handle = mappedOf(chosen.two, 'registered', 4096);
    const key = keyFor(chosen.ab, chosen.two, handle);
    const names: string[] = [];
    for (const operation of operations) {
      for (const size of SIZES) {
        const sent = await send(chosen, operation, new Uint8Array(size), new Uint8Array(size));
        const { winner } = chosen.ab.explain(operation, new Uint8Array(size), key).at(size);
        expect([size, sent.protocol, `${sent.transport}/${sent.device}`]).toEqual([
          size,
          winner!.protocol,
          winner!.transport,
        ]);
        names.push(`${operation} ${size} ${describeProtocol(winner!.protocol)} ${winner!.transport}`);
      }
    }
    // Endpoints of a worker to itself have tables, too.
    const told = rows(0).filter(({ transport }) => transport.startsWith('self/') === chosen.kind.isLoopback);
    const named = operations.flatMap((operation) =>
      SIZES.map((size) => {
        const row = told.find((one) => one.operation === operation && one.from <= size && size <= one.to)!;
        return `${operation} ${size} ${row.description} ${row.transport}`;
      }),
    );
    expect(named).toEqual(names);
    key.release();
    unmap(chosen.two, handle);

    const before = fixture.records.length;
    const used = await fixture.pair(connectionKind(name), { UCX_PROTO_INFO: 'used', ...env });
    for (const operation of operations) {
      for (const size of SIZES) await send(used, operation, new Uint8Array(size), new Uint8Array(size));
    }
    await used.one.worker.close();
    const counted = operations.flatMap((operation) =>
      SIZES.map((size) => {
        const of = rows(before).filter((row) => row.operation === operation && row.from <= size && size <= row.to);
        expect([operation, size, of.length]).toEqual([operation, size, 1]);
        return `${operation} ${size} ${of[0]!.description} ${of[0]!.transport}`;
      }),
    );
    expect(counted).toEqual(names);
  });
});

describe('messages between host and device memory', () => {
  const MEMORIES = ['bytes', 'registered', 'gaudi'] as const;
  const COMBINATIONS = MEMORIES.flatMap((from) => MEMORIES.map((to) => [from, to] as const));

  it.each(['all transports', 'staging, tcp', 'staging, cma and posix', 'a driver without import', 'loopback'])(
    'over %s have the names that explain() gives',
    async (name) => {
      const pair = await fixture.pair(connectionKind(name));
      for (const [from, to] of COMBINATIONS) {
        const source = memoryOf(pair.one, from, 700_000);
        const target = mappedOf(pair.two, to === 'bytes' ? 'registered' : to, 700_000);
        const key = keyFor(pair.ab, pair.two, target);
        for (const operation of ['tag', 'am'] as const) {
          const { winner } = pair.ab.explain(operation, source, key).at(700_000);
          const into = to === 'bytes' ? new Uint8Array(700_000) : target;
          const sent = await send(pair, operation, source, into);
          const what = `${operation} from ${from} to ${to}`;
          expect([what, sent.protocol]).toEqual([what, winner!.protocol]);
          expect([what, `${sent.transport}/${sent.device}`]).toEqual([what, winner!.transport]);
        }
        key.release();
        unmap(pair.one, source);
        unmap(pair.two, target);
      }
    },
  );
});
