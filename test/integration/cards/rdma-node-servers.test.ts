/** RDMA devices of the clients of node servers: they access the HBM of cards of the server, until it is withdrawn or the server ends. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { connectEmulatedNode, type RemoteNode } from '../../../src/emulator/index.ts';
import type { RdmaContext } from '../../../src/emulator/rdma/rdma-context.ts';
import { connectToServer } from '../../../src/emulator/server/connection.ts';
import { ATTACHMENT_PAGE_BYTES, ATTACHMENTS_MAX, MOVING, WITHDRAWN } from '../../../src/emulator/server/dmabufs.ts';
import { Context, type Endpoint, type MemoryHandle, MemoryType, type Worker } from '../../../src/index.ts';
import { close, Errno, ftruncate, mapAnonymous, mapFile, openFileDescriptors, pipe2 } from '../../../src/sys/index.ts';
import { HL_INFO_HW_IP_INFO, HL_INFO_OP } from '../../../src/uapi/index.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { AccessFlag } from '../../../src/verbs/abi.ts';
import { DriverClient } from '../../contract/driver/driver-client.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { fillPattern } from '../../fixtures/pattern.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';

const TLS = 'rc,gaudi_cpy,self';
const BYTES = 2 ** 20;
const QUICK = { UCX_RC_TIMEOUT: '10ms', UCX_RC_RETRY_COUNT: '3', UCX_LOG_LEVEL: 'fatal' };
const READ_WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ;
/** For the server, which shares the processors with other tests. */
const RELEASE_MS = 10_000;

const servers: TestNodeServer[] = [];
const nodes: RemoteNode[] = [];

async function startServer(nics = 1): Promise<TestNodeServer> {
  const server = await TestNodeServer.start({ cards: 2, nics });
  servers.push(server);
  return server;
}

function connect(server: TestNodeServer): RemoteNode {
  const node = connectEmulatedNode(server.socketPath);
  nodes.push(node);
  return node;
}

/** Checks for leaks, after the connections and servers of a test have ended. */
function useServers(): void {
  expectNoLeaks();
  afterEach(async () => {
    for (const node of nodes.splice(0)) node.close();
    for (const server of servers.splice(0)) await server.stop();
  });
}

/** A context with card 0 of a server, HBM of it, and an endpoint to a peer. */
interface Stack {
  readonly context: Context;
  readonly worker: Worker;
  readonly endpoint: Endpoint;
  readonly hbm: MemoryHandle;
}

async function open(node: RemoteNode, peer: UcpPeer): Promise<Stack> {
  const table = JSON.stringify([{ index: 0, bus_id: node.cards()[0]!.busId }]);
  const env = { GAUDI_MAPPING_TABLE: table, UCX_TLS: TLS, ...QUICK };
  const context = await Context.create({ node, env, configDirectories: [] });
  const worker = context.worker();
  const endpoint = worker.endpoint(peer.address, { errorHandling: 'peer' });
  return { context, worker, endpoint, hbm: context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI }) };
}

/** Moves HBM to HBM of the peer and back, and compares. */
async function roundTrip({ context, worker, endpoint, hbm }: Stack, peer: UcpPeer, seed: number): Promise<void> {
  const own = worker.endpoint(worker.address());
  const ownKey = own.unpackRkey(context.packRkey(hbm));
  const rkey = endpoint.unpackRkey(peer.keys['gaudi']!);
  const bytes = new Uint8Array(BYTES);
  fillPattern(bytes, seed);
  await own.put(bytes, ownKey);
  expect(endpoint.explain('put', hbm, rkey).at(BYTES).winner).toMatchObject({
    protocol: 'put/zcopy',
    transport: 'rc/hca0:1',
    note: expect.stringContaining('dma-buf'),
  });
  await endpoint.put(hbm, rkey);
  await endpoint.flush();
  await own.put(new Uint8Array(BYTES), ownKey);
  await endpoint.get(hbm, rkey);
  const back = new Uint8Array(BYTES);
  await own.get(back, ownKey);
  expect(Buffer.compare(back, bytes)).toBe(0);
  ownKey.release();
  rkey.release();
}

/** The statuses of gets that are in flight when `fail` runs. */
async function statusesOf(
  { endpoint, hbm }: Stack,
  peer: UcpPeer,
  fail: () => Promise<void> | void,
): Promise<readonly Status[]> {
  const rkey = endpoint.unpackRkey(peer.keys['gaudi']!);
  const flying = Array.from({ length: 20 }, () =>
    endpoint.get(hbm, rkey).then(
      () => Status.OK,
      (error: { readonly status: Status }) => error.status,
    ),
  );
  await fail();
  const statuses = await Promise.all(flying);
  rkey.release();
  return statuses;
}

describe('RDMA over node servers', { timeout: 60_000 }, () => {
  useServers();
  let peer: UcpPeer | undefined;
  let stack: Stack | undefined;
  afterEach(async () => {
    await stack?.context.close();
    await peer?.kill();
    stack = undefined;
    peer = undefined;
  });

  it('between two processes of one node server', async () => {
    const server = await startServer();
    peer = await UcpPeer.start(server.socketPath, 1, TLS, QUICK);
    stack = await open(connect(server), peer);
    await peer.ask({ do: 'serve' });
    await roundTrip(stack, peer, 1);
    expect(server.errors).toBe('');
  });

  it('between two node servers', async () => {
    const [near, far] = [await startServer(), await startServer()];
    peer = await UcpPeer.start(far.socketPath, 0, TLS, QUICK);
    stack = await open(connect(near), peer);
    await peer.ask({ do: 'serve' });
    await roundTrip(stack, peer, 2);
    expect([near.errors, far.errors]).toEqual(['', '']);
  });

  it('a card that is unplugged loses its memory: operations in flight end, and none begins', async () => {
    const server = await startServer();
    const node = connect(server);
    peer = await UcpPeer.start(server.socketPath, 1, TLS, QUICK);
    stack = await open(node, peer);
    await peer.ask({ do: 'serve' });
    await roundTrip(stack, peer, 3);
    const statuses = await statusesOf(stack, peer, () => node.inject(1, { kind: 'unplug' }));
    expect(statuses.at(-1)).not.toBe(Status.OK);
    expect(await statusesOf(stack, peer, () => {})).not.toContain(Status.OK);
    expect(server.exited).toBe(false);
  });

  it('operations end with a status when the server of the peer is killed', async () => {
    const [near, far] = [await startServer(), await startServer()];
    peer = await UcpPeer.start(far.socketPath, 0, TLS, QUICK);
    stack = await open(connect(near), peer);
    await peer.ask({ do: 'serve' });
    await roundTrip(stack, peer, 4);
    const statuses = await statusesOf(stack, peer, () => far.kill());
    expect(statuses.at(-1)).not.toBe(Status.OK);
  });

  it('operations end with a status when the own server is killed', async () => {
    const [near, far] = [await startServer(), await startServer()];
    peer = await UcpPeer.start(far.socketPath, 0, TLS, QUICK);
    stack = await open(connect(near), peer);
    await peer.ask({ do: 'serve' });
    await roundTrip(stack, peer, 5);
    const statuses = await statusesOf(stack, peer, () => near.kill());
    expect(statuses.at(-1)).not.toBe(Status.OK);
  });

  it('a client that is killed leaves nothing', async () => {
    const server = await startServer();
    const node = connect(server);
    peer = await UcpPeer.start(server.socketPath, 1, TLS, QUICK);
    stack = await open(node, peer);
    await peer.ask({ do: 'serve' });
    await roundTrip(stack, peer, 6);
    const before = node.status().dmabufs;
    const statuses = await statusesOf(stack, peer, () => peer!.kill());
    expect(statuses.at(-1)).not.toBe(Status.OK);
    await vi.waitFor(() => expect(node.status().dmabufs).toBeLessThan(before), { timeout: RELEASE_MS });
    expect(node.status().cards[1]).toMatchObject({ owner: null, dramUsedBytes: 0, status: 'operational' });
  });
});

describe('memory of a server behind a dma-buf', { timeout: 60_000 }, () => {
  useServers();
  let server: TestNodeServer;
  let node: RemoteNode;
  let card: DriverClient;
  let dmabuf: number;
  beforeEach(async () => {
    server = await startServer();
    node = connect(server);
    card = new DriverClient(node.open(0));
    const { dram_page_size } = card.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).out;
    const device = card.mapDevice(card.allocate(dram_page_size).out).out;
    dmabuf = card.exportDmabuf(device, BYTES).out;
  });
  afterEach(() => {
    close(dmabuf);
    card.close();
  });

  it('is registered within its bounds only', () => {
    const context = node.verbs!.open('hca0');
    const pd = context.allocPd();
    const [pipe, end] = pipe2();
    const closed = openFileDescriptors() + 1000;
    for (const [fd, offset, byteLength, errno] of [
      [dmabuf, 4096, BYTES, Errno.EINVAL],
      [dmabuf, 0, BYTES + 1, Errno.EINVAL],
      [dmabuf, -4096, 4096, Errno.EINVAL],
      [dmabuf, 0, 0, Errno.EINVAL],
      [dmabuf, 2 ** 46, 4096, Errno.EINVAL],
      [dmabuf, 0, 2 ** 46, Errno.EINVAL],
      [pipe, 0, 4096, Errno.EINVAL],
      [0, 0, 4096, Errno.EINVAL],
      [closed, 0, 4096, Errno.EBADF],
      [-1, 0, 4096, Errno.EBADF],
      [2 ** 32 + dmabuf, 0, 4096, Errno.EBADF],
      [Number.NaN, 0, 4096, Errno.EBADF],
    ] as const) {
      expect(() => pd.regDmabufMr(fd, offset, byteLength, 0, READ_WRITE)).toThrow(expect.objectContaining({ errno }));
    }
    const region = pd.regDmabufMr(dmabuf, BYTES - 8192, 8192, 0, READ_WRITE);
    expect(node.status().dmabufs).toBe(1);
    region.close();
    context.close();
    for (const fd of [pipe, end]) close(fd);
    expect(server.errors).toBe('');
  });

  it('is read and written through pages that need not begin with the range', () => {
    const { dmabufs } = attachmentsOf(node);
    const host = mapAnonymous(65_536);
    fillPattern(host.u8, 8);
    const whole = dmabufs.attach(dmabuf, 0, BYTES);
    const part = dmabufs.attach(dmabuf, 5000, 30_000);
    expect(part.write(0, host.address, 30_000)).toBe(true);
    expect(whole.read(5000, host.address + 32_768, 30_000)).toBe(true);
    expect(Buffer.compare(host.u8.subarray(32_768, 62_768), host.u8.subarray(0, 30_000))).toBe(0);
    part.release();
    expect(whole.read(BYTES - 8, host.address, 8)).toBe(true);
    whole.release();
    host.close();
  });

  it.each([
    ['is closed', () => card.close(), Errno.EINVAL],
    ['is reset', () => node.inject(0, { kind: 'hard-reset' }), Errno.ENODEV],
    ['is unplugged', () => node.inject(0, { kind: 'unplug' }), Errno.ENODEV],
  ])('is withdrawn when its card %s, and the dma-buf is released with the last region', (_how, withdraw, errno) => {
    const { dmabufs } = attachmentsOf(node);
    const host = mapAnonymous(4096);
    const memory = dmabufs.attach(dmabuf, 0, 4096);
    expect(memory.write(0, host.address, 4096)).toBe(true);
    withdraw();
    expect([memory.read(0, host.address, 8), memory.write(0, host.address, 8)]).toEqual([false, false]);
    expect(() => dmabufs.attach(dmabuf, 0, 4096)).toThrow(expect.objectContaining({ errno }));
    memory.release();
    card.close();
    expect(node.status().dmabufs).toBe(0);
    host.close();
  });

  it('is not accessible when the server has ended', async () => {
    const { dmabufs } = attachmentsOf(node);
    const host = mapAnonymous(4096);
    const memory = dmabufs.attach(dmabuf, 0, 4096);
    await server.kill();
    expect([memory.read(0, host.address, 8), memory.write(0, host.address, 8)]).toEqual([false, false]);
    expect(() => dmabufs.attach(dmabuf, 0, 4096)).toThrow(expect.objectContaining({ errno: Errno.ENODEV }));
    memory.release();
    host.close();
  });

  it('has a limit of attachments, which are used again', () => {
    const { dmabufs } = attachmentsOf(node);
    const attach = () => dmabufs.attach(dmabuf, 0, 4096);
    const memories = Array.from({ length: ATTACHMENTS_MAX }, attach);
    expect(attach).toThrow(expect.objectContaining({ errno: Errno.ENOMEM }));
    memories.pop()!.release();
    memories.push(attach());
    for (const memory of memories) memory.release();
    expect(node.status().dmabufs).toBe(1);
    expect(server.errors).toBe('');
  });

  it.each([
    ['no number', { offset: 0, byteLength: 4096 }],
    ['number 0', { attachment: 0, offset: 0, byteLength: 4096 }],
    ['a number above the limit', { attachment: ATTACHMENTS_MAX + 1, offset: 0, byteLength: 4096 }],
    ['a used number', { attachment: 1, offset: 0, byteLength: 4096 }],
    ['a negative offset', { attachment: 2, offset: -4096, byteLength: 4096 }],
    ['no length', { attachment: 2, offset: 0 }],
  ])('is not given to a client that asks with %s, which is disconnected', (_what, fields) => {
    const client = connectToServer(server.socketPath);
    const first = client.request({ op: 'attach', attachment: 1, offset: 0, byteLength: 4096 }, dmabuf);
    close(first.fd);
    expect(() => client.request({ op: 'attach', ...fields }, dmabuf)).toThrow(
      expect.objectContaining({ errno: Errno.ENODEV }),
    );
    expect(client.alive).toBe(false);
    expect(node.status().clients).toHaveLength(1);
  });

  it('cannot be truncated, and a client that pretends to copy for ever does not stop its withdrawal', () => {
    const client = connectToServer(server.socketPath);
    const { fd: pageFd } = client.request({ op: 'attachments' });
    const page = mapFile(pageFd, ATTACHMENT_PAGE_BYTES, 0);
    const words = new Int32Array(page.buffer);
    const attached = [1, 2].map((attachment) =>
      client.request({ op: 'attach', attachment, offset: 0, byteLength: 4096 }, dmabuf),
    );
    for (const fd of [pageFd, ...attached.map((each) => each.fd)]) {
      expect(() => ftruncate(fd, 0)).toThrow(expect.objectContaining({ errno: Errno.EPERM }));
      close(fd);
    }
    Atomics.store(words, MOVING, 1);
    card.close();
    expect([words[1], words[2]]).toEqual([WITHDRAWN, WITHDRAWN]);
    expect(() => client.request({ op: 'attach', attachment: 3, offset: 0, byteLength: 4096 }, dmabuf)).toThrow(
      expect.objectContaining({ errno: Errno.EINVAL }),
    );
    expect(node.status().cards[0]).toMatchObject({ owner: null, dramUsedBytes: 0 });
    client.close();
    page.close();
  });
});

/** What the RDMA devices of a node attach dma-bufs with. */
function attachmentsOf(node: RemoteNode): RdmaContext {
  return node.verbs!.open('hca0') as RdmaContext;
}
