/**
 * Device memory over libucp in case of errors: peers that send false messages, peers that are killed, cards that fail; and the paths in explain().
 */

import { afterEach, describe, expect, it } from 'vitest';
import { MessageId } from '../../../src/api/layout/message.ts';
import { writeData, writeReply } from '../../../src/api/layout/rendezvous.ts';
import { writeAtomic, writeRma } from '../../../src/api/layout/rma.ts';
import { Context, type Endpoint, type IovPiece, MemoryType, type Request, Status } from '../../../src/index.ts';
import { firstWord, packMessage } from '../../../src/libucx/device/layout.ts';
import type { EngineEndpoint } from '../../../src/libucx/engine/engine.ts';
import { STAGING_AM_ID } from '../../../src/libucx/request/arrivals.ts';
import { AtomicOperation } from '../../../src/uct/api/iface.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import {
  type ConnectionKind,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  type Side,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';
import { createTestLog, type TestLog } from '../../fixtures/test-log.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`skipped: ${skipReason}`);
const FRAGMENT = 65_536;
const ENV = { UCX_RNDV_FRAG_SIZE: '64k', UCX_RNDV_FRAG_ALLOC_COUNT: '6' };
const KEEP = { noImmediateCompletion: true };
/** A request id that operations of the tests do not get: the answers to lies come back on the endpoint of the liar. */
const LIE_ID = 0x7fff_0000;

/** Sends a message of the engine, which programs cannot send. */
function lie(endpoint: Endpoint, header: Uint8Array | undefined, byteLength: number): Request {
  const data = { local: new Uint8Array(byteLength), localOffset: 0, byteLength };
  return (endpoint as EngineEndpoint).sendOwn(STAGING_AM_ID, header, data, KEEP) as Request;
}

/** Waits for the end of a request, while its worker is served. */
async function sent(request: Request): Promise<void> {
  while (!request.isCompleted) await new Promise(setImmediate);
  expect(request.status).toBe(Status.OK);
  request.free();
}

function kindOf(tls: string): ConnectionKind {
  return { name: tls, isLoopback: false, tls, hasGaudi: true, connectsLate: true, engine: 'libucx' };
}

describe.skipIf(skipReason !== undefined)(`peers that send false messages (needs libucp)`, () => {
  const fixture = usePairs(kindOf('tcp,self,gaudi_cpy'));

  it('access no memory without a key, and do not affect others', async () => {
    const pair = await fixture.pair(kindOf('tcp,self,gaudi_cpy'), ENV);
    const { two, ab } = pair;
    const memory = mappedOf(two, 'gaudi', 4096);
    const bytes = pattern(4096, 1);
    await fill(two, memory, bytes);
    const { exportId } = memory as unknown as { exportId: number };
    const rma = (id: number, key: number, remoteOffset: number, byteLength: number): Uint8Array =>
      packMessage(writeRma(firstWord(id), { request: LIE_ID, remoteOffset, byteLength }), key);
    const word = (remoteOffset: number, wordBytes: number, operation: number = AtomicOperation.ADD): Uint8Array => {
      const fields = { request: LIE_ID, remoteOffset, operation, wordBytes, value: 1n, compare: 0n };
      return packMessage(writeAtomic(firstWord(MessageId.ATOMIC), fields), exportId);
    };
    const lies: [Uint8Array, number][] = [
      [rma(MessageId.PUT, exportId + 1, 0, 8), 8],
      [rma(MessageId.PUT, 0, 0, 8), 8],
      [rma(MessageId.PUT, exportId, 4090, 8), 8],
      [rma(MessageId.PUT, exportId, Number.MAX_SAFE_INTEGER, 8), 8],
      [rma(MessageId.PUT, exportId, 0, 8), 9],
      [rma(MessageId.PUT, exportId, 0, 0), 0],
      [rma(MessageId.PUT, exportId, 0, 4096), 3 * FRAGMENT],
      [rma(MessageId.GET, exportId, 1, 4096), 0],
      [rma(MessageId.GET, exportId + 1, 0, Number.MAX_SAFE_INTEGER), 100],
      [word(2, 4), 0],
      [word(0, 3), 0],
      [word(4092, 8, AtomicOperation.SWAP), 0],
      [word(4096, 8), 0],
      [word(0, 8, AtomicOperation.CSWAP + 1), 0],
      [word(0, 8, -1), 0],
      [
        packMessage(writeReply(firstWord(MessageId.REPLY), { request: 1, status: Status.IO_ERROR, low: 0, high: 0 })),
        0,
      ],
      [packMessage(writeData(firstWord(MessageId.DATA), 1, 0)), 3 * FRAGMENT],
    ];
    await serving(pair, async () => {
      for (const [header, byteLength] of lies) {
        await sent(lie(ab, header, byteLength));
      }
      for (const header of [undefined, new Uint8Array(56), new Uint8Array(3)]) {
        await sent(lie(ab, header, 100));
      }
      const rkey = keyFor(ab, two, memory);
      await ab.get(new Uint8Array(4096), rkey);
      rkey.release();
    });
    await driveIdle(pair);
    await expectContents(two, memory, bytes);
  });

  it('cannot answer requests to others', async () => {
    const pair = await fixture.pair(kindOf('tcp,self,gaudi_cpy'), ENV);
    const { one, two, ab } = pair;
    const liar = two.context.worker();
    const memory = mappedOf(two, 'gaudi', 4096);
    const bytes = pattern(4096, 1);
    await fill(two, memory, bytes);
    const rkey = keyFor(ab, two, memory);
    const received = new Uint8Array(4096);
    const toOne = liar.endpoint(one.worker.address());
    const apart = { one, two: { ...two, worker: liar } };
    const get = ab.getNbx(received, 0, 4096, rkey, 0, KEEP) as Request;
    const lies = Array.from({ length: 16 }, (_, index) => {
      const header = packMessage(writeData(firstWord(MessageId.DATA), index, 0));
      return lie(toOne, header, 4096);
    });
    // Messages after the false ones arrive after them.
    const [sent, last] = [new Uint8Array(1), new Uint8Array(1)];
    const requests = [
      ...lies,
      toOne.tagSendNbx(sent, 0, 1, 1, KEEP),
      one.worker.tagRecvNbx(last, 0, 1, 1, undefined, KEEP),
    ];
    await driveUntil(apart, () => requests.every((request) => (request as Request).isCompleted));
    for (const request of requests) (request as Request).free();
    expect(get.isCompleted).toBe(false);
    await driveUntil(pair, () => get.isCompleted);
    expect(get.status).toBe(Status.OK);
    expectSame(received, bytes);
    get.free();
    rkey.release();
    await serving(apart, () => toOne.close());
    await liar.close();
  });

  it('that unmap memory make the operations on it fail', async () => {
    const pair = await fixture.pair(kindOf('tcp,self,gaudi_cpy'), ENV);
    const { two, ab } = pair;
    const memory = mappedOf(two, 'gaudi', 4096);
    const rkey = keyFor(ab, two, memory);
    two.context.memUnmap(memory);
    const failure = { status: Status.INVALID_ADDR };
    await serving(pair, async () => {
      await expect(ab.put(new Uint8Array(16), rkey)).rejects.toMatchObject(failure);
      await expect(ab.get(new Uint8Array(16), rkey)).rejects.toMatchObject(failure);
      await expect(ab.atomic('add', 1, rkey)).rejects.toMatchObject(failure);
      await ab.flush();
    });
    expect(ab.status).toBe(Status.OK);
    rkey.release();
  });
});

describe.skipIf(skipReason !== undefined)(`peers that are killed (needs libucp)`, () => {
  const fixture = usePairs(kindOf('tcp,self,gaudi_cpy'));
  const peers: UcpPeer[] = [];
  afterEach(async () => {
    for (const peer of peers.splice(0)) await peer.kill();
  });

  it.each(['put', 'get', 'put to a host', 'get from a host', 'message'])('end a %s with an error', async (name) => {
    const env = { ...ENV, UCX_ENGINE: 'libucx' };
    const peer = await UcpPeer.start('', 0, 'tcp,self,gaudi_cpy', env);
    peers.push(peer);
    const one = await fixture.side(fixture.node({ cards: 1 }), 0, { ...ENV, UCX_TLS: 'tcp,self,gaudi_cpy' }, 'libucx');
    const failures: Status[] = [];
    const endpoint = one.worker.endpoint(peer.address, { onError: (_, status) => failures.push(status) });
    const rkey = endpoint.unpackRkey(peer.keys[name.includes('host') ? 'allocated' : 'gaudi']!);
    const near = mappedOf(one, 'gaudi', 2 ** 20);
    await peer.ask({ do: 'serve' });
    if (name !== 'message') await endpoint.put(Uint8Array.of(1), rkey);
    const start = (): Status | Request => {
      if (name === 'message') return endpoint.tagSendNbx(near, 0, 2 ** 20, 77);
      if (name.startsWith('put')) return endpoint.putNbx(near, 0, 2 ** 20, rkey, 0, KEEP);
      return endpoint.getNbx(near, 0, 2 ** 20, rkey, 0, KEEP);
    };
    const requests = Array.from({ length: 20 }, start).filter((request) => typeof request !== 'number');
    const killed = peer.kill();
    const flush = endpoint.flushNbx(KEEP);
    const alone = { one, two: one };
    await driveUntil(alone, () => failures.length > 0 && requests.every(({ isCompleted }) => isCompleted));
    await killed;
    expect(requests.some(({ status }) => status < 0)).toBe(true);
    for (const request of requests) request.free();
    if (typeof flush !== 'number') {
      await driveUntil(alone, () => flush.isCompleted);
      flush.free();
    }
    expect(endpoint.putNbx(near, 0, 1, rkey, 0)).toBe(failures[0]);
    await endpoint.close();
    expect(one.worker.requestsInUse).toBe(0);
    one.context.memUnmap(near);
  });
});

describe.skipIf(skipReason !== undefined)(`cards that fail (needs libucp)`, () => {
  const fixture = usePairs(kindOf('tcp,self,gaudi_cpy'));

  /** A pair whose node may log that its engines have failed. */
  async function pairThatFails(): Promise<{ readonly log: TestLog; readonly pair: Pair }> {
    const log = createTestLog('emulator');
    log.allow(/engine|malfunction/);
    return { log, pair: await fixture.pair({ ...kindOf('tcp,self,gaudi_cpy'), node: { log: log.log } }, ENV) };
  }

  it('end their operations; messages that they cannot begin to read are not sent', async () => {
    const { log, pair } = await pairThatFails();
    const { node, one, two, ab } = pair;
    const near = mappedOf(one, 'gaudi', 4 * FRAGMENT);
    const rkey = keyFor(ab, two, mappedOf(two, 'allocated', 4 * FRAGMENT));
    node.inject(0, { kind: 'engine-failure' });
    await serving(pair, async () => {
      await expect(ab.put(near, rkey)).rejects.toMatchObject({ code: expect.stringMatching(/^ERR_/) });
      for (const byteLength of [1, 4096, 4 * FRAGMENT]) {
        const memory = mappedOf(one, 'gaudi', byteLength);
        const sends = [
          ab.tagSend(memory, { tag: 1 }),
          ab.tagSendSync(memory, { tag: 1 }),
          ab.amSend(1, memory),
          ab.streamSend(memory),
        ];
        // A card that does not work any more is busy for its driver.
        for (const { status, reason } of (await Promise.allSettled(sends)) as PromiseRejectedResult[])
          expect([status, [Status.IO_ERROR, Status.BUSY].includes(reason.status)]).toEqual(['rejected', true]);
      }
      expect(ab.status).toBe(Status.OK);
      // The next message is the first to arrive.
      const bytes = pattern(100, 1);
      const received = new Uint8Array(100);
      await Promise.all([ab.tagSend(bytes, { tag: 1 }), two.worker.tagRecv(received, { tag: 1 })]);
      expectSame(received, bytes);
    });
    expect(one.worker.requestsInUse).toBe(0);
    rkey.release();
    log.expectQuiet();
  });

  it('in the middle of a message end its connection', async () => {
    const { log, pair } = await pairThatFails();
    const { node, one, two, ab } = pair;
    fixture.allow(/cannot read device memory of a message/);
    const near = mappedOf(one, 'gaudi', 4 * FRAGMENT);
    // What is read before the message is sent.
    const beginning = new Uint8Array(FRAGMENT);
    node.inject(0, { kind: 'engine-failure' });
    await serving(pair, async () => {
      const received = two.worker.tagRecv(new Uint8Array(5 * FRAGMENT), { tag: 1 });
      const sent = ab.tagSend([{ memory: beginning }, { memory: near }], { tag: 1 });
      await expect(sent).rejects.toMatchObject({ code: expect.stringMatching(/^ERR_/) });
      expect(ab.status).toBeLessThan(0);
      await received;
    });
    log.expectQuiet();
  });

  it('end a get of a peer, whose bytes they could not read', async () => {
    const { log, pair } = await pairThatFails();
    const { node, one, two, ba } = pair;
    const near = mappedOf(one, 'gaudi', 4 * FRAGMENT);
    const rkey = keyFor(ba, one, near);
    node.inject(0, { kind: 'engine-failure' });
    await serving(pair, async () => {
      for (const byteLength of [8, 4 * FRAGMENT]) {
        const host = mappedOf(two, 'allocated', byteLength);
        await expect(ba.get(host, rkey, { byteLength })).rejects.toMatchObject({
          code: expect.stringMatching(/^ERR_/),
        });
      }
      expect(ba.status).toBe(Status.OK);
    });
    rkey.release();
    log.expectQuiet();
  });
});

describe.skipIf(skipReason !== undefined)(`an ArrayBuffer that is detached under a message (needs libucp)`, () => {
  const fixture = usePairs(kindOf('tcp,self,gaudi_cpy'));
  const byteLength = 4 * FRAGMENT;

  /** A list of host memory, whose buffer is taken away, and of memory of a card. */
  function losing(side: Side, start: (list: readonly IovPiece[]) => Status | Request): Request {
    const host = new Uint8Array(byteLength / 2);
    const request = start([{ memory: host }, { memory: mappedOf(side, 'gaudi', byteLength / 2) }]);
    structuredClone(host.buffer, { transfer: [host.buffer] });
    return request as Request;
  }

  it('in a list with memory of a card ends the receive with INVALID_ADDR', async () => {
    const pair = await fixture.pair(kindOf('tcp,self,gaudi_cpy'), ENV);
    const { two, ab } = pair;
    const received = losing(two, (list) => two.worker.tagRecvNbx(list, 0, 0, 5, undefined, KEEP));
    const sent = ab.tagSendNbx(new Uint8Array(byteLength), 0, byteLength, 5, KEEP) as Request;
    await driveUntil(pair, () => sent.isCompleted && received.isCompleted);
    expect([sent.status, received.status, ab.status]).toEqual([Status.OK, Status.INVALID_ADDR, Status.OK]);
    for (const request of [sent, received]) request.free();
  });

  it('in a list with memory of a card ends the send with INVALID_ADDR, and the connection', async () => {
    // By rendezvous, so that libucp reads the list when the receiver is known: 1.22 reads shorter ones in the call.
    const pair = await fixture.pair(kindOf('tcp,self,gaudi_cpy'), { ...ENV, UCX_RNDV_THRESH: '1k' });
    fixture.allow(/cannot read device memory of a message/);
    const { one, two, ab } = pair;
    const sent = losing(one, (list) => ab.tagSendNbx(list, 0, 0, 5, KEEP));
    const received = two.worker.tagRecvNbx(new Uint8Array(byteLength), 0, byteLength, 5, undefined, KEEP) as Request;
    await driveUntil(pair, () => sent.isCompleted && received.isCompleted);
    expect([sent.status, ab.status]).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
    for (const request of [sent, received]) request.free();
  });
});

describe.skipIf(skipReason !== undefined)(`the explanation (needs libucp)`, () => {
  const fixture = usePairs(kindOf('all'));

  it('names the path, why others were rejected, and the engine', async () => {
    const apart = await fixture.pair(kindOf('tcp,self,gaudi_cpy'), ENV);
    const near = await fixture.pair(kindOf('all'), ENV);
    const told = (
      { one, two, ab }: typeof near,
      operation: 'put' | 'tag' | 'atomic',
      kinds: ['gaudi' | 'allocated', 'gaudi' | 'allocated'],
    ) => ab.explain(operation, mappedOf(one, kinds[0], 4096), keyFor(ab, two, mappedOf(two, kinds[1], 4096)));
    const protocols = (explanation: ReturnType<typeof told>): string[] =>
      explanation.chosen.map(({ transport, protocol }) => `${protocol} ${transport}`);
    expect(protocols(told(near, 'put', ['gaudi', 'gaudi']))).toEqual([
      expect.stringMatching(/^put\/zcopy gaudi_ipc\//),
    ]);
    expect(protocols(told(apart, 'put', ['allocated', 'allocated']))).toEqual(['put/libucp libucp']);
    expect(protocols(told(near, 'put', ['gaudi', 'allocated']))).toEqual(['put/staging libucp']);
    expect(protocols(told(apart, 'put', ['gaudi', 'gaudi']))).toEqual(['put/am libucp']);
    expect(protocols(told(apart, 'tag', ['gaudi', 'gaudi']))).toEqual(['tag/libucp libucp']);
    expect(protocols(told(near, 'atomic', ['allocated', 'gaudi']))).toEqual(['amo/am libucp', 'amo/am libucp']);
    const staged = told(apart, 'put', ['gaudi', 'allocated']);
    const { version, reason } = apart.one.context.engine;
    expect(staged.engine).toEqual({ name: 'libucx', version, reason });
    expect(staged.at(8).winner).toMatchObject({ protocol: 'put/staging', estimatedNs: undefined });
    const text = String(staged);
    expect(text).toContain(`engine: libucx ${version} (${reason})`);
    expect(text).toContain('through at most 6 fragments of 64 KiB in host memory');
    expect(text).toMatch(
      /not used: libucp put\/libucp: (UCX .* does not know memory type gaudi|.*gaudi.*|.*emulated.*)/,
    );
    expect(text).toContain('not used: gaudi_ipc: does not reach host memory of other processes');
    expect(String(told(apart, 'put', ['gaudi', 'gaudi']))).toContain('gaudi_ipc: excluded by UCX_TLS');
  });

  it('of the native engine names that engine', async () => {
    const context = await Context.create(fixture.quiet({ node: fixture.node() }));
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const memory = context.memMap({ allocate: 4096, memoryType: MemoryType.GAUDI });
    const told = endpoint.explain('put', new Uint8Array(8), endpoint.unpackRkey(context.packRkey(memory)));
    expect(told.engine).toEqual(context.engine);
    expect(String(told)).toContain(`engine: native ${context.engine.version} (UCX_ENGINE=native)`);
    await context.close();
  });
});
