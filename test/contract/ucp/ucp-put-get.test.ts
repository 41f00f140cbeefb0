/** Runs the contract of put and get over every kind of connection; the protocols that selection chooses; failing short puts. */

import { describe, expect, it } from 'vitest';
import { MemoryType, Status } from '../../../src/index.ts';
import {
  CONNECTION_KINDS,
  connectionKind,
  expectSame,
  fill,
  keyFor,
  mappedOf,
  memoryOf,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';
import { putGetContract } from './ucp-put-get.ts';

for (const kind of CONNECTION_KINDS) putGetContract(kind);

describe('the chosen protocol', () => {
  const fixture = usePairs();

  it.each([
    // kind, local, remote, bytes, transport, protocols of put and of get
    ['loopback', 'bytes', 'allocated', 100_000, /^(self|posix|cma)$/, /zcopy|short/],
    ['loopback', 'bytes', 'gaudi', 100_000, /^gaudi_cpy$/, /zcopy/],
    ['posix', 'bytes', 'allocated', 100_000, /^posix$/, /zcopy|short/],
    ['cma and posix', 'bytes', 'registered', 100_000, /^cma$/, /zcopy/],
    ['all transports', 'gaudi', 'gaudi', 100_000, /^gaudi_ipc$/, /zcopy/],
    ['all transports', 'bytes', 'gaudi', 8, /^gaudi_ipc$/, /short/],
  ] as const)('of %s from %s to remote %s, %i bytes', async (name, local, remote, byteLength, transport, protocol) => {
    const pair = await fixture.pair(connectionKind(name));
    const target = mappedOf(pair.two, remote, byteLength);
    const rkey = keyFor(pair.ab, pair.two, target);
    await serving(pair, async () => {
      const memory = memoryOf(pair.one, local, byteLength);
      for (const operation of ['put', 'get'] as const) {
        const result = await pair.ab[operation](memory, rkey);
        expect(result).toMatchObject({ byteLength, transport: expect.stringMatching(transport) });
        expect(result.protocol).toMatch(new RegExp(`^${operation}/`));
        expect(result.protocol).toMatch(protocol);
      }
      unmap(pair.one, memory);
    });
    rkey.release();
  });

  it.each([
    ['posix', 'bytes', 'registered'],
    ['staging, posix', 'bytes', 'gaudi'],
    ['staging, cma and posix', 'gaudi', 'gaudi'],
    ['a driver without import', 'gaudi', 'gaudi'],
    ['all transports', 'gaudi', 'registered'],
  ] as const)(
    'of %s from %s to remote %s, by messages, has the name that explain() gives',
    async (name, local, remote) => {
      const pair = await fixture.pair(connectionKind(name));
      const target = mappedOf(pair.two, remote, 100_000);
      const rkey = keyFor(pair.ab, pair.two, target);
      const memory = memoryOf(pair.one, local, 100_000);
      const names = await serving(pair, async () => [
        (await pair.ab.put(memory, rkey)).protocol,
        (await pair.ab.get(memory, rkey)).protocol,
      ]);
      rkey.release();
      expect(names).toEqual(['put/am', 'get/am']);
    },
  );

  it('is explained: the choice by size, and why others were rejected', async () => {
    const pair = await fixture.pair(connectionKind('all transports'), { UCX_TLS: '^cma' });
    const { one, two, ab } = pair;
    const target = two.context.memMap({ allocate: 4096, memoryType: MemoryType.GAUDI });
    const rkey = keyFor(ab, two, target);
    const plan = ab.explain('put', new Uint8Array(1), rkey);
    expect(plan).toMatchObject({ operation: 'put', local: 'host', remote: 'gaudi' });
    expect(plan.chosen[0]!.bytesMin).toBe(1);
    expect(plan.chosen.at(-1)!.bytesMax).toBe(Number.POSITIVE_INFINITY);
    for (const [i, row] of plan.chosen.entries()) {
      expect(row.transport).toMatch(/^\w+\/\w+$/);
      expect(row.bytesMin).toBe(i === 0 ? 1 : plan.chosen[i - 1]!.bytesMax + 1);
    }
    const reasons = new Map(plan.rejected.map(({ transport, reason }) => [transport.split('/')[0], reason]));
    for (const transport of ['posix', 'cma', 'gaudi_cpy', 'self']) expect(reasons.get(transport)).toMatch(/\w+ \w+/);
    expect(reasons.get('cma')).toMatch(/UCX_TLS/);
    const text = String(plan);
    expect(text).toContain('gaudi_ipc');
    expect(text).toContain('UCX_TLS');
    rkey.release();
    expect(one.worker.requestsInUse).toBe(0);
  });
});

describe('a short put that fails at the peer', () => {
  const fixture = usePairs();

  it('is reported by the next flush, and not by a message over the same lane', async () => {
    const pair = await fixture.pair(connectionKind('staging, tcp'));
    const { one, two, ab } = pair;
    const gone = mappedOf(two, 'allocated', 8);
    const rkey = keyFor(ab, two, gone);
    unmap(two, gone);
    const sent = mappedOf(one, 'gaudi', 300_000);
    const bytes = pattern(sent.byteLength, 5);
    await fill(one, sent, bytes);
    const received = new Uint8Array(sent.byteLength);
    await serving(pair, async () => {
      expect(ab.putNbx(new Uint8Array(8), 0, 8, rkey, 0)).toBe(Status.OK);
      const receive = two.worker.tagRecv(received, { tag: 1 });
      await ab.tagSend(sent, { tag: 1 });
      await receive;
      expectSame(received, bytes);
      await expect(ab.flush()).rejects.toMatchObject({ status: Status.INVALID_ADDR });
      await ab.flush();
    });
    rkey.release();
    unmap(one, sent);
  });
});
