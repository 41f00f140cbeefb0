/** A node server and its clients as real processes: killed clients, a killed server, shared memory, idle time. */

import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { connectEmulatedNode, type NodeStatus, type RemoteNode } from '../../../src/emulator/index.ts';
import { ASYNC_SLOTS } from '../../../src/emulator/server/mailbox.ts';
import { WAITS_MAX } from '../../../src/emulator/server/served-client.ts';
import { Context, MemoryType } from '../../../src/index.ts';
import { close, Errno, mapAnonymous, openFileDescriptors } from '../../../src/sys/index.ts';
import {
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  HL_WAIT_CS_ARGS,
  linDmaCtl,
  PacketOpcode,
  packetCtl,
  writeLinDma,
  writeNop,
} from '../../../src/uapi/index.ts';
import { createRandom } from '../../../src/ucs/sys/random.ts';
import { DriverClient } from '../../contract/driver/driver-client.ts';
import { halves } from '../../contract/driver/driver-fixture.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';

const PROGRAM = join(import.meta.dirname, '../../fixtures/programs/node-client-program.ts');
const KILLS = 12;
const LIFE_MS_MAX = 120;
/**
 * Bound of the waits for a release. The server releases within a second of processor time; here it shares two processors with its clients, the
 * tests and other programs.
 */
const RELEASE_MS = 10_000;
const CLIENTS = 8;
const ROUNDS = 100;
const BYTES = 65536;

let server: TestNodeServer;
let node: RemoteNode;
beforeAll(async () => {
  server = await TestNodeServer.start({ cards: CLIENTS });
  node = connectEmulatedNode(server.socketPath);
});
afterAll(async () => {
  node.close();
  await server.stop();
});

/** A client in its own process. */
function startClient(mode: 'work' | 'churn', ...args: readonly number[]): Child<never, object> {
  return new Child(PROGRAM, [mode, server.socketPath, ...args.map(String)]);
}

/** Resources of the server for clients other than this process. */
function heldByOthers({ cards, clients, dmabufs }: NodeStatus): object {
  return {
    clients: clients.filter(({ pid }) => pid !== process.pid).length,
    cards: cards.filter(({ owner, dramUsedBytes }) => owner !== null || dramUsedBytes > 0).length,
    dmabufs,
  };
}

const NOTHING = { clients: 0, cards: 0, dmabufs: 0 };

describe('a client that is killed', { timeout: 60_000 }, () => {
  it('loses all its resources, and others are not affected', { timeout: 60_000 }, async () => {
    const random = createRandom(7);
    const bystander = startClient('work', 1);
    await bystander.next();
    const onlyBystander = { clients: 1, cards: 1 };
    for (let round = 0; round < KILLS; round++) {
      const victim = startClient('work', 0);
      await victim.next();
      await new Promise((resolve) => setTimeout(resolve, random.below(LIFE_MS_MAX)));
      await victim.kill();
      await vi.waitFor(
        () => {
          const { clients, cards } = node.status();
          expect(clients.filter(({ pid }) => pid === victim.pid)).toEqual([]);
          expect(cards[0]).toMatchObject({ owner: null, dramUsedBytes: 0, status: 'operational' });
        },
        { timeout: RELEASE_MS, interval: 5 },
      );
      node.open(0).close();
      expect(heldByOthers(node.status())).toMatchObject({ clients: onlyBystander.clients });
    }
    expect(bystander.isRunning).toBe(true);
    await bystander.kill();
    await vi.waitFor(() => expect(heldByOthers(node.status())).toEqual(NOTHING), { timeout: RELEASE_MS });
    expect(server.errors).toBe('');
  });
});

describe('eight clients', { timeout: 60_000 }, () => {
  it('allocate, map and free at the same time', async () => {
    const children = Array.from({ length: CLIENTS }, (_, minor) => startClient('churn', minor, ROUNDS));
    const ends = await Promise.all(children.map(async (child) => ({ code: await child.end(), errors: child.errors })));
    expect(ends).toEqual(children.map(() => ({ code: 0, errors: '' })));
    await vi.waitFor(() => expect(heldByOthers(node.status())).toEqual(NOTHING));
  });
});

describe('a server without work', () => {
  it('uses no processor time', async () => {
    const client = new DriverClient(node.open(0));
    expect(client.allocate(1).result).toBe(0);
    // On busy processors the rest of the start (compiling, collecting garbage) takes some time.
    let ticks = Number.POSITIVE_INFINITY;
    for (let second = 0; second < 10 && ticks > 1; second++) {
      const before = server.cpuTicks;
      await new Promise((resolve) => setTimeout(resolve, 1000));
      ticks = server.cpuTicks - before;
    }
    client.close();
    expect(ticks).toBeLessThanOrEqual(1);
  });

  it('wakes up for every ioctl, whenever it comes', async () => {
    const random = createRandom(3);
    const client = new DriverClient(node.open(0));
    for (let round = 0; round < 300; round++) {
      expect(client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).result).toBe(0);
      // Around the time after which the server goes to sleep.
      const untilNs = process.hrtime.bigint() + BigInt(random.below(400_000));
      while (process.hrtime.bigint() < untilNs) {}
      if (round % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    }
    client.close();
  });
});

describe('two connections', () => {
  expectNoLeaks();

  it('share device memory through a descriptor', () => {
    const other = connectEmulatedNode(server.socketPath);
    expect(other.identity).toBe(node.identity);
    const exporter = new DriverClient(node.open(0));
    const importer = new DriverClient(other.open(1));
    const host = mapAnonymous(4 * BYTES);
    const hostVas = [exporter, importer].map((client) => client.mapHost(host.address, host.byteLength).out);
    const copy = (index: 0 | 1, source: bigint, destination: bigint): void => {
      const words = new Uint32Array(host.buffer, 3 * BYTES);
      writeLinDma(words, 0, linDmaCtl('gaudi2'), BYTES, ...halves(source), ...halves(destination));
      const client = index === 0 ? exporter : importer;
      const { out } = client.submit([{ queue: 8, cb: hostVas[index]! + BigInt(3 * BYTES), byteLength: 24 }]);
      expect(client.wait(out.seq, 10e6)).toMatchObject({ result: 0, out: { status: 0 } });
    };
    for (let i = 0; i < BYTES; i++) host.u8[i] = i * 13;
    const memory = exporter.mapDevice(exporter.allocate(1).out).out;
    copy(0, hostVas[0]!, memory);
    const fds = openFileDescriptors();
    const { result, out: fd } = exporter.exportDmabuf(memory, BYTES);
    expect(result).toBe(0);
    const peer = importer.importDmabuf(fd, BYTES);
    expect(peer.result).toBe(0);
    close(fd);
    expect(openFileDescriptors()).toBe(fds);
    expect(node.status().dmabufs).toBe(1);
    copy(1, peer.out, hostVas[1]! + BigInt(BYTES));
    expect(Buffer.compare(host.u8.subarray(0, BYTES), host.u8.subarray(BYTES, 2 * BYTES))).toBe(0);
    // The importer keeps the memory of the exporter until it unmaps it.
    expect(exporter.unmap(memory)).toBe(-Errno.EINVAL);
    expect(importer.unmap(peer.out)).toBe(0);
    expect(exporter.unmap(memory)).toBe(0);
    expect(importer.importDmabuf(12345, BYTES).result).toBe(-Errno.EBADF);
    exporter.close();
    importer.close();
    host.close();
    other.close();
    expect(node.status().dmabufs).toBe(0);
  });
});

describe('waits of a client', () => {
  const host = mapAnonymous(4096);
  afterAll(() => host.close());

  /** Opens a card with a submission that does not complete. Returns its client, and a function that waits for it. */
  function hanging(minor: number): readonly [DriverClient, () => Promise<number>] {
    node.inject(minor, { kind: 'completion' });
    const client = new DriverClient(node.open(minor));
    const va = client.mapHost(host.address, 4096).out;
    writeNop(new Uint32Array(host.buffer), 0, packetCtl(PacketOpcode.NOP));
    const { out, result } = client.submit([{ queue: 0, cb: va, byteLength: 8 }]);
    expect(result).toBe(0);
    const wait = (): Promise<number> => {
      const words = new Uint32Array(HL_WAIT_CS_ARGS.size / 4);
      HL_WAIT_CS_ARGS.in.encode({ seq: out.seq, timeout_us: 600_000_000n }, new DataView(words.buffer));
      return client.file.ioctlAsync(client.file.numbers.WAIT_CS, { address: host.address, words });
    };
    return [client, wait];
  }

  it('are bounded for each file and each client, and have no threads', async () => {
    const threads = server.threads;
    const waits: Promise<number>[] = [];
    const clients: DriverClient[] = [];
    const files = WAITS_MAX / ASYNC_SLOTS;
    for (let minor = 0; minor < files; minor++) {
      const [client, wait] = hanging(minor);
      clients.push(client);
      for (let i = 0; i < ASYNC_SLOTS; i++) waits.push(wait());
      expect(await wait()).toBe(-Errno.EAGAIN);
    }
    const [last, wait] = hanging(files);
    clients.push(last);
    expect(await wait()).toBe(-Errno.EAGAIN);
    expect(server.threads).toBe(threads);
    // Closed files end their waits, and make room for others.
    for (const client of clients.slice(0, files)) client.close();
    expect(new Set((await Promise.all(waits)).map(Math.sign))).toEqual(new Set([-1]));
    const other = wait();
    expect(last.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).result).toBe(0);
    last.close();
    expect(await other).not.toBe(-Errno.EAGAIN);
  });
});

describe('a server that is killed', () => {
  it('ends all waits of its clients with ENODEV', async () => {
    const short = await TestNodeServer.start({ cards: 2 });
    const lost = connectEmulatedNode(short.socketPath);
    lost.inject(0, { kind: 'completion' });
    const client = new DriverClient(lost.open(0));
    const host = mapAnonymous(BYTES);
    const va = client.mapHost(host.address, BYTES).out;
    const { out } = client.submit([{ queue: 0, cb: va, byteLength: 8 }]);
    client.block.view.setBigUint64(0, out.seq, true);
    client.block.view.setBigUint64(8, 1_000_000_000n, true);
    client.block.view.setUint32(16, 0, true);
    const waiting = client.file.ioctlAsync(client.file.numbers.WAIT_CS, client.block);
    let killed: Promise<void> = Promise.resolve();
    setTimeout(() => {
      killed = short.kill();
    }, 50);
    expect(await waiting).toBe(-Errno.ENODEV);
    expect(client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).result).toBe(-Errno.ENODEV);
    expect(lost.cards()).toEqual([]);
    expect(lost.attribute(0, 'status')).toBeUndefined();
    expect(() => lost.open(1)).toThrow(/ENODEV/);
    expect(() => client.file.mmap(4096, 1n << 62n)).toThrow(/ENODEV/);
    client.close();
    lost.close();
    host.close();
    expect(() => connectEmulatedNode(short.socketPath)).toThrow(
      expect.objectContaining({ code: 'ERR_NODE_UNREACHABLE' }),
    );
    await killed;
    await short.stop();
  });

  it('is named by every error of later operations', async () => {
    const short = await TestNodeServer.start({ cards: 1 });
    const lost = connectEmulatedNode(short.socketPath);
    const context = await Context.create({ node: lost, env: {}, configDirectories: [], logSink: () => undefined });
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const memory = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    await endpoint.put(new Uint8Array(BYTES), rkey);
    await short.kill();
    const named = expect.objectContaining({ message: expect.stringContaining(short.socketPath) });
    for (const run of [
      () => endpoint.put(new Uint8Array(BYTES), rkey),
      () => endpoint.put(new Uint8Array(8), rkey),
      () => endpoint.get(new Uint8Array(BYTES), rkey),
      async () => context.memMap({ allocate: 2 ** 31, memoryType: MemoryType.GAUDI }),
      () => Context.create({ node: lost, env: { UCX_TLS: 'gaudi_cpy' }, configDirectories: [] }),
    ]) {
      await expect(run()).rejects.toEqual(named);
    }
    rkey.release();
    await context.close();
    lost.close();
    await short.stop();
  });
});
