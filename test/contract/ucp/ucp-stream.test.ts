/** Runs the contract of streams over every kind of connection; concurrent sends; lost memory; device memory. */

import { describe, expect, it } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import {
  CONNECTION_KINDS,
  connectionKind,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  type MemoryKind,
  mappedOf,
  memoryOf,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';
import { asRequest, KEEP, streamContract } from './ucp-stream.ts';

for (const kind of CONNECTION_KINDS) streamContract(kind);

describe('streams of concurrent sends', () => {
  const fixture = usePairs();
  const BYTES = 300_000;

  /** Starts concurrent sends of all kinds of memory; their bytes arrive in the order of the calls. */
  const expectOrder = async (kinds: readonly MemoryKind[], to: MemoryKind): Promise<void> => {
    const pair = await fixture.pair(connectionKind('staging, posix'), { UCX_RNDV_FRAG_SIZE: '64k' });
    const { one, two, ab, ba } = pair;
    const sources = kinds.map((kind) => memoryOf(one, kind, BYTES));
    for (const [i, source] of sources.entries()) await fill(one, source, pattern(BYTES, i));
    const target = memoryOf(two, to, BYTES * kinds.length);
    await Promise.all([...sources.map((source) => ab.streamSend(source)), ba.streamRecv(target, { waitAll: true })]);
    await expectContents(two, target, Buffer.concat(kinds.map((_, i) => pattern(BYTES, i))));
  };

  it.each([
    [['bytes', 'registered', 'allocated'], 'gaudi'],
    [['bytes', 'gaudi'], 'bytes'],
  ] as const)('keep the order of %s to %s', async (kinds, to) => {
    await expectOrder(kinds, to);
  });

  it.each([
    [['gaudi', 'bytes'], 'bytes'],
    [['gaudi', 'gaudi'], 'bytes'],
    [['gaudi', 'gaudi'], 'gaudi'],
  ] as const)('keep the order of %s to %s', async (kinds, to) => {
    await expectOrder(kinds, to);
  });
});

describe('a stream whose memory is lost in the queue of a socket', () => {
  const fixture = usePairs();

  it('has the credit of what did not leave', async () => {
    const pair = await fixture.pair(connectionKind('tcp'), { UCX_TCP_SNDBUF: '64k', UCX_TCP_RCVBUF: '64k' });
    const { one, two, ab, ba } = pair;
    const byteLength = 3_000_000;
    const creditOf = (): number =>
      Math.min(...one.context.snapshot().workers[0]!.endpoints.map(({ creditBytes = 0 }) => creditBytes));
    const credit = creditOf();
    let lost = 0;
    // More than all credit together.
    for (let round = 0; round < 20; round++) {
      const bytes = new Uint8Array(byteLength);
      const memory = one.context.memMap({ buffer: bytes });
      const send = asRequest(ab.streamSendNbx(memory, 0, byteLength, KEEP));
      structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
      await driveUntil(pair, () => send.isCompleted);
      if (send.status !== Status.OK) {
        expect(send.status).toBe(Status.INVALID_ADDR);
        lost += 1;
      }
      send.free();
      one.context.memUnmap(memory);
      await driveIdle(pair);
      while (ba.streamRecvData() !== undefined);
    }
    expect(lost).toBeGreaterThan(0);
    // The peer gives credit back in halves.
    expect(creditOf()).toBeGreaterThan(credit / 4);
    const [source, target] = [mappedOf(one, 'registered', byteLength), mappedOf(two, 'registered', byteLength)];
    await fill(one, source, pattern(byteLength, 7));
    await serving(pair, () => Promise.all([ab.streamSend(source), ba.streamRecv(target, { waitAll: true })]));
    expectSame(target.bytes!, pattern(byteLength, 7));
    unmap(one, source);
    unmap(two, target);
  });
});

describe('a stream into device memory', () => {
  const fixture = usePairs();

  it.each([false, true])('is not written any more when its endpoint has closed, with force: %s', async (force) => {
    const pair = await fixture.pair(connectionKind('staging, posix'));
    const { node, two, ab, ba } = pair;
    const target = mappedOf(two, 'gaudi', 4000);
    const ends: number[] = [];
    await serving(pair, () => ab.streamSend(pattern(4000, 1)));
    node.inject(1, { kind: 'hang', delayNs: 100e6 });
    const callback = (_request: Request, status: Status): void => void ends.push(status);
    const request = asRequest(ba.streamRecvNbx(target, 0, 4000, { ...KEEP, callback }));
    // The copy into the card is in progress.
    await driveIdle(pair);
    expect(request.isCompleted).toBe(false);
    await serving(pair, () => ba.close({ force }));
    expect(request.isCompleted).toBe(true);
    expect(ends).toEqual([request.status]);
    request.free();
    unmap(two, target);
  });
});
