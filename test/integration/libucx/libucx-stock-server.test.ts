/**
 * A plain UCX server of the same machine with the transports that libucp selects by default, shared memory among them: it serves a client of the engine
 * libucx in each of its modes, lives on, and serves the next.
 */

import { describe, expect, it } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import {
  type ClientServerMode,
  clientServerMessage,
  compileClientServer,
  startClientServerServer,
} from '../../fixtures/libucp/ucx-programs.ts';

const { skipReason } = installedLibucp();
const example = skipReason === undefined ? compileClientServer() : { reason: skipReason };

const SIZE = 100;
const CLIENTS = 2;
const ALL_TRANSPORTS = { UCX_TLS: 'all', UCX_NET_DEVICES: 'all' };

const contexts = useContexts();

describe.skipIf(example.reason !== undefined)(
  `ucp_client_server over the transports of its choice (${example.reason ?? 'libucx-dev'})`,
  () => {
    it.each<ClientServerMode>(['stream', 'tag', 'am'])('receives %s messages of clients in turn', async (mode) => {
      const { program, port } = await startClientServerServer(example.path!, { mode, size: SIZE, env: ALL_TRANSPORTS });
      const message = clientServerMessage({ size: SIZE });
      const text = Buffer.from(message).toString('latin1').slice(0, -1);
      for (let client = 1; client <= CLIENTS; client++) {
        const { context } = await contexts.openOn(contexts.node(), { engine: 'libucx', features: [mode], env: {} });
        const endpoint = await context.worker().connect({ address: '127.0.0.1', port });
        if (mode === 'stream') await endpoint.streamSend(message);
        else if (mode === 'tag') await endpoint.tagSend(message, { tag: 0xcafe });
        else await endpoint.amSend(0, message);
        await program.waitFor(new RegExp(`(${text}[^]*){${client}}Waiting for connection`));
        await endpoint.close({ force: true });
      }
      expect(program.output).not.toMatch(/Assertion|signal/);
      await program.stop();
    });

    it('does not match a client with other features, which hears why', async () => {
      const { program, port } = await startClientServerServer(example.path!, { mode: 'stream', env: ALL_TRANSPORTS });
      const { context } = await contexts.openOn(contexts.node(), { engine: 'libucx', env: {} });
      await expect(context.worker().connect({ address: '127.0.0.1', port })).rejects.toMatchObject({
        code: 'ERR_UNREACHABLE',
        message: expect.stringMatching(/option features.*this context has tag, rma, amo32, amo64, stream, am\)/),
      });
      await program.stop();
    });
  },
);
