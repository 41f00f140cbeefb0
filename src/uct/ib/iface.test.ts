/** The interface of ib: what happens to peers, connections and credits. Operations are tested by the contract suites. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CountingCompletion, keyOf, type MdUnderTest, ownBytes } from '../../../test/contract/uct/uct-fixture.ts';
import { openIb } from '../../../test/contract/uct/uct-implementations.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { progressUntil } from '../../../test/fixtures/progress-until.ts';
import { createTestLog, type TestLog } from '../../../test/fixtures/test-log.ts';
import { WordOperation } from '../../api/operation/word-operation.ts';
import { RdmaContext } from '../../emulator/rdma/rdma-context.ts';
import { Errno, SyscallError } from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { AsyncEventType, LinkLayer, QpState } from '../../verbs/abi.ts';
import { AtomicOperation, type Iface, type UctEndpoint } from '../api/iface.ts';
import { ibUnreachableReason, packIbAddress, unpackIbAddress } from './connection/address.ts';
import { IbEndpoint } from './endpoint.ts';
import { IbIface } from './iface.ts';

describe('IbIface', () => {
  expectNoLeaks();
  let log: TestLog;
  let under: MdUnderTest;
  let near: Iface;
  let far: Iface;

  beforeEach(() => {
    log = createTestLog();
    open();
  });
  afterEach(() => {
    close();
    log.expectQuiet();
  });

  function open(config: Readonly<Record<string, string>> = {}): void {
    under = openIb(log, config);
    [near, far] = [under.md.openIface(under.md.resources[0]!), under.md.openIface(under.md.resources[1]!)];
  }

  function close(): void {
    near.close();
    far.close();
    under.md.close();
    under.close();
  }

  const until = (isDone: () => boolean): Promise<void> => progressUntil([near, far], isDone);

  function ibIface(iface: Iface): IbIface {
    if (iface instanceof IbIface) return iface;
    return expect.fail('an interface of ib');
  }

  const send = (endpoint: UctEndpoint): Status => endpoint.amShort(1, new Int32Array(2), 2, undefined, 0, 0);

  it('sends as many messages as it has credits, and gets them back', async () => {
    close();
    open({ RC_FC_WND_SIZE: '4' });
    let received = 0;
    far.setAmHandler(() => {
      received += 1;
    });
    const endpoint = near.connect(far.address);
    await until(() => send(endpoint) === Status.OK);
    for (let i = 0; i < 3; i++) expect(send(endpoint)).toBe(Status.OK);
    expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    await until(() => received === 4);
    expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    near.progress();
    expect(send(endpoint)).toBe(Status.OK);
    endpoint.close();
  });

  it('tells that a flush is in progress while its send queue is full', async () => {
    close();
    open({ RC_TX_CQ_MODERATION: '7' });
    const mem = under.md.memReg(ownBytes(64));
    const rkey = keyOf(under.md, mem);
    const endpoint = near.connect(far.address);
    const put = (): Status => endpoint.putShort(new Uint8Array(8), 0, 8, 0, rkey);
    await until(() => put() === Status.OK);
    while (put() === Status.OK);
    expect(endpoint.flush(undefined)).toBe(Status.INPROGRESS);
    const completion = new CountingCompletion();
    expect(endpoint.flush(completion)).toBe(Status.NO_RESOURCE);
    await until(() => endpoint.flush(undefined) === Status.OK);
    expect(completion.calls).toBe(0);
    under.md.memDereg(mem);
    endpoint.close();
  });

  it('probes a peer that is idle, and reports once that it is gone', async () => {
    const failed: Status[] = [];
    near.setErrorHandler!((_endpoint, status) => failed.push(status));
    const endpoint = near.connect(far.address);
    await until(() => send(endpoint) === Status.OK);
    expect(endpoint.check()).toBe(Status.OK);
    await until(() => endpoint instanceof IbEndpoint && !endpoint.connection.isBusy);
    far.close();
    expect(endpoint.check()).toBe(Status.CONNECTION_RESET);
    await until(() => failed.length > 0);
    near.progress();
    expect(failed).toEqual([Status.CONNECTION_RESET]);
    expect(send(endpoint)).toBe(Status.CONNECTION_RESET);
    expect(near.errorOf(Status.CONNECTION_RESET)?.message).toMatch(/^rc\/hca0:1: the connection to /);
    endpoint.close();
  });

  it('uses nothing of the device after its close, though its endpoints are used', async () => {
    const endpoint = near.connect(far.address);
    await until(() => send(endpoint) === Status.OK);
    if (!(endpoint instanceof IbEndpoint)) return expect.fail('an endpoint of ib');
    const rkey = keyOf(under.md, under.md.memReg(ownBytes(64)));
    near.close();
    // Queues that are destroyed: a library would use memory that is free.
    const { sendCq, receiveCq } = ibIface(near).shared;
    const uses = [sendCq, receiveCq].map((cq) => vi.spyOn(cq, 'poll'));
    const posts = vi.spyOn(endpoint.connection.qp, 'postSend');
    const call = WordOperation.of(AtomicOperation.ADD, 8, 1n, 0n);
    const statuses = [
      send(endpoint),
      endpoint.putShort(new Uint8Array(8), 0, 8, 0, rkey),
      endpoint.getShort(new Uint8Array(8), 0, 8, 0, rkey, new CountingCompletion()),
      endpoint.atomic(call, 0, rkey, new CountingCompletion()),
      endpoint.flush(undefined),
      endpoint.check(),
    ];
    expect(new Set(statuses)).toEqual(new Set([Status.CANCELED]));
    endpoint.close();
    expect(near.progress()).toBe(0);
    for (const use of [...uses, posts]) expect(use).not.toHaveBeenCalled();
  });

  it('does not wait for a peer that has closed before', async () => {
    const [there, back] = [near.connect(far.address), far.connect(near.address)];
    await until(() => send(there) === Status.OK && send(back) === Status.OK);
    // The wait has an end only where time passes.
    const stopped = vi.spyOn(systemClock, 'nowNs').mockReturnValue(systemClock.nowNs());
    near.close();
    far.close();
    stopped.mockRestore();
    expect([near.progress(), far.progress()]).toEqual([0, 0]);
  });

  it('gives up a peer that does not answer', async () => {
    close();
    open({ RC_CONNECT_TIMEOUT: '30ms' });
    const failed: Status[] = [];
    near.setErrorHandler!((_endpoint, status) => failed.push(status));
    // A peer that lies about its queue pair.
    const address = packIbAddress({ ...unpackIbAddress(far.address)!, qpNum: 0xffffff });
    const endpoint = near.connect(address);
    expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    await until(() => failed.length > 0);
    expect(failed).toEqual([Status.ENDPOINT_TIMEOUT]);
    endpoint.close();
  });

  it('gives up a peer that lies about the address of its port', async () => {
    close();
    open({ RC_CONNECT_TIMEOUT: '30ms' });
    const failed: Status[] = [];
    near.setErrorHandler!((_endpoint, status) => failed.push(status));
    const gid = new Uint8Array(16).fill(0x42);
    const endpoint = near.connect(packIbAddress({ ...unpackIbAddress(far.address)!, gid }));
    await until(() => failed.length > 0);
    expect([failed, send(endpoint)]).toEqual([[Status.ENDPOINT_TIMEOUT], Status.ENDPOINT_TIMEOUT]);
    endpoint.close();
  });

  it('connects to a peer of another MTU with the smaller one', async () => {
    const peer = unpackIbAddress(far.address)!;
    expect(peer.mtu).toBeGreaterThan(2);
    const modified: (number | undefined)[] = [];
    for (const iface of [near, far]) {
      const { pd } = ibIface(iface).port.device;
      const createQp = pd.createQp.bind(pd);
      vi.spyOn(pd, 'createQp').mockImplementation((init) => {
        const qp = createQp(init);
        const modify = qp.modify.bind(qp);
        vi.spyOn(qp, 'modify').mockImplementation((attributes) => {
          if (attributes.state === QpState.RTR) modified.push(attributes.pathMtu);
          modify(attributes);
        });
        return qp;
      });
    }
    const arrived: number[] = [];
    far.setAmHandler((_id, { byteLength }) => arrived.push(byteLength));
    const endpoint = near.connect(packIbAddress({ ...peer, mtu: 2 }));
    const bytes = new Uint8Array(5000);
    await until(() => endpoint.amShort(1, new Int32Array(0), 0, bytes, 0, bytes.byteLength) === Status.OK);
    await until(() => arrived.length > 0);
    expect([modified, arrived]).toEqual([[2, 2], [5000]]);
    endpoint.close();
    vi.restoreAllMocks();
  });

  it.each(['IB_PATH_MTU', 'RC_PATH_MTU', 'RC_VERBS_PATH_MTU'])('sends packets of at most %s', async (name) => {
    close();
    open({ [name]: '512' });
    expect(unpackIbAddress(far.address)!.mtu).toBe(2);
    const endpoint = near.connect(far.address);
    await until(() => send(endpoint) === Status.OK);
    if (!(endpoint instanceof IbEndpoint)) return expect.fail('an endpoint of ib');
    expect(endpoint.connection.qp).toMatchObject({ mtu: 512 });
    endpoint.close();
  });

  it('fails its connections when the device reports that it has failed, even if it says nothing else', async () => {
    log.allow(/^hca0: local catastrophic error$/);
    const failed: Status[] = [];
    near.setErrorHandler!((_endpoint, status) => failed.push(status));
    const endpoint = near.connect(far.address);
    await until(() => send(endpoint) === Status.OK);
    const { context } = ibIface(near).port.device;
    if (!(context instanceof RdmaContext && endpoint instanceof IbEndpoint)) return expect.fail('an emulated device');
    vi.spyOn(endpoint.connection.qp, 'modify').mockImplementation(() => {
      throw new SyscallError('ibv_modify_qp', Errno.EIO, 'a device that has failed');
    });
    context.onEvent({ type: AsyncEventType.PORT_ACTIVE, element: 1 });
    context.onEvent({ type: AsyncEventType.DEVICE_FATAL, element: 0 });
    await until(() => failed.length > 0);
    expect([failed, send(endpoint)]).toEqual([[Status.CONNECTION_RESET], Status.CONNECTION_RESET]);
    endpoint.close();
  });

  it('tells of a port that is down', async () => {
    log.allow(/^hca0:1: port error$/);
    const { context } = ibIface(near).port.device;
    if (!(context instanceof RdmaContext)) return expect.fail('an emulated device');
    context.onEvent({ type: AsyncEventType.PORT_ERR, element: 1 });
    const reports = (): unknown[] => log.records.filter(({ message }) => message === 'hca0:1: port error');
    await until(() => reports().length > 0);
    expect(reports()).toHaveLength(1);
  });

  it.each(['request', 'answer'])('survives that there is no path for the %s to connect', async (message) => {
    close();
    open({ RC_CONNECT_TIMEOUT: '100ms' });
    const { pd } = ibIface(message === 'request' ? near : far).port.device;
    const createAh = vi.spyOn(pd, 'createAh').mockImplementation(() => {
      throw new SyscallError('ibv_create_ah', Errno.ETIMEDOUT, 'no such GID');
    });
    const failed: Status[] = [];
    near.setErrorHandler!((_endpoint, status) => failed.push(status));
    const endpoint = near.connect(far.address);
    await until(() => failed.length > 0);
    // The request is repeated until the time is over.
    expect([failed, createAh.mock.calls.length > 1]).toEqual([[Status.ENDPOINT_TIMEOUT], true]);
    endpoint.close();
  });

  it('says why a peer cannot be reached', () => {
    const peer = unpackIbAddress(far.address)!;
    expect(near.unreachableReason(packIbAddress({ ...peer, segBytes: 4096 }))).toMatch(/UCX_IB_SEG_SIZE/);
    expect(near.unreachableReason(packIbAddress({ ...peer, linkLayer: 1 }))).toMatch(/link layer/);
    expect(near.unreachableReason(far.address)).toBeUndefined();
    // The first half of a GID of InfiniBand is that of its subnet.
    const own = { ...peer, linkLayer: LinkLayer.INFINIBAND };
    const gid = own.gid.slice();
    gid[15]! ^= 1;
    expect(ibUnreachableReason(own, { ...own, gid })).toBeUndefined();
    gid[7]! ^= 1;
    expect(ibUnreachableReason(own, { ...own, gid })).toMatch(/another InfiniBand subnet/);
    expect(near).toBeInstanceOf(IbIface);
  });
});
