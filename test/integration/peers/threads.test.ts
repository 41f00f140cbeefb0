/**
 * Threads: a Context in each of several, which exchange bytes, end in any order, and are not affected by one that is terminated; and objects that
 * cannot be passed between threads.
 */

import { once } from 'node:events';
import { join } from 'node:path';
import { MessageChannel, Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { Context, type Request } from '../../../src/index.ts';
import { device, rkeyOf, useContexts } from '../../fixtures/contexts.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import type { ThreadAddress, ThreadCommand } from '../../fixtures/programs/exchange-thread.ts';
import { built } from '../../fixtures/tools/built.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';

const [EXCHANGE, TRAFFIC] = ['exchange-thread', 'traffic-thread'].map((name) =>
  built(join(import.meta.dirname, `../../fixtures/programs/${name}.ts`)),
) as [string, string];

expectNoLeaks(SEGMENT_PROBES);

/** A thread, and its messages. */
interface Member {
  readonly thread: Worker;
  readonly told: ThreadAddress;
}

async function start(env: Readonly<Record<string, string>>): Promise<Member> {
  const thread = new Worker(EXCHANGE, { workerData: env, execArgv: [] });
  const [told] = (await once(thread, 'message')) as [ThreadAddress];
  return { thread, told };
}

async function ask({ thread }: Member, command: ThreadCommand): Promise<unknown> {
  const answer = once(thread, 'message');
  thread.postMessage(command);
  return (await answer)[0];
}

/** Every thread sends to the next, and all check the received bytes. */
async function exchange(ring: readonly Member[], round: number): Promise<void> {
  const nextOf = (index: number): ThreadAddress => ring[(index + 1) % ring.length]!.told;
  await Promise.all(ring.map((member, index) => ask(member, { do: 'send', round, next: nextOf(index) })));
  const wrong = await Promise.all(ring.map((member) => ask(member, { do: 'check', round })));
  expect(wrong).toEqual(ring.map(() => []));
}

async function close({ thread }: Member): Promise<void> {
  const exit = once(thread, 'exit');
  thread.postMessage({ do: 'close' } satisfies ThreadCommand);
  expect(await exit).toEqual([0]);
}

describe('a Context in each thread', { timeout: 60_000 }, () => {
  it.each(['all', 'tcp,self,gaudi_cpy'])(
    'over %s: they exchange bytes, one is terminated during traffic, the others continue and close in any order',
    async (tls) => {
      const env = { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1', UCX_TLS: tls };
      const [one, two, three] = (await Promise.all([start(env), start(env), start(env)])) as [Member, Member, Member];
      await exchange([one, two, three], 1);
      const busy = new Worker(TRAFFIC, { workerData: { env, sleeps: false }, execArgv: [] });
      await once(busy, 'message');
      const under = exchange([one, two, three], 2);
      await busy.terminate();
      await under;
      await close(two);
      await exchange([three, one], 3);
      await close(one);
      await exchange([three], 4);
      await close(three);
      // Releases the resources of the terminated thread.
      await (await Context.create({ env, configDirectories: [] })).close();
    },
  );
});

describe('an object that belongs to a thread', () => {
  const fixture = useContexts();

  it('is refused by postMessage, workerData and structuredClone, with a remedy in the error, and stays usable', async () => {
    const stack = await fixture.open();
    const { context, worker, endpoint } = stack;
    const memory = context.memMap({ allocate: 4096 });
    const hbm = device(stack, 4096);
    const rkey = rkeyOf(stack, memory);
    const request = endpoint.putNbx(new Uint8Array(8), 0, 8, rkey, 0, { noImmediateCompletion: true }) as Request;
    const listener = worker.listener();
    const messages = worker.messages(1);
    const list = endpoint.prepareList('put', [{ local: memory, rkey, byteLength: 4096 }]);
    const device0 = context.device(0);
    const all = { context, worker, endpoint, memory, hbm, rkey, request, listener, messages, list, device0 };
    const { port1, port2 } = new MessageChannel();
    const why = expect.objectContaining({
      name: 'DataCloneError',
      message: expect.stringContaining('objects belong to one thread: open a Context in each'),
    });
    for (const [name, value] of Object.entries(all)) {
      const ways = [
        () => structuredClone(value),
        () => port1.postMessage({ deep: [value] }),
        () => new Worker('', { eval: true, workerData: value }),
      ];
      for (const way of ways) expect(way, name).toThrow(why);
    }
    port1.close();
    port2.close();
    await listener.close();
    while (!request.isCompleted) worker.progress();
    request.free();
    const bytes = new Uint8Array(4096).fill(5);
    await endpoint.put(bytes, rkeyOf(stack, hbm));
    // Addresses and packed keys can be passed.
    const there = worker.endpoint(structuredClone(worker.address()));
    const key = there.unpackRkey(structuredClone(context.packRkey(memory)));
    await there.put(bytes, key);
    expect(memory.bytes).toEqual(bytes);
  });
});
