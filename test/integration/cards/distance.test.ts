/**
 * The network device next to a card: distances of a fictitious /sys in estimates, explanations and shares of divided puts, gets, messages and
 * windows, and the
 * end of divided operations of which a part fails. The network is that of the suites; its devices have equal speeds.
 */

import { describe, expect, it } from 'vitest';
import { Status } from '../../../src/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { FakeMachine } from '../../fixtures/driver/fake-machine.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import {
  driveIdle,
  expectContents,
  expectSame,
  fill,
  keyFor,
  mappedOf,
  pattern,
  serving,
} from '../../fixtures/pair.ts';
import { type FakePair, type FakePairOptions, useFakePairs } from '../../fixtures/transports/fake-pair.ts';

/** Cards 0 and 1 are below this switch. */
const SWITCH = 'pci0000:16/0000:16:01.0/0000:17:00.0';
const BESIDE = { path: `${SWITCH}/0000:18:02.0/0000:1b:00.0`, numa: 0 };
const SAME_ROOT = { path: 'pci0000:16/0000:16:05.0', numa: 0 };
const OTHER_SOCKET = { path: 'pci0000:c0/0000:c0:01.0/0000:c1:00.0', numa: 1 };
const BYTES: number = 2 ** 20;

describe('distances', () => {
  const { pair } = useFakePairs();

  function pairAt(net0: typeof BESIDE, net1: typeof BESIDE, options: FakePairOptions = {}): FakePair {
    using machine = new FakeMachine();
    machine.addNetworks({ net0, net1 });
    const both = pair({ devices: 2, sysRoot: machine.sysRoot, ...options });
    // Read once, while the fictitious machine exists.
    const gaudi = mappedOf(both.one, 'gaudi', 8);
    const key = keyFor(both.ab, both.two, mappedOf(both.two, 'registered', 8));
    both.ab.explain('put', gaudi, key);
    both.ba.explain(
      'put',
      mappedOf(both.two, 'gaudi', 8),
      keyFor(both.ba, both.one, mappedOf(both.one, 'registered', 8)),
    );
    return both;
  }

  /** Shares of the devices in percent while `run` runs. */
  async function shares({ network }: FakePair, run: () => Promise<unknown>): Promise<[net0: number, net1: number]> {
    network.carried.clear();
    await run();
    const [first, second] = [network.carried.get('net0') ?? 0, network.carried.get('net1') ?? 0];
    const percent = (bytes: number): number => Math.round((100 * bytes) / (first + second));
    return [percent(first), percent(second)];
  }

  it('give the device below the switch of the card the larger share of puts and gets of device memory', async () => {
    const both = pairAt(SAME_ROOT, BESIDE);
    const { one, two, ab } = both;
    const [source, target] = [mappedOf(one, 'gaudi', BYTES), mappedOf(two, 'registered', BYTES)];
    await fill(one, source, pattern(BYTES, 1));
    const key = keyFor(ab, two, target);
    const { chosen, rejected } = ab.explain('put', source, key);
    expect(chosen).toEqual([
      expect.objectContaining({
        transport: 'fake_net/net1',
        note: 'PCI switch in common with device 0, divided at 16384 bytes and more: fake_net/net1 74 %, fake_net/net0 26 %',
      }),
    ]);
    expect(rejected).toContainEqual(expect.objectContaining({ transport: 'fake_net/net0', protocol: 'put/zcopy' }));
    const { losers } = ab.explain('put', source, key).at(4096);
    const far = losers.find(({ transport }) => transport === 'fake_net/net0');
    expect(far?.reason).toContain('(PCI root in common with device 0: 300 ns more, at most 3.50 GB/s)');
    expect(await shares(both, () => serving(both, () => ab.put(source, key)))).toEqual([26, 74]);
    expectSame(target.bytes!, pattern(BYTES, 1));
    await fill(one, source, new Uint8Array(BYTES));
    expect(await shares(both, () => serving(both, () => ab.get(source, key)))).toEqual([26, 74]);
    await expectContents(one, source, pattern(BYTES, 1));
  });

  it('do not affect host memory', async () => {
    const both = pairAt(SAME_ROOT, BESIDE);
    const target = mappedOf(both.two, 'registered', BYTES);
    const key = keyFor(both.ab, both.two, target);
    const put = (): Promise<unknown> => serving(both, () => both.ab.put(pattern(BYTES, 2), key));
    expect(await shares(both, put)).toEqual([50, 50]);
    expectSame(target.bytes!, pattern(BYTES, 2));
  });

  it('exclude a device at another socket', async () => {
    const both = pairAt(OTHER_SOCKET, BESIDE);
    const source = mappedOf(both.one, 'gaudi', BYTES);
    const key = keyFor(both.ab, both.two, mappedOf(both.two, 'registered', BYTES));
    expect(both.ab.explain('put', source, key).chosen[0]?.note).toBe('PCI switch in common with device 0');
    expect(await shares(both, () => serving(both, () => both.ab.put(source, key)))).toEqual([0, 100]);
  });

  it('apply to windows of device memory that no network reaches', async () => {
    const both = pairAt(SAME_ROOT, BESIDE, { hasDmabuf: false });
    const { one, two, ab } = both;
    const source = mappedOf(one, 'gaudi', BYTES);
    await fill(one, source, pattern(BYTES, 3));
    const target = new Uint8Array(BYTES);
    const sent = (): Promise<unknown> =>
      Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
    expect(await shares(both, sent)).toEqual([26, 74]);
    expectSame(target, pattern(BYTES, 3));
    const there = mappedOf(two, 'gaudi', BYTES);
    const key = keyFor(ab, two, there);
    expect(ab.explain('tag', source, key).at(BYTES).winner).toMatchObject({
      transport: 'fake_net/net1',
      note: expect.stringContaining('PCI switch in common with device 0'),
    });
    expect(ab.explain('put', source, key).chosen[0]?.note).toMatch(/put-pipeline over fake_net\/net1, PCI switch/);
    expect(await shares(both, () => serving(both, () => ab.put(source, key)))).toEqual([26, 74]);
    await expectContents(two, there, pattern(BYTES, 3));
  });
});

describe('a divided transfer', () => {
  const { pair } = useFakePairs();

  it('waits for a part whose device has no room, and flushes and fences wait too', async () => {
    const both = pair({ devices: 2 });
    const { one, two, ab, network } = both;
    const target = mappedOf(two, 'registered', BYTES);
    const key = keyFor(ab, two, target);
    const source = pattern(BYTES, 4);
    network.refusals.set('net1', Status.NO_RESOURCE);
    const put = ab.putNbx(source, 0, BYTES, key, 0);
    await driveIdle(both);
    expect(network.carried.get('net1')).toBeUndefined();
    const flush = ab.flushNbx();
    ab.fence();
    const later = ab.putNbx(pattern(64, 5), 0, 64, key, 0);
    await driveIdle(both);
    if (typeof put === 'number' || typeof flush === 'number' || typeof later === 'number') throw new Error('is done');
    expect([put.isCompleted, flush.isCompleted, later.isCompleted]).toEqual([false, false, false]);
    // The other part was sent.
    expect(put.cancel()).toBe(false);
    network.refusals.clear();
    await driveIdle(both);
    expect([put.status, flush.status, later.status]).toEqual([Status.OK, Status.OK, Status.OK]);
    expectSame(target.bytes!.subarray(64), source.subarray(64));
    expectSame(target.bytes!.subarray(0, 64), pattern(64, 5));
    for (const request of [put, flush, later]) request.free();
    expect(nativeWorker(one.worker).internalTransfers).toBe(0);
  });

  it('can be cancelled until a device has started it', async () => {
    const both = pair({ devices: 2 });
    const key = keyFor(both.ab, both.two, mappedOf(both.two, 'registered', BYTES));
    for (const device of ['net0', 'net1']) both.network.refusals.set(device, Status.NO_RESOURCE);
    const live = both.network.liveMemories;
    const put = both.ab.putNbx(new Uint8Array(BYTES), 0, BYTES, key, 0);
    if (typeof put === 'number') throw new Error('is done');
    expect(put.cancel()).toBe(true);
    expect(put.status).toBe(Status.CANCELED);
    put.free();
    both.network.refusals.clear();
    await driveIdle(both);
    expect(both.network.carried.size).toBe(0);
    expect(nativeWorker(both.one.worker).internalTransfers).toBe(0);
    expect(both.network.liveMemories).toBeLessThanOrEqual(live + 1);
  });

  it.each(['put', 'get'] as const)(
    'a %s of which a part fails ends once, with that failure, when no part is in flight',
    async (name) => {
      const both = pair({ devices: 2 });
      const { one, two, ab, network } = both;
      const key = keyFor(ab, two, mappedOf(two, 'registered', BYTES));
      network.failures.set('net1', Status.IO_ERROR);
      let ends = 0;
      const callback = (): void => {
        ends += 1;
      };
      const memory = new Uint8Array(BYTES);
      const params = { callback };
      const request =
        name === 'put' ? ab.putNbx(memory, 0, BYTES, key, 0, params) : ab.getNbx(memory, 0, BYTES, key, 0, params);
      await driveIdle(both);
      if (typeof request === 'number') throw new Error('is done');
      expect([request.status, ends]).toEqual([Status.IO_ERROR, 1]);
      request.free();
      expect(network.carried.get('net0')).toBeGreaterThan(0);
      expect(nativeWorker(one.worker).internalTransfers).toBe(0);
    },
  );

  it('that is a message in windows ends likewise, at both ends', async () => {
    const both = pair({ devices: 2, hasDmabuf: false });
    const { one, two, ab, network } = both;
    network.failures.set('net1', Status.IO_ERROR);
    const source = mappedOf(one, 'gaudi', BYTES);
    const sent = failureOf(() => ab.tagSend(source, { tag: 1 }));
    const received = failureOf(() => two.worker.tagRecv(new Uint8Array(BYTES), { tag: 1 }));
    expect(await sent).toMatchObject({ status: Status.IO_ERROR });
    expect(await received).toMatchObject({ status: Status.IO_ERROR });
    const staged = [one, two].map(({ worker }) => nativeWorker(worker).protocols.rendezvous.staging.inUse);
    expect(staged).toEqual([0, 0]);
  });

  it('ends with the connection, once, when nothing is in flight', async () => {
    const both = pair({ devices: 2 });
    const { one, two, ab, network } = both;
    const key = keyFor(ab, two, mappedOf(two, 'registered', BYTES));
    await Promise.all([ab.tagSend(new Uint8Array(1)), two.worker.tagRecv(new Uint8Array(1))]);
    network.refusals.set('net1', Status.NO_RESOURCE);
    let ends = 0;
    const put = ab.putNbx(new Uint8Array(BYTES), 0, BYTES, key, 0, { callback: () => (ends += 1) });
    await two.worker.close();
    await driveIdle({ one, two: one });
    if (typeof put === 'number') throw new Error('is done');
    expect([put.status, ends]).toEqual([Status.CONNECTION_RESET, 1]);
    expect(nativeWorker(one.worker).internalTransfers).toBe(0);
    put.free();
  });
});
