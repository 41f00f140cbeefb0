/** Raw posix transport between two processes: one-way latency of messages and puts of 8 bytes, and a put of 1 MiB against memcpy. */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { mapAnonymous, memcpy } from '../src/sys/index.ts';
import { type Hello, NEVER, pin, ShmEnd } from './shared-memory-peer.ts';
import { medianPerCallNs, type Result } from './timing.ts';

const MEBIBYTE = 2 ** 20;
const MESSAGE_NS_MAX = 100;
/** 1.5 times the latency of a put between two processes in C UCX. */
const PUT_NS_MAX = 65;
const SHARE_MIN = 0.8;
const COPY_ROUNDS = 9;
const COPIES = 300;

/** Runs the measurements. */
export async function benchSharedMemory(): Promise<Result[]> {
  const child = fork(join(import.meta.dirname, 'shared-memory-peer.js'), ['shared-memory-peer']);
  const [peer] = (await once(child, 'message')) as [Hello];
  const end = new ShmEnd();
  try {
    pin(0);
    const done = once(child, 'message');
    child.send(end.hello);
    const { message, put } = end.pingPong(peer, true);
    await done;
    return [
      latency('shm message of 8 bytes, one way', message, MESSAGE_NS_MAX),
      latency('shm put of 8 bytes, one way', put, PUT_NS_MAX),
      bandwidth(end, peer),
    ];
  } finally {
    end.close();
    child.disconnect();
  }
}

function latency(name: string, rounds: readonly number[], target: number): Result {
  const best = Math.min(...rounds);
  return {
    name,
    value: `best of ${rounds.length}: ${best.toFixed(0)} ns`,
    ratio: best / target,
    target: `<= ${target} ns`,
    met: best <= target,
  };
}

function bandwidth(end: ShmEnd, peer: Hello): Result {
  const { endpoint, rkey } = end.connect(peer);
  const local = end.md.memReg(new Uint8Array(MEBIBYTE).fill(1));
  const iov = [{ memory: local, offset: 0, byteLength: MEBIBYTE }];
  const [from, to] = [0, 1].map(() => mapAnonymous(MEBIBYTE, { populate: true }));
  const copy = (): void => memcpy(to!.address, from!.address, MEBIBYTE);
  const putNs = medianPerCallNs(COPY_ROUNDS, COPIES, () => {
    const status = endpoint.putZcopy(iov, 0, rkey, NEVER);
    if (status !== 0) throw new Error(`put: ${status}`);
  });
  const copyNs = medianPerCallNs(COPY_ROUNDS, COPIES, copy);
  for (const each of [from, to]) each!.close();
  endpoint.close();
  const share = copyNs / putNs;
  return {
    name: 'shm put of 1 MiB against memcpy',
    value: `${(MEBIBYTE / putNs).toFixed(1)} of ${(MEBIBYTE / copyNs).toFixed(1)} GB/s`,
    ratio: share,
    target: `>= ${SHARE_MIN}`,
    met: share >= SHARE_MIN,
  };
}
