/**
 * Checks of the engine over libucp on a real RDMA stack: ucp_client_server of UCX's examples is the other side, over rc with the connection manager of RDMA. It is compiled
 * outside of the guest. ucx_perftest is not a peer here: it exchanges addresses of workers, and two of it do not reach each other over rdma_rxe either (UCX 1.13: `no
 * auxiliary transport`).
 */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { Context, type Endpoint, type Worker } from '../../src/index.ts';
import { ADDRESSES, check } from './guest.ts';

const EXAMPLE = '/tmp/ucp_client_server';
const ENV = {
  UCX_TLS: 'rc_verbs',
  UCX_SOCKADDR_TLS_PRIORITY: 'rdmacm',
  UCX_IB_GID_INDEX: '1',
  // rdma_rxe says more than once that a queue pair in error has reached its last receive, and UCX ends the process then (openucx/ucx, issue 10432).
  UCX_IB_ASYNC_EVENTS: 'n',
  UCX_WARN_UNUSED_ENV_VARS: 'n',
  // Programs are started: UCX warns that RDMA and fork do not go together in general.
  UCX_LOG_LEVEL: 'error',
};
const TAG = 0xcafe;
const AM_ID = 0;
const MODES = ['tag', 'am', 'stream'] as const;
type Mode = (typeof MODES)[number];

/** Runs them. */
export async function libucxChecks(): Promise<void> {
  if (!existsSync(EXAMPLE)) {
    console.log('skipped: ucp_client_server, which needs gcc and libucx-dev outside of the guest');
    return;
  }
  for (const mode of MODES) {
    for (const size of [16, 100_000]) {
      const port = 13_400 + (size % 1000) + MODES.indexOf(mode);
      await check(`libucx over rc: ucp_client_server as server receives ${mode} of ${size} bytes`, () =>
        sendToServer(mode, size, port),
      );
      await check(`libucx over rc: ucp_client_server as client sends ${mode} of ${size} bytes`, () =>
        receiveFromClient(mode, size, port + 50),
      );
    }
  }
}

function messageOf(size: number): Uint8Array {
  return Uint8Array.from({ length: size }, (_, index) => (index === size - 1 ? 0 : 0x41 + (index % 26)));
}

async function sendToServer(mode: Mode, size: number, port: number): Promise<void> {
  const server = new Program(['-p', String(port), ...argumentsOf(mode, size)]);
  const context = await openContext(mode);
  try {
    await server.waitFor(() => server.output.includes('listening on IP'));
    const endpoint = await context.worker().connect({ address: ADDRESSES[1], port, onError: () => undefined });
    await send(endpoint, mode, messageOf(size));
    await endpoint.flush().catch(() => undefined);
    const text = Buffer.from(messageOf(size)).toString('latin1').slice(0, -1);
    await server.waitFor(() => server.output.includes('SUCCESS') && server.output.includes(text));
    await endpoint.close();
  } finally {
    server.stop();
    await context.close();
  }
}

async function receiveFromClient(mode: Mode, size: number, port: number): Promise<void> {
  const context = await openContext(mode);
  const worker = context.worker();
  let client: Program | undefined;
  try {
    const bytes = await receive(worker, mode, size, port, () => {
      client = new Program(['-a', ADDRESSES[1], '-p', String(port), ...argumentsOf(mode, size)]);
      return client;
    });
    assert.deepEqual(bytes, messageOf(size));
    assert.equal(await client!.ended(), 0, client!.output);
  } finally {
    client?.stop();
    await context.close();
  }
}

/** The features of the C program: libucp fails where two workers want other lanes of each other. */
function openContext(mode: Mode): Promise<Context> {
  return Context.create({
    engine: 'libucx',
    features: [mode],
    env: { ...ENV, UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1' },
    configDirectories: [],
  });
}

async function send(endpoint: Endpoint, mode: Mode, message: Uint8Array): Promise<void> {
  if (mode === 'tag') await endpoint.tagSend(message, { tag: TAG });
  else if (mode === 'stream') await endpoint.streamSend(message);
  else await endpoint.amSend(AM_ID, message);
}

async function receive(
  worker: Worker,
  mode: Mode,
  size: number,
  port: number,
  startClient: () => Program,
): Promise<Uint8Array> {
  await using listener = worker.listener({ address: ADDRESSES[1], port });
  await using messages = mode === 'am' ? worker.messages(AM_ID) : undefined;
  const client = startClient();
  const { value: request } = await listener[Symbol.asyncIterator]().next();
  const endpoint = request!.accept({ onError: () => undefined });
  const bytes = new Uint8Array(size);
  if (mode === 'tag') await worker.tagRecv(bytes, { tag: TAG });
  else if (mode === 'stream') await endpoint.streamRecv(bytes, { waitAll: true });
  else await (await messages!.next()).value!.into(bytes);
  client.endInput();
  await endpoint.close();
  return bytes;
}

function argumentsOf(mode: Mode, size: number): string[] {
  return ['-c', mode, '-i', '1', '-s', String(size)];
}

/** A C program, whose standard input is open: it closes its endpoint when that ends. */
class Program {
  output = '';
  readonly #child: ChildProcess;
  #status: number | null | undefined = undefined;

  constructor(args: readonly string[]) {
    this.#child = spawn('stdbuf', ['-oL', EXAMPLE, ...args], { env: { ...process.env, ...ENV } });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on('data', (text: Buffer) => {
        this.output += text.toString('latin1');
      });
    }
    this.#child.once('close', (code) => {
      this.#status = code;
    });
  }

  async waitFor(hasCome: () => boolean): Promise<void> {
    while (!hasCome()) {
      if (this.#status !== undefined) throw new Error(`the program has ended: ${this.output}`);
      await pause(20);
    }
  }

  async ended(): Promise<number | null> {
    while (this.#status === undefined) await pause(20);
    return this.#status;
  }

  endInput(): void {
    this.#child.stdin!.end();
  }

  stop(): void {
    this.#child.kill('SIGKILL');
  }
}
