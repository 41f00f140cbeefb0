/** A store of bytes in the HBM of a card, which clients write and read by its remote key. It ends at SIGTERM. Arguments: its port, by default a free one. */

import { Context, MemoryType } from '../../src/index.ts';
import { HELLO, HELLO_BYTES, STORE_BYTES } from './store-client.ts';

const [port = '0'] = process.argv.slice(2);
const stop = new AbortController();
process.once('SIGTERM', () => stop.abort());

const context = await Context.create();
const worker = context.worker();
const hbm = context.memMap({ allocate: STORE_BYTES, memoryType: MemoryType.GAUDI });
const key = context.packRkey(hbm);
const answers = new Set<Promise<unknown>>();

// A client says hello on each connection, with the tag of its answer, and gets the remote key.
worker.setAmHandler(HELLO, ({ header, replyEndpoint }) => {
  if (header.byteLength !== HELLO_BYTES) return; // a handler that throws ends the process
  const tag = Buffer.from(header).readUInt32LE();
  const answer = replyEndpoint
    .tagSend(key, { tag, signal: AbortSignal.timeout(5000) })
    .catch((error: unknown) => console.error(`a client left before its answer: ${error}`))
    .finally(() => answers.delete(answer));
  answers.add(answer);
});
const listener = worker.listener({
  port: Number(port),
  onConnection: (request) => {
    try {
      request.accept({ onError: (client) => void client.close() }); // the client has left
    } catch (error) {
      console.error(`a client is rejected: ${error}`); // the others stay
    }
  },
});
console.log(`ready at port ${listener.port}`);

await worker.serve(stop.signal);
await listener.close(); // no new clients; from now on another process can listen on the port
await Promise.all(answers); // accepted requests get their replies
await context.close(); // tells the clients, and frees the card
console.log('ended');
