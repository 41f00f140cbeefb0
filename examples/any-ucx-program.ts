/**
 * A message over the UCX library of this machine if it is installed (Debian: apt install libucx0), else over the transports of this package: the
 * program is the
 * same. The client could also be `ucp_client_server -c tag -a 127.0.0.1 -p <port>` of UCX's examples, or any other program that uses UCX.
 */

import { Context } from '../src/index.ts';

await using context = await Context.create({ engine: 'auto', config: { TLS: 'tcp,self', NET_DEVICES: 'lo' } });
const { name, version, reason } = context.engine;
console.log(`engine ${name} ${version} (${reason})`);

const [server, client] = [context.worker(), context.worker()];
await using listener = server.listener({ port: 0 });

const connecting = client.connect({ address: '127.0.0.1', port: listener.port });
for await (const request of listener) {
  request.accept();
  break;
}
await using endpoint = await connecting;

const received = new Uint8Array(100);
const [{ byteLength }] = await Promise.all([
  server.tagRecv(received, { tag: 0xcafe }),
  endpoint.tagSend(Buffer.from('hello'), { tag: 0xcafe }),
]);
console.log(`${Buffer.from(received.subarray(0, byteLength)).toString()} over ${name}`);
