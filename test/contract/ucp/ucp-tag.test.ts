/** Runs the contract of tag matching over every kind of connection; the protocols of messages. */

import { describe, expect, it } from 'vitest';
import {
  CONNECTION_KINDS,
  connectionKind,
  expectContents,
  expectSame,
  fill,
  memoryOf,
  pattern,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';
import { tagMatchingContract, twoFragmentsContract } from './ucp-tag.ts';

for (const kind of CONNECTION_KINDS) tagMatchingContract(kind);
for (const kind of CONNECTION_KINDS.filter(({ hasGaudi }) => hasGaudi)) twoFragmentsContract(kind);

describe('the protocol of messages', () => {
  const fixture = usePairs();
  const LONG = 1_000_000;

  it.each([
    ['loopback over self alone', 'bytes', 'bytes', 50, /^self$/, /^tag\/eager\/short$/],
    ['posix', 'bytes', 'bytes', 50, /^posix$/, /^tag\/eager\/short$/],
    ['posix', 'bytes', 'bytes', 5000, /^posix$/, /^tag\/eager\/short$/],
    ['posix', 'bytes', 'bytes', LONG, /^posix$/, /^tag\/rndv\/am$/],
    ['posix', 'allocated', 'bytes', LONG, /^posix$/, /^tag\/rndv\/get$/],
    ['posix', 'bytes', 'allocated', LONG, /^posix$/, /^tag\/rndv\/put$/],
    ['cma and posix', 'bytes', 'bytes', LONG, /^cma$/, /^tag\/rndv\/get$/],
    ['cma and posix', 'registered', 'registered', LONG, /^cma$/, /^tag\/rndv\/get$/],
    ['staging, posix', 'gaudi', 'gaudi', LONG, /^posix$/, /^tag\/rndv\//],
    ['a driver without import', 'gaudi', 'gaudi', LONG, /^(posix|cma)$/, /^tag\/rndv\//],
    ['all transports', 'gaudi', 'gaudi', LONG, /^gaudi_ipc$/, /^tag\/rndv\/(get|put)$/],
    ['all transports', 'bytes', 'gaudi', LONG, /^gaudi_ipc$/, /^tag\/rndv\/put$/],
    ['all transports', 'gaudi', 'bytes', LONG, /^gaudi_ipc$/, /^tag\/rndv\/get$/],
  ] as const)('over %s from %s to %s, %i bytes', async (name, from, to, byteLength, transport, protocol) => {
    const pair = await fixture.pair(connectionKind(name));
    const [source, target] = [memoryOf(pair.one, from, byteLength), memoryOf(pair.two, to, byteLength)];
    const [sent] = await Promise.all([
      pair.ab.tagSend(source, { tag: 1 }),
      pair.two.worker.tagRecv(target, { tag: 1 }),
    ]);
    expect(sent).toEqual({
      byteLength,
      transport: expect.stringMatching(transport),
      device: expect.stringMatching(/^(memory|gaudi0)$/),
      protocol: expect.stringMatching(protocol),
    });
    unmap(pair.one, source);
    unmap(pair.two, target);
  });

  it('is rendezvous from UCX_RNDV_THRESH on', async () => {
    const pair = await fixture.pair(connectionKind('cma and posix'), { UCX_RNDV_THRESH: '1000' });
    for (const byteLength of [999, 1000, 5000]) {
      const target = new Uint8Array(byteLength);
      const [sent] = await Promise.all([
        pair.ab.tagSend(pattern(byteLength, 1), { tag: 1 }),
        pair.two.worker.tagRecv(target, { tag: 1 }),
      ]);
      expect(sent.protocol).toBe(byteLength < 1000 ? 'tag/eager/short' : 'tag/rndv/get');
      expectSame(target, pattern(byteLength, 1));
    }
  });

  it('uses fragments of UCX_RNDV_FRAG_SIZE, few at a time', async () => {
    const env = { UCX_RNDV_FRAG_SIZE: '64k', UCX_RNDV_FRAG_ALLOC_COUNT: '2' };
    const pair = await fixture.pair(connectionKind('staging, posix'), env);
    const { one, two, ab } = pair;
    const sizes = [65_535, 65_536, 65_537, 131_072, 700_001, 300_000];
    const sources = sizes.map((byteLength) => memoryOf(one, 'gaudi', byteLength));
    const targets = sizes.map((byteLength) => memoryOf(two, 'gaudi', byteLength));
    for (const [i, source] of sources.entries()) await fill(one, source, pattern(sizes[i]!, i));
    // Concurrently: they wait for each other's fragments.
    await Promise.all([
      ...sources.map((source, i) => ab.tagSend(source, { tag: i })),
      ...targets.map((target, i) => two.worker.tagRecv(target, { tag: i })),
    ]);
    for (const [i, target] of targets.entries()) await expectContents(two, target, pattern(sizes[i]!, i));
    const list = targets.map((memory) => ({ memory }));
    const total = sizes.reduce((sum, size) => sum + size, 0);
    const whole = new Uint8Array(total);
    await Promise.all([pair.ba.tagSend(list, { tag: 9 }), one.worker.tagRecv(whole, { tag: 9 })]);
    expectSame(whole, Buffer.concat(sizes.map((size, i) => pattern(size, i))));
    unmap(one, ...sources);
    unmap(two, ...targets);
  });
});
