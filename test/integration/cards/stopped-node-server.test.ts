/** A node server that is stopped (SIGSTOP) while programs use its cards: snapshots do not wait for it, and calls wait for a bounded time. */

import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { connectEmulatedNode } from '../../../src/emulator/index.ts';
import { Context, type Endpoint, type RemoteKey, Status, type Worker } from '../../../src/index.ts';
import { ENGINES } from '../../fixtures/pair.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';

const LENGTH = 1 << 20;
let server: TestNodeServer;

interface Program {
  readonly context: Context;
  readonly worker: Worker;
  readonly endpoint: Endpoint;
  readonly rkey: RemoteKey;
}

afterEach(async () => {
  process.kill(server.pid, 'SIGCONT');
  await server.stop();
});

/** Stops the server, and waits until it is. */
async function stop(): Promise<string> {
  process.kill(server.pid, 'SIGSTOP');
  await expect.poll(() => readFileSync(`/proc/${server.pid}/stat`, 'latin1')).toMatch(/\) T /);
  return `node server ${server.pid} is stopped`;
}

describe.each(ENGINES)('a program over %s', { timeout: 60_000 }, (engine) => {
  function create(): Promise<Context> {
    const env = { UCX_GAUDI_DRIVER: `emulator:${server.socketPath}` };
    return Context.create({ env, engine, configDirectories: [], logSink: () => {} });
  }

  function use(context: Context): Program {
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const hbm = context.memMap({ allocate: LENGTH, memoryType: 'gaudi' });
    return { context, worker, endpoint, rkey: endpoint.unpackRkey(context.packRkey(hbm)) };
  }

  async function open(): Promise<Program> {
    return use(await create());
  }

  /** Writes to HBM and reads it. */
  async function roundTrip({ endpoint, rkey }: Program, seed: number): Promise<void> {
    const bytes = new Uint8Array(LENGTH).map((_, index) => (index * 31 + seed) & 0xff);
    await endpoint.put(bytes, rkey);
    const read = new Uint8Array(LENGTH);
    await endpoint.get(read, rkey);
    expect(Buffer.compare(read, bytes)).toBe(0);
  }

  it('names it in a snapshot without waiting, and continues when it continues', async () => {
    server = await TestNodeServer.start({ cards: 2 });
    // It has the cards open and does not use them: none of its calls waits.
    const context = await create();
    const stopped = await stop();
    const left = context.query().unavailable.filter(({ reason }) => reason.includes(stopped));
    expect(left.map(({ name }) => name).sort()).toEqual(['gaudi0', 'gaudi1']);
    expect(JSON.stringify(context.snapshot())).toContain(stopped);
    process.kill(server.pid, 'SIGCONT');
    await expect.poll(() => JSON.stringify(context.query().unavailable)).not.toContain(stopped);
    const program = use(context);
    await roundTrip(program, 2);
    expect(context.query().unavailable.filter(({ name }) => name.startsWith('gaudi'))).toEqual([]);
    await program.endpoint.close();
    await context.close();
  });

  it('loses its cards after a time; another one uses them when the server continues', async () => {
    server = await TestNodeServer.start({ cards: 1 });
    const program = await open();
    await roundTrip(program, 3);
    const stopped = await stop();
    const bytes = new Uint8Array(LENGTH);
    const error = await program.endpoint.put(bytes, program.rkey).catch((reason: Error) => reason);
    expect(error).toMatchObject({ message: expect.stringContaining(stopped) });
    // The server replies to requests before it sees that the client is gone.
    process.kill(server.pid, 'SIGCONT');
    for (let i = 0; i < 3; i++) {
      const again = await program.endpoint.put(bytes, program.rkey).catch((reason: Error) => reason);
      expect(again).toBeInstanceOf(Error);
    }
    expect(program.worker.causeOf(Status.IO_ERROR)).toMatchObject({ message: expect.stringContaining(stopped) });
    expect(JSON.stringify(program.context.query().unavailable)).toContain(stopped);
    const other = await open();
    await roundTrip(other, 4);
    await other.endpoint.close();
    await other.context.close();
    await program.endpoint.close({ force: true });
    await program.context.close();
    using node = closing(connectEmulatedNode(server.socketPath));
    await expect.poll(() => node.status().clients.length).toBe(1);
  });

  it('loses a transfer in flight that its event loop waits for', async () => {
    server = await TestNodeServer.start({ cards: 1 });
    const program = await open();
    await roundTrip(program, 5);
    const control = connectEmulatedNode(server.socketPath);
    control.inject(0, { kind: 'hang' });
    control.close();
    const put = program.endpoint.put(new Uint8Array(LENGTH), program.rkey).catch((reason: Error) => reason);
    // The program sleeps until the card reports the end of the transfer.
    await new Promise((resolve) => setTimeout(resolve, 300));
    const stopped = await stop();
    expect(await put).toMatchObject({ message: expect.stringContaining(stopped) });
    await program.endpoint.close({ force: true });
    await program.context.close();
  });
});

it('a program that connects to it learns of it, and is not a client later', { timeout: 60_000 }, async () => {
  server = await TestNodeServer.start({ cards: 1 });
  const stopped = await stop();
  expect(() => connectEmulatedNode(server.socketPath)).toThrow(
    expect.objectContaining({ code: 'ERR_NODE_REFUSED', message: expect.stringContaining(stopped) }),
  );
  process.kill(server.pid, 'SIGCONT');
  using node = closing(connectEmulatedNode(server.socketPath));
  expect(node.cards()).toHaveLength(1);
  await expect.poll(() => node.status().clients.length).toBe(1);
});

/** A node that a scope closes. */
function closing(node: ReturnType<typeof connectEmulatedNode>): ReturnType<typeof connectEmulatedNode> & Disposable {
  return Object.assign(node, { [Symbol.dispose]: () => node.close() });
}
