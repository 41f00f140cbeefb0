/** More connections over shared memory than a worker can have: further ones use another transport, or are refused with the reason. */

import { describe, expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';

/** A worker takes 1024 senders over posix. */
const CONNECTIONS = 1100;
const BYTES = 9000;

expectNoLeaks();

async function open(tls: string): Promise<Context> {
  return await Context.create({ env: { UCX_GAUDI_DRIVER: 'kernel', UCX_TLS: tls }, configDirectories: [] });
}

describe('connections between two workers', { timeout: 60_000 }, () => {
  it('beyond the limit of shared memory go over tcp', async () => {
    const [one, two] = [await open('self,posix,cma,tcp'), await open('self,posix,cma,tcp')];
    const [sender, receiver] = [one.worker(), two.worker()];
    const received: number[] = [];
    receiver.setAmHandler(1, (message) => {
      void message.bytes().then((bytes) => {
        if (bytes.length === BYTES && bytes.every((byte) => byte === (bytes[0] ?? 0))) received.push(message.id);
      });
    });
    const endpoints = Array.from({ length: CONNECTIONS }, () => sender.endpoint(receiver.address()));
    await Promise.all(endpoints.map((endpoint, i) => endpoint.amSend(1, new Uint8Array(BYTES).fill(i))));
    await expect.poll(() => received.length).toBe(CONNECTIONS);
    const overShm = endpoints.filter(({ messageTransport }) => messageTransport?.startsWith('posix/') === true);
    expect(overShm.length).toBe(1024);
    await one.close();
    await two.close();
  });

  it('beyond the limit are refused where nothing else is permitted', async () => {
    const [one, two] = [await open('self,posix'), await open('self,posix')];
    const [sender, receiver] = [one.worker(), two.worker()];
    const connect = (): unknown => Array.from({ length: CONNECTIONS }, () => sender.endpoint(receiver.address()));
    expect(connect).toThrow(/posix\/memory: the peer has 1024 senders over posix, which is the maximum/);
    await one.close();
    await two.close();
  });
});
