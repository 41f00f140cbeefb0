/** A worker thread that ends without closing its context: its memory is released at the next use, its sockets are closed with it. */

import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { Context, type Endpoint, type RemoteKey, Status } from '../../../src/index.ts';
import { copyFromProcess, Errno, isMapped, mapAnonymous } from '../../../src/sys/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import type { ThreadMemory } from '../../fixtures/programs/mapping-thread.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/mapping-thread.ts'));
const MEBIBYTE = 2 ** 20;
const ENDS = ['return', 'exit', 'terminate'] as const;

expectNoLeaks();

function envOf(tls: string): Record<string, string> {
  // Without detection by time: what a peer notices, it notices at once.
  return { UCX_GAUDI_DRIVER: 'kernel', UCX_TLS: tls, UCX_TCP_PEER_TIMEOUT: '60m' };
}

async function start(env: Record<string, string>): Promise<{ thread: Worker; memory: ThreadMemory }> {
  const thread = new Worker(PROGRAM, { workerData: { env, byteLength: MEBIBYTE }, execArgv: [] });
  const [memory] = (await once(thread, 'message')) as [ThreadMemory];
  return { thread, memory };
}

async function end(thread: Worker, how: (typeof ENDS)[number]): Promise<void> {
  const exited = once(thread, 'exit');
  if (how === 'terminate') await thread.terminate();
  else thread.postMessage(how);
  await exited;
}

describe('the memory of a thread', { timeout: 20_000 }, () => {
  it.each(['posix,self', 'cma,tcp,self', 'self'].flatMap((tls) => ENDS.map((how) => [tls, how] as const)))(
    'over %s that ends by %s is released when the next context is opened, and that of others stays',
    async (tls, how) => {
      const env = envOf(tls);
      const block = mapAnonymous(8);
      const [ended, other] = await Promise.all([start(env), start(env)]);
      // By the kernel, which fails where a load would end the process.
      const reads = ({ addresses }: ThreadMemory): number[] =>
        addresses.map((address) => copyFromProcess(process.pid, address, block.address, 8));
      expect(reads(ended.memory)).toEqual([8, 8, 8, 8]);
      await end(ended.thread, how);
      await (await Context.create({ env, configDirectories: [] })).close();
      expect(reads(ended.memory)).toEqual(new Array(4).fill(-Errno.EFAULT));
      expect(reads(other.memory)).toEqual([8, 8, 8, 8]);
      for (const address of other.memory.addresses) expect(isMapped(address, MEBIBYTE)).toBe(true);
      await end(other.thread, 'terminate');
      await (await Context.create({ env, configDirectories: [] })).close();
      block.close();
    },
  );

  it('is not reached by its address if it is an ArrayBuffer, which Node.js frees with the thread', async () => {
    const env = envOf('posix,cma,self');
    const context = await Context.create({ env, configDirectories: [] });
    const endpointTo = (address: Uint8Array): Endpoint => context.worker().endpoint(address);
    const { thread, memory } = await start(env);
    const endpoint = endpointTo(memory.worker);
    const [allocated, buffer] = [endpoint.unpackRkey(memory.key), endpoint.unpackRkey(memory.bufferKey)];
    const domainsOf = (rkey: RemoteKey): readonly string[] => rkey.describe().map(({ md }) => md);
    expect([domainsOf(allocated).includes('cma'), domainsOf(buffer).includes('cma')]).toEqual([true, false]);
    const bytes = new Uint8Array(MEBIBYTE);
    await endpoint.get(bytes, buffer);
    expect(bytes.every((byte) => byte === 5)).toBe(true);
    await endpoint.put(new Uint8Array(MEBIBYTE).fill(6), buffer);
    await endpoint.get(bytes, buffer);
    expect(bytes.every((byte) => byte === 6)).toBe(true);
    await thread.terminate();
    const late = await failureOf(() => endpoint.put(new Uint8Array(MEBIBYTE).fill(7), buffer));
    expect(late.status).toBeLessThan(0);
    await endpoint.close({ force: true });
    await context.close();
  });

  it('is not reused while peers have keys of it: their operations fail', async () => {
    const env = envOf('cma,tcp,self');
    const context = await Context.create({ env, configDirectories: [] });
    const worker = context.worker();
    const { thread, memory } = await start(env);
    const endpoint = worker.endpoint(memory.worker);
    const rkey = endpoint.unpackRkey(memory.key);
    await endpoint.put(new Uint8Array(MEBIBYTE).fill(2), rkey);
    await thread.terminate();
    await (await Context.create({ env, configDirectories: [] })).close();
    const mappings = Array.from({ length: 64 }, () => mapAnonymous(MEBIBYTE));
    expect((await failureOf(() => endpoint.put(new Uint8Array(MEBIBYTE).fill(3), rkey))).status).toBeLessThan(0);
    for (const { u8 } of mappings) expect(u8.includes(3)).toBe(false);
    for (const mapping of mappings) mapping.close();
    await endpoint.close({ force: true });
    await context.close();
  });
});

describe('the sockets of a thread', { timeout: 20_000 }, () => {
  it.each(ENDS)('that ends by %s are closed with it: its peer notices at once', async (how) => {
    const env = envOf('tcp,self');
    const context = await Context.create({ env, configDirectories: [] });
    const worker = context.worker();
    const { thread, memory } = await start(env);
    let failed: (status: Status) => void;
    const failure = new Promise<Status>((resolve) => {
      failed = resolve;
    });
    const endpoint = worker.endpoint(memory.worker, { onError: (_, status) => failed(status) });
    const rkey = endpoint.unpackRkey(memory.key);
    await endpoint.put(new Uint8Array(8), rkey);
    const serving = new AbortController();
    const served = worker.serve(serving.signal).catch(() => {});
    await end(thread, how);
    expect([Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT]).toContain(await failure);
    serving.abort();
    await served;
    await endpoint.close({ force: true });
    await context.close();
  });
});
