/** Settings that choose protocols: each has its effect, which requests, statistics and explanations show. */

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type StatsNode, Status } from '../../../src/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import {
  connectionKind,
  driveIdle,
  driveUntil,
  expectSame,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';
import { useFakePairs } from '../../fixtures/transports/fake-pair.ts';

const { pair, side } = usePairs();
const LONG = 3 * 2 ** 20;

type Ends = Pick<Pair, 'one' | 'two' | 'ab'>;

/** Sends a tagged message of host memory and checks it; returns the protocol. */
async function sent({ one, two, ab }: Ends, byteLength: number): Promise<string | undefined> {
  const source = pattern(byteLength, 1);
  const target = new Uint8Array(byteLength);
  const [result] = await serving({ one, two }, () =>
    Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]),
  );
  expectSame(target, source);
  return result.protocol;
}

/** A counter of all interfaces of a transport, by device. */
function counted(root: StatsNode, name: string, transport: string): Record<string, number> {
  const found: Record<string, number> = {};
  const walk = (node: StatsNode): void => {
    const value = node.counters[name];
    if (value !== undefined && node.name.startsWith(transport)) found[node.name] = (found[node.name] ?? 0) + value;
    for (const child of node.children) walk(child);
  };
  walk(root);
  return found;
}

describe('UCX_RNDV_SCHEME', () => {
  it.each([
    ['auto', 'tag/rndv/get'],
    ['get_zcopy', 'tag/rndv/get'],
    ['put_zcopy', 'tag/rndv/put'],
    ['put_ppln', 'tag/rndv/put-pipeline'],
    ['am', 'tag/rndv/am'],
  ])('%s moves the bytes by %s', async (scheme, protocol) => {
    const both = await pair(connectionKind('tcp'), { UCX_RNDV_SCHEME: scheme });
    expect(await sent(both, LONG)).toBe(protocol);
  });

  it.each(['get_ppln', 'rkey_ptr'])('%s is refused', async (scheme) => {
    const error = await failureOf(() => pair(connectionKind('posix'), { UCX_RNDV_SCHEME: scheme }));
    expect(error).toMatchObject({
      code: 'ERR_CONFIG_VALUE',
      status: Status.INVALID_PARAM,
      details: { variable: 'UCX_RNDV_SCHEME', value: scheme },
    });
  });
});

describe('thresholds', () => {
  it.each([
    ['1k', 'rndv'],
    ['intra:1k', 'rndv'],
    ['inter:1k', 'eager'],
    ['intra:1k,inter:inf', 'rndv'],
    ['8k,intra:2k', 'eager'],
  ])('UCX_RNDV_THRESH=%s: 1 KiB to a peer on this node goes by %s', async (UCX_RNDV_THRESH, protocol) => {
    for (const kind of ['posix', 'tcp']) {
      expect(await sent(await pair(connectionKind(kind), { UCX_RNDV_THRESH }), 1024)).toContain(protocol);
    }
  });

  it('UCX_RNDV_THRESH=auto: long tagged messages are read out of mapped memory that the processor of the peer reaches', async () => {
    const limit = 32_768;
    const both = await pair(connectionKind('posix'));
    const key = keyFor(both.ab, both.two, both.two.context.memMap({ allocate: 4 * limit }));
    const { context } = both.one;
    for (const byteLength of [limit - 1, limit]) {
      const shared = context.memMap({ allocate: byteLength });
      const unread = context.memMap({ allocate: byteLength, protection: ['local-read', 'local-write'] });
      const read = byteLength < limit ? 'tag/eager/short' : 'tag/rndv/get';
      const memories = [
        [shared, read],
        [shared.bytes!, read],
        [unread, 'tag/eager/short'],
        [new Uint8Array(byteLength), 'tag/eager/short'],
      ] as const;
      for (const [index, [memory, protocol]] of memories.entries()) {
        const bytes = pattern(byteLength, index);
        (memory instanceof Uint8Array ? memory : memory.bytes!).set(bytes);
        const target = new Uint8Array(byteLength);
        const [result] = await serving(both, () =>
          Promise.all([both.ab.tagSend(memory, { tag: 1 }), both.two.worker.tagRecv(target, { tag: 1 })]),
        );
        expectSame(target, bytes);
        expect(result.protocol).toBe(protocol);
        const explained = both.ab.explain('tag', memory, key).chosen.find(({ bytesMax }) => bytesMax >= byteLength);
        expect(explained!.protocol).toBe(protocol);
      }
    }
    // What the application says counts for all memory.
    const told = await pair(connectionKind('posix'), { UCX_RNDV_THRESH: '64k' });
    const mapped = told.one.context.memMap({ allocate: limit });
    const [result] = await serving(told, () =>
      Promise.all([told.ab.tagSend(mapped, { tag: 1 }), told.two.worker.tagRecv(new Uint8Array(limit), { tag: 1 })]),
    );
    expect(result.protocol).toBe('tag/eager/short');
  });

  it('UCX_BCOPY_THRESH: messages of this length are copied, shorter ones are sent inline', async () => {
    const isCopied = async (env: Readonly<Record<string, string>>): Promise<boolean[]> => {
      const { one, two, ab } = await pair(connectionKind('posix'), env);
      const copied = (): number => Object.values(counted(one.worker.stats(), 'bytes_bcopy', 'posix'))[0]!;
      await serving({ one, two }, () =>
        Promise.all([ab.tagSend(Uint8Array.of(1), { tag: 1 }), two.worker.tagRecv(new Uint8Array(1), { tag: 1 })]),
      );
      return [15, 16].map((byteLength) => {
        const before = copied();
        const status = ab.tagSendNbx(new Uint8Array(byteLength), 0, byteLength, 2);
        expect(status).toBe(Status.OK);
        return copied() > before;
      });
    };
    expect(await isCopied({})).toEqual([false, false]);
    expect(await isCopied({ UCX_BCOPY_THRESH: '16' })).toEqual([false, true]);
    expect(await isCopied({ UCX_BCOPY_THRESH: '0' })).toEqual([true, true]);
  });

  it('UCX_ZCOPY_THRESH: puts of this length use zero copy, shorter ones do not', async () => {
    const protocolsOf = async (env: Readonly<Record<string, string>>): Promise<(string | undefined)[]> => {
      const both = await pair(connectionKind('tcp'), env);
      const key = keyFor(both.ab, both.two, mappedOf(both.two, 'registered', 4096));
      const protocols: (string | undefined)[] = [];
      for (const byteLength of [99, 100, 4096]) {
        const { protocol } = await serving(both, () => both.ab.put(new Uint8Array(byteLength), key));
        protocols.push(protocol);
      }
      return protocols;
    };
    expect(await protocolsOf({ UCX_ZCOPY_THRESH: '100' })).toEqual(['put/short', 'put/zcopy', 'put/zcopy']);
    expect(await protocolsOf({ UCX_ZCOPY_THRESH: '0' })).toEqual(['put/zcopy', 'put/zcopy', 'put/zcopy']);
    expect((await protocolsOf({ UCX_ZCOPY_THRESH: 'inf' })).slice(0, 2)).toEqual(['put/short', 'put/short']);
  });
});

describe('rails', () => {
  const { pair: fakePair } = useFakePairs();
  /** The number of parts of a put, a get and a long message, if both ends have two devices. */
  async function parts(env: Readonly<Record<string, string>>): Promise<[put: number, get: number, message: number]> {
    const both = fakePair({ devices: 2, env });
    const { network, ab, two } = both;
    const counts = async (run: () => Promise<unknown>): Promise<number> => {
      const before = network.puts + network.gets;
      await serving(both, run);
      return network.puts + network.gets - before;
    };
    const remote = mappedOf(two, 'registered', LONG);
    const key = keyFor(ab, two, remote);
    const source = pattern(LONG, 3);
    const put = await counts(() => ab.put(source, key));
    await serving(both, () => ab.flush());
    expectSame(remote.bytes!, source);
    const copy = new Uint8Array(LONG);
    const get = await counts(() => ab.get(copy, key));
    expectSame(copy, source);
    const message = await counts(() => sent(both, LONG));
    return [put, get, message];
  }

  it('MAX_RMA_RAILS divides puts and gets, MAX_RNDV_RAILS messages, within MIN_RMA_CHUNK_SIZE', async () => {
    expect(await parts({})).toEqual([2, 2, 2]);
    expect(await parts({ UCX_MAX_RMA_RAILS: '1' })).toEqual([1, 1, 2]);
    expect(await parts({ UCX_MAX_RMA_RAILS: '2', UCX_MAX_RNDV_RAILS: '1' })).toEqual([2, 2, 1]);
    expect(await parts({ UCX_MAX_RMA_RAILS: '2', UCX_MIN_RMA_CHUNK_SIZE: '2m' })).toEqual([1, 1, 2]);
  });

  it('SINGLE_NET_DEVICE restricts each protocol to one device', async () => {
    expect(await parts({ UCX_MAX_RMA_RAILS: '2', UCX_SINGLE_NET_DEVICE: 'y' })).toEqual([1, 1, 1]);
  });

  it.each([1, 64])('divide a list of %i blocks, and its notification comes behind all of them', async (count) => {
    const both = fakePair({ devices: 2, env: { UCX_MAX_RMA_RAILS: '2' } });
    const { network, ab, two } = both;
    const remote = mappedOf(two, 'registered', 2 * LONG);
    const source = pattern(LONG, 6);
    const byteLength = LONG / count;
    let isThere = false;
    two.worker.setNotificationHandler(() => {
      isThere = true;
      for (let i = 0; i < count; i++) {
        expectSame(
          remote.bytes!.subarray(2 * i * byteLength, (2 * i + 1) * byteLength),
          source.subarray(i * byteLength, (i + 1) * byteLength),
        );
      }
    });
    const rkey = keyFor(ab, two, remote);
    const entry = { local: source, rkey, byteLength, count, remoteStride: 2 * byteLength };
    await serving(both, async () => {
      await ab.putList([entry], { notify: Uint8Array.of(1) });
      await ab.putList([entry]);
    });
    await driveUntil(both, () => isThere);
    expect([...network.carried.values()].map((bytes) => bytes / 2 / LONG)).toEqual([0.5, 0.5]);
    const copy = new Uint8Array(LONG);
    const prepared = ab.prepareList('get', [{ ...entry, local: both.one.context.memMap({ buffer: copy }) }]);
    expect(prepared).toMatchObject({ blockCount: count, byteLength: LONG });
    await serving(both, () => ab.getList(prepared));
    expectSame(copy, source);
  });

  it('a put of which a part fails ends once, with the failure', async () => {
    const { ab, two, network, one } = fakePair({ devices: 2, env: { UCX_MAX_RMA_RAILS: '2' } });
    const remote = mappedOf(two, 'registered', LONG);
    const key = keyFor(ab, two, remote);
    network.isHeld = true;
    network.credit = 1;
    const put = ab.get(new Uint8Array(LONG), key);
    const outcome = failureOf(() => put);
    await driveIdle({ one, two });
    two.context.memUnmap(remote);
    network.isHeld = false;
    const error = await serving({ one, two }, () => outcome);
    expect(error).toMatchObject({ status: Status.INVALID_ADDR });
  });
});

describe('UCX_POSIX_DIR', () => {
  const folders: string[] = [];
  const folder = (): string => {
    const made = mkdtempSync('/dev/shm/gaudi-ucx-settings-');
    folders.push(made);
    return made;
  };
  afterAll(() => {
    for (const made of folders) rmSync(made, { recursive: true });
  });
  const filesIn = (path: string): string[] => readdirSync(path).filter((name) => name.startsWith('gaudi_ucx.'));
  const own = (): string[] => filesIn('/dev/shm').filter((name) => name.split('.')[2] === String(process.pid));

  it('contains all files: rings, allocated memory, keys', async () => {
    const UCX_POSIX_DIR = folder();
    const both = await pair(connectionKind('posix'), { UCX_POSIX_DIR, UCX_POSIX_USE_PROC_LINK: 'n' });
    expect(await sent(both, 100)).toContain('eager');
    const remote = mappedOf(both.two, 'allocated', 4096);
    const key = keyFor(both.ab, both.two, remote);
    await serving(both, () => both.ab.put(pattern(4096, 5), key));
    await serving(both, () => both.ab.flush());
    expectSame(remote.bytes!, pattern(4096, 5));
    expect(filesIn(UCX_POSIX_DIR).length).toBeGreaterThanOrEqual(4);
    expect(own()).toEqual([]);
    for (const { context } of [both.one, both.two]) await context.close();
    expect(filesIn(UCX_POSIX_DIR)).toEqual([]);
  });

  it('must be the same at both ends: otherwise posix does not reach the peer, and reports it', async () => {
    const both = await pair(connectionKind('posix'), { UCX_POSIX_DIR: folder(), UCX_TLS: 'posix,tcp,self' });
    const third = await side(both.node, 0, { UCX_TLS: 'posix,tcp,self', UCX_POSIX_DIR: folder() });
    const away = third.worker.endpoint(both.two.worker.address());
    expect(both.ab.query().transports).toContain('posix/memory');
    expect(away.query().transports.join()).toMatch(/^tcp/);
    const key = keyFor(away, both.two, mappedOf(both.two, 'registered', 8));
    expect(away.explain('put', new Uint8Array(8), key).toString()).toMatch(/posix\/memory.*UCX_POSIX_DIR/);
  });

  it.each([
    ['relative/path', { code: 'ERR_CONFIG_VALUE', details: { variable: 'UCX_POSIX_DIR', value: 'relative/path' } }],
    ['/dev/shm/there/is/none', { message: expect.stringContaining('no shared memory in /dev/shm/there/is/none') }],
  ])('%s is refused', async (UCX_POSIX_DIR, expected) => {
    const error = await failureOf(() => pair(connectionKind('posix'), { UCX_TLS: 'posix', UCX_POSIX_DIR }));
    expect(error).toMatchObject(expected);
  });
});
