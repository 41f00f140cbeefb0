/** A server that keeps the endpoints of clients which have left: what they used is released when they close, over both engines. */

import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import type { Endpoint } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const CLIENTS = 12;
const CONNECTIONS = [
  ['native', 'self,posix,cma'],
  ['native', 'self,tcp'],
  ['libucx', 'self,tcp'],
] as const;

interface Resources {
  readonly descriptors: number;
  readonly mappings: number;
}

/** Descriptors of this process, and mappings of files of this library. */
function resources(): Resources {
  const maps = readFileSync('/proc/self/maps', 'latin1').split('\n');
  return {
    descriptors: readdirSync('/proc/self/fd').length,
    mappings: maps.filter((line) => line.includes('gaudi_ucx')).length,
  };
}

describe.each(CONNECTIONS)('clients over the engine %s and %s', (engine, tls) => {
  const fixture = useContexts();

  it.skipIf(engine === 'libucx' && installedLibucp().libucp === undefined)(
    'leave nothing behind at a server that accepts them and keeps their endpoints',
    async () => {
      const options = { context: { engine, env: { UCX_TLS: tls } } };
      const [one, two] = [await fixture.open(options), await fixture.open(options)];
      const accepted: Endpoint[] = [];
      const bytes: Uint8Array[] = [];
      const stop = new AbortController();
      const served = one.worker.serve(stop.signal);
      one.worker.setAmHandler(1, (message) => bytes.push(message.header.slice()));
      const listener = one.worker.listener({ onConnection: (request) => accepted.push(request.accept()) });
      const counts: Resources[] = [];
      for (let index = 0; index < CLIENTS; index++) {
        const client = two.context.worker();
        const endpoint = await client.connect({ address: '127.0.0.1', port: listener.port });
        await endpoint.amSend(1, new Uint8Array(0), { header: Uint8Array.of(index) });
        await endpoint.flush();
        await endpoint.close();
        await client.close();
        while (accepted[index]?.status === 0) await new Promise(setImmediate);
        counts.push(resources());
      }
      expect(bytes).toEqual(Array.from({ length: CLIENTS }, (_, index) => Uint8Array.of(index)));
      // Tables that exist once may grow with the first clients; sockets of the last one may close a little later.
      await vi.waitFor(() => {
        const { descriptors, mappings } = resources();
        expect(descriptors).toBeLessThanOrEqual(counts[2]!.descriptors);
        expect(mappings).toBeLessThanOrEqual(counts[2]!.mappings);
      });
      for (const endpoint of accepted) await endpoint.close();
      stop.abort();
      await served;
      await listener.close();
    },
  );
});
