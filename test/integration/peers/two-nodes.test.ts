/**
 * Two hosts, each with an emulated node of two cards: every operation from HBM to HBM across the network, also an unreliable one, and the failure
 * when it is cut.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import type { HostReport, HostRequest } from '../../fixtures/network/host-program.ts';
import { reasonWithoutHosts, reasonWithoutNetem, TwoHosts } from '../../fixtures/network/two-hosts.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { built } from '../../fixtures/tools/built.ts';

const PROGRAM = join(import.meta.dirname, '../../fixtures/network/host-program.ts');
const EXAMPLE = built(join(import.meta.dirname, '../../../examples/kv-cache-transfer.ts'));

/** The context of a test that is one of the two processes of the example, and leaves before the end. */
const OWN_NODE = { config: { TLS: 'tcp,gaudi_cpy,self' }, env: { UCX_GAUDI_DRIVER: 'emulator' } };
const LOOPBACK = '127.0.0.1';

type HostProgram = Child<HostRequest, HostReport>;

const withoutHosts = reasonWithoutHosts();
if (withoutHosts !== undefined) console.info(`skipped: two hosts cannot be made here (${withoutHosts})`);
const withoutNetem = withoutHosts ?? reasonWithoutNetem();
if (withoutNetem !== undefined) console.info(`skipped: the kernel cannot impair a network (netem: ${withoutNetem})`);
const withoutWire = withoutHosts ?? (existsSync('/dev/net/tun') ? undefined : 'no /dev/net/tun');
if (withoutWire !== undefined) console.info(`skipped: no wire of user space (${withoutWire})`);

/** Runs every operation between two hosts, then cuts the network under a put. */
async function runBetween(hosts: TwoHosts, devices: readonly string[]): Promise<void> {
  const hostPrograms: HostProgram[] = [];
  const start = (host: 0 | 1, args: readonly string[]): HostProgram => {
    const program: HostProgram = new Child(PROGRAM, args, { execution: hosts.execution(host) });
    hostPrograms.push(program);
    return program;
  };
  try {
    const server = start(0, ['server', hosts.addresses[0]]);
    const { port } = await server.next();
    const client = start(1, ['client', hosts.addresses[0], String(port)]);
    expect(await client.next()).toEqual({});
    const result = await client.next();
    const transports = devices.map((device) => `tcp/${device}`);
    // Puts, windows and long messages are divided among all devices that reach the peer.
    const parts = devices.map(() => 1);
    expect(result).toEqual({ transports, sum: 30, writers: transports, readers: transports, parts });
    hosts.cut();
    const end = await client.ask({ do: 'close' });
    expect(end).toEqual({ status: 'ERR_ENDPOINT_TIMEOUT', later: 'ERR_ENDPOINT_TIMEOUT', failures: 1 });
  } finally {
    for (const program of hostPrograms) await program.kill();
    await hosts.close();
  }
}

// At the same time: most of them wait for time-outs.
describe('HBM on one host and HBM on another', { timeout: 120_000, concurrent: true }, () => {
  it.skipIf(withoutHosts !== undefined)(
    'exchange bytes by every operation, until the cable is pulled (needs root and iproute2)',
    async () => {
      await runBetween(TwoHosts.joined(), ['gxeth0', 'gxeth1']);
    },
  );

  it.skipIf(withoutHosts !== undefined)(
    'receive a KV cache layer by layer: examples/kv-cache-transfer.ts (needs root and iproute2)',
    async () => {
      const hosts = TwoHosts.joined();
      const start = (host: 0 | 1, args: readonly string[]): ChildProcess => {
        const { execPath, execArgv } = hosts.execution(host);
        return fork(EXAMPLE, args, {
          execPath,
          execArgv: [...execArgv],
          stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
        });
      };
      const decode = start(0, ['decode', hosts.addresses[0]]);
      try {
        const [port] = (await once(decode, 'message')) as [number];
        const prefill = start(1, ['prefill', hosts.addresses[0], String(port)]);
        const [[code], [decoded]] = await Promise.all([once(prefill, 'exit'), once(decode, 'exit')]);
        expect([code, decoded]).toEqual([0, 0]);
      } finally {
        decode.kill('SIGKILL');
        await hosts.close();
      }
    },
  );

  it.skipIf(withoutNetem !== undefined)(
    'do so over a network that delays and loses packets (netem) (needs root, iproute2 and netem)',
    async () => {
      const hosts = TwoHosts.joined();
      hosts.impair(['delay', '2ms', '1ms', 'loss', '0.5%', 'rate', '400mbit']);
      await runBetween(hosts, ['gxeth0', 'gxeth1']);
    },
  );

  it.skipIf(withoutWire !== undefined)(
    'do so over a wire that delays and loses packets (needs root, iproute2 and /dev/net/tun)',
    async () => {
      await runBetween(await TwoHosts.wired({ delayMs: 2, loss: 0.005, megabitPerSecond: 400, seed: 5 }), ['gxtun0']);
    },
  );
});

describe('a process of examples/kv-cache-transfer.ts whose peer leaves', { timeout: 60_000 }, () => {
  /** A process of the example that is expected to fail. */
  const start = (...args: readonly string[]): ChildProcess =>
    fork(EXAMPLE, args, { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });

  it('before the first layer ends with a failure: decode', async () => {
    const decode = start('decode', LOOPBACK);
    try {
      const ended = once(decode, 'exit');
      const [port] = (await once(decode, 'message')) as [number];
      await using context = await Context.create(OWN_NODE);
      const worker = context.worker();
      await using endpoint = await worker.connect({ address: LOOPBACK, port });
      await worker.notifications().next();
      await endpoint.close();
      expect(await ended).toEqual([1, null]);
    } finally {
      decode.kill('SIGKILL');
    }
  });

  it('before it has sent its key ends with a failure: prefill', async () => {
    await using context = await Context.create(OWN_NODE);
    const worker = context.worker();
    await using listener = worker.listener({ address: LOOPBACK });
    const idle = new AbortController();
    const prefill = start('prefill', LOOPBACK, String(listener.port));
    try {
      const ended = once(prefill, 'exit');
      const endpoint = (await listener.next())!.accept();
      await endpoint.close();
      // The other end learns that from the progress of this one.
      const served = worker.serve(idle.signal);
      expect(await ended).toEqual([1, null]);
      idle.abort();
      await served;
    } finally {
      prefill.kill('SIGKILL');
    }
  });
});
