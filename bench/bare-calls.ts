/**
 * Ping-pong of tagged messages between two processes by direct calls of libucp: their cost without the engine. The engine only creates
 * the objects.
 */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Context } from '../src/index.ts';
import type { Worker } from '../src/libucx/core/worker.ts';
import type { Endpoint } from '../src/libucx/endpoint/endpoint.ts';
import type { UcpMemory } from '../src/libucx/mem/memory-handle.ts';
import { schedGetAffinity, schedSetAffinity, setParentDeathSignal } from '../src/sys/index.ts';
import { Status } from '../src/ucs/type/status.ts';

const PROGRAM = fileURLToPath(import.meta.url);
const FIRST = 'bare-calls-first';
const SECOND = 'bare-calls-second';

const BYTES = 8;
const TAG = 7;
/** A bigint costs 5 ns more. */
const MASK = 0xffff_ffff;
const TURNS = 200_000;
const WARM_UP = 20_000;
const ROUNDS = 5;

/** One end of the ping-pong, on its own processor if there are two. */
async function play(position: number, exchange: (address: string) => Promise<string>): Promise<number> {
  const cpus = schedGetAffinity(0);
  schedSetAffinity(0, [cpus[position % cpus.length]!]);
  await using context = await Context.create({ engine: 'libucx', features: ['tag'], configDirectories: [] });
  const worker = context.worker();
  const peer = Buffer.from(await exchange(Buffer.from(worker.address()).toString('hex')), 'hex');
  const endpoint = worker.endpoint(peer, { errorHandling: 'none' });
  const memory = context.memMap({ allocate: 2 * BYTES });
  const round = roundOf(worker as Worker, endpoint as Endpoint, memory as UcpMemory, position === 0);
  round(WARM_UP);
  const times = Array.from({ length: ROUNDS }, () => {
    const begin = process.hrtime.bigint();
    round(TURNS);
    return Number(process.hrtime.bigint() - begin) / TURNS / 2;
  });
  await endpoint.flush();
  return Math.min(...times);
}

/** Sends and receives as many messages; the first end begins. */
function roundOf(worker: Worker, endpoint: Endpoint, memory: UcpMemory, isFirst: boolean): (turns: number) => void {
  const { functions, handle, requests } = worker.core;
  const { ucp_request_check_status, ucp_request_free, ucp_tag_recv_nbx, ucp_tag_recv_request_test } = functions;
  const { ucp_tag_send_nbx, ucp_worker_progress } = functions;
  const { plain } = requests.parameters;
  const { info } = requests.polling;
  const [source, target] = [memory.ucpAddress, memory.ucpAddress + BYTES];
  const send = (): void => {
    const sent = ucp_tag_send_nbx(endpoint.handle, source, BYTES, TAG, plain);
    if (sent < 0) throw new Error(`ucp_tag_send_nbx: ${sent}`);
    if (sent === 0) return;
    while (ucp_request_check_status(sent) === Status.INPROGRESS) ucp_worker_progress(handle);
    ucp_request_free(sent);
  };
  const receive = (): void => {
    const received = ucp_tag_recv_nbx(handle, target, BYTES, TAG, MASK, plain);
    if (received < 0) throw new Error(`ucp_tag_recv_nbx: ${received}`);
    if (received === 0) return;
    for (;;) {
      if (ucp_worker_progress(handle) > 0 && ucp_tag_recv_request_test(received, info) !== Status.INPROGRESS) break;
    }
    ucp_request_free(received);
  };
  return (turns) => {
    for (let i = 0; i < turns; i++) {
      if (isFirst) send();
      receive();
      if (!isFirst) send();
    }
  };
}

/**
 * Runs the ping-pong between two processes.
 * @param transports for UCX_TLS
 * @returns nanoseconds one way, the best of the rounds
 */
export async function bareCallsNs(transports: string): Promise<number> {
  const child = fork(PROGRAM, [FIRST], { env: { ...process.env, UCX_TLS: transports } });
  const [best] = (await once(child, 'message')) as [number];
  await once(child, 'exit');
  return best;
}

async function playFirst(): Promise<void> {
  const child = fork(PROGRAM, [SECOND]);
  const best = await play(0, async (address) => {
    const [peer] = (await once(child, 'message')) as [string];
    child.send(address);
    return peer;
  });
  process.send!(best);
}

async function playSecond(): Promise<void> {
  await play(1, async (address) => {
    const answer = once(process, 'message');
    process.send!(address);
    const [peer] = (await answer) as [string];
    process.disconnect();
    return peer;
  });
}

if ([FIRST, SECOND].includes(process.argv[2] ?? '')) {
  setParentDeathSignal();
  await (process.argv[2] === FIRST ? playFirst() : playSecond());
  if (process.connected) process.disconnect();
}
