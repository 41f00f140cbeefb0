/**
 * Interoperability with other programs: ucp_client_server of UCX's examples and ucx_perftest are the other side, as client and as server, of
 * tagged messages, streams, active messages, put, get and atomic operations.
 */

import { describe, expect, it } from 'vitest';
import { type Context, type Endpoint, Status, type UcxError, type Worker } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import {
  type ClientServerOptions,
  clientServerMessage,
  compileClientServer,
  findPerftest,
  startClientServerClient,
  startClientServerServer,
  startPerftestClient,
  startPerftestServer,
  type UcxProgram,
} from '../../fixtures/libucp/ucx-programs.ts';
import { PerftestListener, PerftestPeer, runPerftest } from '../../fixtures/processes/perftest-peer.ts';
import {
  type PerftestName,
  type PerftestParameters,
  perftestParameters,
} from '../../fixtures/tools/perftest-parameters.ts';
import { EndpointTraffic, perftestFeatures } from '../../fixtures/tools/perftest-traffic.ts';

const { skipReason } = installedLibucp();
const example = skipReason === undefined ? compileClientServer() : { reason: skipReason };
if (example.reason !== undefined) console.info(`skipped: no ucp_client_server (${example.reason})`);
const perftest = skipReason === undefined ? findPerftest() : { reason: skipReason };
if (perftest.reason !== undefined) console.info(`skipped: no ucx_perftest to talk to (${perftest.reason})`);

/** The transport of both sides. */
const OVER_TCP = { TLS: 'tcp,self', NET_DEVICES: 'lo' };
const OVER_SHARED_MEMORY = { TLS: 'posix,cma,self' };
const environmentOf = (config: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(config).map(([name, value]) => [`UCX_${name}`, value]));

const contexts = useContexts();

async function openLibucx(config: Readonly<Record<string, string>>, parameters?: PerftestParameters): Promise<Context> {
  const features = parameters === undefined ? {} : { features: perftestFeatures(parameters) };
  return (await contexts.openOn(contexts.node(), { engine: 'libucx', config, ...features })).context;
}

/** Tag, stream and active messages of ucp_client_server. */
const TAG = 0xcafe;
const AM_ID = 0;

async function send(endpoint: Endpoint, { mode }: ClientServerOptions, message: Uint8Array): Promise<void> {
  if (mode === 'tag') await endpoint.tagSend(message, { tag: TAG });
  else if (mode === 'stream') await endpoint.streamSend(message);
  else await endpoint.amSend(AM_ID, message);
}

/** Receives the messages of a client that is started when the listener exists. */
async function receiveAll(
  worker: Worker,
  options: ClientServerOptions,
  startClient: (port: number) => UcxProgram,
): Promise<Uint8Array[]> {
  const { mode, iterations = 1 } = options;
  const byteLength = clientServerMessage(options).length;
  await using listener = worker.listener({ port: 0 });
  await using messages = worker.messages(AM_ID);
  const client = startClient(listener.port);
  const { value: request } = await listener[Symbol.asyncIterator]().next();
  const endpoint = request!.accept({ onError: () => undefined });
  const received: Uint8Array[] = [];
  for (let count = 0; count < iterations; count++) {
    const bytes = new Uint8Array(byteLength);
    if (mode === 'tag') expect((await worker.tagRecv(bytes, { tag: TAG })).byteLength).toBe(byteLength);
    else if (mode === 'stream') expect(await endpoint.streamRecv(bytes, { waitAll: true })).toBe(byteLength);
    else expect(await (await messages.next()).value!.into(bytes)).toBe(byteLength);
    received.push(bytes);
  }
  client.endInput();
  await endpoint.close();
  expect(await client.ended()).toBe(0);
  return received;
}

const EXCHANGES: readonly ClientServerOptions[] = [
  { mode: 'tag', iterations: 3, size: 16 },
  { mode: 'tag', iterations: 2, size: 100_000 },
  { mode: 'tag', size: 1000, buffers: 5 },
  { mode: 'stream', iterations: 3, size: 16 },
  { mode: 'stream', iterations: 2, size: 9000, buffers: 2 },
  { mode: 'am', size: 16 },
  { mode: 'am', size: 100_000 },
  { mode: 'am', size: 1000, buffers: 3 },
];

describe.skipIf(example.reason !== undefined)('ucp_client_server (needs libucx-dev)', () => {
  it.each(EXCHANGES)('as server receives $mode messages of $size bytes', async (options) => {
    const { iterations = 1, size, buffers = 1 } = options;
    const { program, port } = await startClientServerServer(example.path!, options);
    const context = await openLibucx(OVER_TCP);
    let failure: Status = Status.OK;
    const endpoint = await context.worker().connect({
      address: '127.0.0.1',
      port,
      onError: (_endpoint, status) => {
        failure = status;
      },
    });
    const message = clientServerMessage(options);
    for (let count = 0; count < iterations; count++) await send(endpoint, options, message);
    // There is no progress while the output is awaited. The server drops the connection as soon as it has received everything.
    await endpoint
      .flush()
      .catch((error: unknown) =>
        expect([Status.CANCELED, Status.CONNECTION_RESET]).toContain((error as UcxError).status),
      );
    await program.waitFor(new RegExp(`iteration #${iterations}\n[^]*SUCCESS`));
    await endpoint.close();
    await program.waitFor(new RegExp(`iteration #${iterations}\n[^]*Waiting for connection`));
    // It prints every buffer as a C string, of the first message and of the last.
    const text = Buffer.from(clientServerMessage({ size: size! }))
      .toString('latin1')
      .slice(0, -1);
    const printed = program.output.split(`${text}.\n`).length - 1;
    expect(printed).toBe(buffers * Math.min(iterations, 2));
    expect([Status.OK, Status.CONNECTION_RESET]).toContain(failure);
    await program.stop();
  });

  it.each(EXCHANGES)('as client sends $mode messages of $size bytes', async (options) => {
    const context = await openLibucx(OVER_TCP);
    const received = await receiveAll(context.worker(), options, (port) =>
      startClientServerClient(example.path!, { ...options, port }),
    );
    for (const bytes of received) expect(Buffer.from(bytes).equals(clientServerMessage(options))).toBe(true);
  });
});

interface PerftestCase {
  readonly test: PerftestName;
  readonly size: number;
  readonly config?: Readonly<Record<string, string>>;
  readonly args?: readonly string[];
}

const PERFTESTS: readonly PerftestCase[] = [
  { test: 'tag_lat', size: 8 },
  { test: 'tag_lat', size: 300_000 },
  { test: 'tag_bw', size: 1024 },
  { test: 'tag_sync_lat', size: 64 },
  { test: 'tag_sync_bw', size: 64 },
  { test: 'ucp_am_lat', size: 8, args: ['-H', '24'] },
  { test: 'ucp_am_lat', size: 300_000 },
  { test: 'ucp_am_bw', size: 1024 },
  { test: 'stream_lat', size: 8 },
  { test: 'stream_bw', size: 4000 },
  { test: 'ucp_put_lat', size: 8 },
  { test: 'ucp_put_lat', size: 70_000 },
  { test: 'ucp_put_bw', size: 4096 },
  { test: 'ucp_get', size: 9000 },
  { test: 'ucp_add', size: 8 },
  { test: 'ucp_add', size: 4 },
  { test: 'ucp_fadd', size: 8 },
  { test: 'ucp_swap', size: 4 },
  { test: 'ucp_cswap', size: 8 },
  { test: 'tag_lat', size: 8, config: OVER_SHARED_MEMORY },
  { test: 'ucp_am_lat', size: 8, config: OVER_SHARED_MEMORY },
  { test: 'stream_lat', size: 8, config: OVER_SHARED_MEMORY },
  { test: 'ucp_put_lat', size: 70_000, config: OVER_SHARED_MEMORY },
  { test: 'ucp_get', size: 4096, config: OVER_SHARED_MEMORY },
  { test: 'ucp_fadd', size: 8, config: OVER_SHARED_MEMORY },
];
const ITERATIONS = 20;
const nameOf = ({ test, size, config }: PerftestCase): string =>
  `${test} of ${size} bytes over ${(config ?? OVER_TCP).TLS}`;

describe.skipIf(perftest.reason !== undefined)('ucx_perftest (needs ucx_perftest)', () => {
  it.each(PERFTESTS.map((each) => [nameOf(each), each] as const))('as server: %s', async (_name, each) => {
    const { test, size, args, config = OVER_TCP } = each;
    const parameters = perftestParameters(test, {
      iterations: ITERATIONS,
      warmupIterations: 2,
      messageSizes: [size],
      headerBytes: Number(args?.at(-1) ?? 0),
    });
    const { program, port } = await startPerftestServer(perftest.path!, environmentOf(config));
    const context = await openLibucx(config, parameters);
    const peer = await PerftestPeer.connect(port, parameters);
    const traffic = await EndpointTraffic.connect(peer, context);
    expect(await runPerftest(peer, traffic)).toEqual([1, 2, ITERATIONS]);
    expect(await program.ended()).toBe(0);
  });

  it.each(PERFTESTS.map((each) => [nameOf(each), each] as const))('as client: %s', async (_name, each) => {
    const { test, size, args = [], config = OVER_TCP } = each;
    const listener = await PerftestListener.open();
    const options = ['-t', test, '-n', String(ITERATIONS), '-w', '2', '-s', String(size), ...args];
    const program = startPerftestClient(perftest.path!, listener.port, options, environmentOf(config));
    const peer = await listener.accept();
    listener.close();
    const context = await openLibucx(config, peer.parameters);
    const traffic = await EndpointTraffic.connect(peer, context);
    expect(await runPerftest(peer, traffic)).toEqual([1, 2, ITERATIONS]);
    expect(await program.ended()).toBe(0);
    expect(program.output).toMatch(new RegExp(`Final: +${ITERATIONS} `));
  });
});
