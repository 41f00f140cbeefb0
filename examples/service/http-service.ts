/**
 * Blocks of the store over HTTP, by Fastify, in two processes of a cluster that share one port. Arguments: the port of the store, and that of HTTP, by
 * default a free one.
 */

import cluster from 'node:cluster';
import fastify, { type FastifyInstance } from 'fastify';
import { Context } from '../../src/index.ts';
import { STORE_BYTES, StoreClient } from './store-client.ts';

const PROCESSES = 2;
const BLOCK_BYTES = 65_536;
const REQUEST_MS = 2000;
const IN_FLIGHT_MAX = 16;
const BINARY = 'application/octet-stream';

/** The routes. The context ends with them. */
async function service(storePort: number): Promise<FastifyInstance> {
  // Without its own card, and with all processes of the machine at the same time.
  const context = await Context.create({ config: { TLS: 'self,posix,cma,tcp' } });
  const store = new StoreClient(context.worker(), storePort);
  const app = fastify({ bodyLimit: BLOCK_BYTES });
  app.addHook('onClose', () => context.close());
  app.addContentTypeParser(BINARY, { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  // Back-pressure: a request holds its bytes until the card has them. Beyond the limit clients are told to come again.
  let inFlight = 0;
  app.addHook('onRequest', async (_request, reply) => {
    inFlight += 1;
    if (inFlight > IN_FLIGHT_MAX) await reply.code(503).header('retry-after', '1').send('too many requests\n');
  });
  app.addHook('onResponse', async () => {
    inFlight -= 1;
  });

  app.setErrorHandler(async (error: Error & { readonly statusCode?: number }, _request, reply) => {
    const isLate = error.name === 'TimeoutError';
    await reply.code(isLate ? 504 : (error.statusCode ?? 500)).send(`${error.message}\n`);
  });

  const schema = {
    params: {
      type: 'object',
      properties: { block: { type: 'integer', minimum: 0, maximum: STORE_BYTES / BLOCK_BYTES - 1 } },
    },
  } as const;
  type Route = { readonly Params: { readonly block: number }; readonly Body: Buffer };
  app.put<Route>('/blocks/:block', { schema }, async ({ params, body }, reply) => {
    await store.write(params.block * BLOCK_BYTES, body, AbortSignal.timeout(REQUEST_MS));
    await reply.code(204).send();
  });
  app.get<Route>('/blocks/:block', { schema }, async ({ params }, reply) => {
    const bytes = Buffer.alloc(BLOCK_BYTES);
    await store.read(params.block * BLOCK_BYTES, bytes, AbortSignal.timeout(REQUEST_MS));
    await reply.type(BINARY).send(bytes);
  });
  return app;
}

const [storePort = '', httpPort = '0'] = process.argv.slice(2);
if (cluster.isPrimary) {
  // It has no context: each process makes its own after the fork.
  let isEnding = false;
  process.once('SIGTERM', () => {
    isEnding = true;
    for (const worker of Object.values(cluster.workers ?? {})) worker?.kill('SIGTERM');
  });
  cluster.on('exit', () => {
    if (!isEnding) cluster.fork();
  });
  cluster.on('message', (_worker, line: string) => console.log(line));
  for (let index = 0; index < PROCESSES; index++) cluster.fork();
} else {
  const app = await service(Number(storePort));
  process.once('SIGTERM', async () => {
    await app.close(); // no new requests; those in flight are answered; then the context closes
    process.disconnect?.();
  });
  const url = await app.listen({ port: Number(httpPort) });
  process.send!(`process ${process.pid} at ${url}`);
}
