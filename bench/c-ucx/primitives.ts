/** `gaudi-ucx perftest` beside what bounds it on the same two processors: the exchange of a word, a copy, a socket (raw-pair.ts). Reported, without targets. */

import { fileURLToPath } from 'node:url';
import type { Result } from '../timing.ts';
import { resultOf } from './c-ucx.ts';
import { type Case, SHM, TCP, type TransportSet } from './cases.ts';
import { compare } from './measure.ts';
import type { Primitive } from './raw-pair.ts';

const MIB = 2 ** 20;
const ROUNDS = 3;
const RAW: readonly string[] = [process.execPath, fileURLToPath(new URL('raw-pair.js', import.meta.url))];

/** Between the cards of two nodes, through fragments of host memory. */
const STAGED = { shm: stagedOver(SHM), tcp: stagedOver(TCP) };

const CASES: readonly (readonly [Primitive, Case])[] = [
  ['words', { transports: SHM, test: 'ucp_put_lat', bytes: 8 }],
  ['words', { transports: SHM, test: 'tag_lat', bytes: 8 }],
  ['ring', { transports: SHM, test: 'tag_bw', bytes: 8 }],
  ['stores', { transports: SHM, test: 'ucp_put_bw', bytes: 8 }],
  ['atomics', { transports: SHM, test: 'ucp_fadd', bytes: 8 }],
  ['fragments', { transports: SHM, test: 'tag_bw', bytes: 4096 }],
  ['copy', { transports: SHM, test: 'ucp_put_bw', bytes: MIB }],
  ['copy', { transports: SHM, test: 'ucp_get', bytes: MIB }],
  ['socket-lat', { transports: TCP, test: 'ucp_put_lat', bytes: 8 }],
  ['socket-lat', { transports: TCP, test: 'tag_lat', bytes: 8 }],
  ['socket-lat', { transports: TCP, test: 'tag_lat', bytes: MIB }],
  ['socket-bw', { transports: TCP, test: 'tag_bw', bytes: 8 }],
  ['socket-bw', { transports: TCP, test: 'tag_bw', bytes: MIB }],
  ['socket-bw', { transports: TCP, test: 'ucp_put_bw', bytes: MIB }],
  ['socket-bw', { transports: TCP, test: 'ucp_am_bw', bytes: MIB }],
  ['socket-bw', { transports: TCP, test: 'stream_bw', bytes: MIB }],
  ['fragments', { transports: STAGED.shm, test: 'tag_bw', bytes: 8 * MIB }],
  ['socket-fragments', { transports: STAGED.tcp, test: 'tag_bw', bytes: 64 * MIB }],
];

/** Runs the measurements. */
export async function* benchPrimitives(): AsyncGenerator<Result> {
  for (const [primitive, each] of CASES) {
    const comparison = await compare(each, ROUNDS, 1, {
      reference: { tool: RAW, test: primitive },
      more: Object.values(STAGED).includes(each.transports) ? ['-m', 'gaudi'] : [],
    });
    const { name, ...rest } = resultOf(comparison, comparison.ratio);
    yield { ...rest, name: name.replace('C UCX', primitive), target: 'none', met: true };
  }
}

function stagedOver({ name, tls, ...costs }: TransportSet): TransportSet {
  return { ...costs, name: `${name}, HBM,`, tls: `${tls},self,gaudi_cpy` };
}
