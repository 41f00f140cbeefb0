/** A worker thread that is terminated during traffic: the next use releases its descriptors and files, and its peers detect its end. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { Context, Status } from '../../../src/index.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import type { ExportedNumbers } from '../../fixtures/programs/export-thread.ts';
import { built } from '../../fixtures/tools/built.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';

const PROGRAM = built(join(import.meta.dirname, '../../fixtures/programs/traffic-thread.ts'));
const EXPORTER = built(join(import.meta.dirname, '../../fixtures/programs/export-thread.ts'));

expectNoLeaks(SEGMENT_PROBES);

describe('a thread that is terminated during traffic', { timeout: 20_000 }, () => {
  const transports = ['posix,cma,self', 'tcp,self', 'all'];
  it.each(
    transports.flatMap((tls) => [
      [tls, 'awake'],
      [tls, 'asleep'],
    ]),
  )('over %s, %s, leaves nothing after the next use', async (tls, state) => {
    const segments = SEGMENT_PROBES['segments']!;
    const before = segments();
    const env = { UCX_GAUDI_DRIVER: tls === 'all' ? 'emulator' : 'kernel', UCX_TLS: tls };
    const thread = new Worker(PROGRAM, { workerData: { env, sleeps: state === 'asleep' }, execArgv: [] });
    const [address] = (await once(thread, 'message')) as [string];
    const context = await Context.create({ env, configDirectories: [] });
    const worker = context.worker();
    let status: Status = Status.OK;
    const endpoint = worker.endpoint(Buffer.from(address, 'hex'), {
      onError: (_, failure) => {
        status = failure;
      },
    });
    await endpoint.amSend(1, new Uint8Array(8));
    await thread.terminate();
    const next = await Context.create({ env, configDirectories: [] });
    while (status === Status.OK) {
      worker.progress();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect([Status.ENDPOINT_TIMEOUT, Status.CONNECTION_RESET]).toContain(status);
    await endpoint.close({ force: true });
    await context.close();
    await next.close();
    expect(segments()).toBe(before);
  });

  it('over shared memory, is detected by the keepalive of its peers, though its process has its descriptors open', async () => {
    const env = { UCX_GAUDI_DRIVER: 'kernel', UCX_TLS: 'posix,cma,self', UCX_KEEPALIVE_INTERVAL: '50ms' };
    const context = await Context.create({ env, configDirectories: [] });
    const worker = context.worker();
    const thread = new Worker(PROGRAM, { workerData: { env, sleeps: false }, execArgv: [] });
    const [address] = (await once(thread, 'message')) as [string];
    const endpoint = worker.endpoint(Buffer.from(address, 'hex'));
    await endpoint.amSend(1, new Uint8Array(8));
    await thread.terminate();
    // No receive takes it.
    await expect(endpoint.tagSendSync(new Uint8Array(8))).rejects.toMatchObject({ status: Status.ENDPOINT_TIMEOUT });
    await endpoint.close({ force: true });
    await context.close();
    // Cleans up behind the thread.
    await (await Context.create({ env, configDirectories: [] })).close();
  });

  it.each(['its own', 'a server'])(
    'with cards of %s: the next context closes no file of the program that has the number of a dma-buf of the thread',
    async (node) => {
      const server = node === 'its own' ? undefined : await TestNodeServer.start({ cards: 2, nics: 1 });
      const driver = server === undefined ? 'emulator' : `emulator:${server.socketPath}`;
      const env = { UCX_GAUDI_DRIVER: driver, UCX_ACC_DEVICES: 'gaudi0', UCX_GAUDI_EMULATOR_NICS: '1' };
      // It closes descriptors that node:fs has not opened, of which Node.js warns in threads where it tracks them.
      const thread = new Worker(EXPORTER, {
        workerData: { env },
        execArgv: [],
        trackUnmanagedFds: false,
      });
      const [{ numbers, warnings }] = (await once(thread, 'message')) as [ExportedNumbers];
      expect(warnings).toEqual([]);
      const files: number[] = [];
      while (!numbers.every((fd) => files.includes(fd))) files.push(openSync(import.meta.filename, 'r'));
      await thread.terminate();
      await (await Context.create({ env: { ...env, UCX_ACC_DEVICES: 'gaudi1' }, configDirectories: [] })).close();
      for (const fd of files) expect(readlinkSync(`/proc/self/fd/${fd}`)).toBe(import.meta.filename);
      for (const fd of files) closeSync(fd);
      await server?.stop();
    },
  );

  it('leaves the library of the FFI to its process, which has loaded it for this thread alone', async () => {
    const code = `
      const { Worker } = require('node:worker_threads');
      const thread = new Worker(process.argv[1], { workerData: { env: { UCX_GAUDI_DRIVER: 'emulator' } } });
      thread.once('message', async () => {
        await thread.terminate();
        console.log('terminated');
      });`;
    const child = spawn(process.execPath, ['--no-warnings', '--eval', code, EXPORTER], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const output: string[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => output.push(String(text)));
    const [exit, signal] = await once(child, 'close');
    expect([exit, signal, output.join('')]).toEqual([0, null, 'terminated\n']);
  });
});
