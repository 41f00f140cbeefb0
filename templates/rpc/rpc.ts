/**
 * Remote procedure calls by active messages: the header of a message has the number of the call and the name of the procedure, its data the arguments.
 *
 * `node dist/rpc.js serve [ADDRESS [PORT]]` in one terminal, `node dist/rpc.js call ADDRESS PORT PROCEDURE [ARGUMENTS]` in another.
 */

import { type AmMessage, type ConnectionRequest, Context, type Endpoint, type Worker } from 'gaudi-ucx';

/** Ids of the active messages. */
const CALL = 1;
const ANSWER = 2;
/** Longest wait for an answer: a procedure may never end. */
const ANSWER_MS = 10_000;

/** What the server can do. */
const PROCEDURES: Readonly<Record<string, (...args: string[]) => unknown>> = {
  add: (...terms) => terms.reduce((sum, term) => sum + Number(term), 0),
  upper: (text) => text.toUpperCase(),
};

interface Header {
  readonly number: number;
  readonly procedure?: string;
  readonly failed?: boolean;
}

/** JSON; of undefined, which has none, that of null. */
function pack(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value ?? null));
}

function headerOf({ header }: AmMessage): Header {
  return JSON.parse(Buffer.from(header).toString());
}

/** What a procedure returns, or why there is nothing: its caller gets either. */
async function outcomeOf(procedure: string, args: string): Promise<{ result: Uint8Array; failed: boolean }> {
  try {
    if (!Object.hasOwn(PROCEDURES, procedure)) throw new Error(`there is no procedure ${procedure}`);
    return { result: pack(await PROCEDURES[procedure]!(...JSON.parse(args))), failed: false };
  } catch (error) {
    return { result: pack(error instanceof Error ? error.message : String(error)), failed: true };
  }
}

/** Answers one call. */
async function answer(message: AmMessage): Promise<void> {
  const { number, procedure = '' } = headerOf(message);
  const { result, failed } = await outcomeOf(procedure, await message.text());
  await message.replyEndpoint.amSend(ANSWER, result, { header: pack({ number, failed }) });
}

/** Accepts a client, and closes its endpoint when it has left: endpoints that stay would add up. */
function accept(request: ConnectionRequest): void {
  try {
    request.accept({ onError: (client) => void client.close() });
  } catch (error) {
    // This client is rejected; what a callback throws would end the server.
    console.error(String(error));
  }
}

/** Answers all calls of all clients. */
async function serve(worker: Worker, address: string, port: number): Promise<void> {
  const listener = worker.listener({ address, port, onConnection: accept });
  console.log(`serving at ${address} ${listener.query().port}`);
  for await (const message of worker.messages(CALL)) {
    // A client that is gone gets no answer, and the others do.
    answer(message).catch((error: unknown) => console.error(String(error)));
  }
}

/** Calls procedures of a server; several calls may be in flight. */
class Client {
  readonly #server: Endpoint;
  readonly #waiting = new Map<number, (message: AmMessage) => void>();
  #calls = 0;

  constructor(worker: Worker, server: Endpoint) {
    this.#server = server;
    worker.setAmHandler(ANSWER, (message) => this.#waiting.get(headerOf(message).number)?.(message.retain()));
  }

  async call(procedure: string, ...args: readonly string[]): Promise<unknown> {
    const number = ++this.#calls;
    const signal = AbortSignal.timeout(ANSWER_MS);
    const arrived = new Promise<AmMessage>((resolve, reject) => {
      this.#waiting.set(number, resolve);
      signal.addEventListener('abort', () => reject(signal.reason));
    });
    try {
      const sent = this.#server.amSend(CALL, pack(args), { header: pack({ number, procedure }), signal });
      const [message] = await Promise.all([arrived, sent]);
      const result: unknown = JSON.parse(await message.text({ signal }));
      if (headerOf(message).failed === true) throw new Error(String(result));
      return result;
    } finally {
      this.#waiting.delete(number);
    }
  }
}

const [mode, address = '127.0.0.1', port = '0', procedure = '', ...args] = process.argv.slice(2);
await using context = await Context.create();
const worker = context.worker();
if (mode === 'call') {
  // The answer comes by a handler, which does not keep the process alive; this does.
  const done = new AbortController();
  const served = worker.serve(done.signal);
  await using server = await worker.connect({
    address,
    port: Number(port),
    onError: () => {
      console.error('the server is gone');
      process.exit(1);
    },
  });
  console.log(await new Client(worker, server).call(procedure, ...args));
  done.abort();
  await served;
} else {
  await serve(worker, address, Number(port));
}
