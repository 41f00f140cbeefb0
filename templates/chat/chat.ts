/**
 * A chat of two programs, on one machine or on two: lines of standard input go to the peer as active messages, and its lines to standard output.
 *
 * `node dist/chat.js listen [ADDRESS [PORT]]` in one terminal, `node dist/chat.js connect ADDRESS PORT` in another. The end of the input ends the chat.
 */

import { createInterface } from 'node:readline';
import { Context, type Endpoint, type Worker } from 'gaudi-ucx';

/** Id of the active messages. */
const LINE = 1;

/** Meets the peer; `onEnd` is called when it has left. */
async function meet(
  worker: Worker,
  [mode, address = '127.0.0.1', port = '0']: string[],
  onEnd: () => void,
): Promise<Endpoint> {
  const onError = (endpoint: Endpoint): void => {
    console.error(endpoint.closedByPeer === false ? 'the connection is lost' : 'the peer has left');
    onEnd();
  };
  if (mode === 'connect') return await worker.connect({ address, port: Number(port), onError });
  const listener = worker.listener({ address, port: Number(port) });
  console.error(`waiting at ${address} ${listener.query().port}`);
  for await (const request of listener) {
    try {
      const endpoint = request.accept({ onError });
      await listener.close();
      return endpoint;
    } catch (error) {
      console.error(`a peer is rejected: ${error}`); // it has no transport in common, or has left: another one may come
    }
  }
  throw new Error('the listener has closed before a peer came');
}

await using context = await Context.create();
const worker = context.worker();
const left = new AbortController();
// Before the peer can send: active messages without a handler are dropped.
const messages = worker.messages(LINE);
const peer = await meet(worker, process.argv.slice(2), () => {
  left.abort();
  void messages.return();
});

async function listen(): Promise<void> {
  for await (const message of messages) console.log(await message.text());
}

async function talk(): Promise<void> {
  // Not before the loop: lines that come without a reader are lost.
  const input = createInterface({ input: process.stdin, signal: left.signal });
  for await (const line of input) await peer.amSend(LINE, Buffer.from(line));
  await peer.close();
  await messages.return();
}

await Promise.all([listen(), talk()]);
