/**
 * Two processes of one machine. The second has a card and waits; the first has none: it puts bytes into the HBM of the second, sends it a tagged
 * message and active messages, and waits for the answer. Addresses and remote keys are sent over the channel of node:child_process; any other channel
 * works too.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { Context, type Endpoint, MemoryType } from '../src/index.ts';

const GREETING = { tag: 1 };
const ANSWER = { tag: 2 };
/** Id of the active messages. */
const LINE = 7;
const LINES = 3;
const BYTES = 2 ** 20;

/** What the first process needs of the second. */
interface Contact {
  readonly address: Uint8Array;
  readonly key: Uint8Array;
}

/** The first process. */
async function client(child: ChildProcess): Promise<void> {
  const [{ address, key }] = (await once(child, 'message')) as [Contact];
  await using context = await Context.create({ config: { TLS: 'self,posix,cma' } });
  const worker = context.worker();
  await using endpoint = worker.endpoint(address);
  const rkey = endpoint.unpackRkey(key);

  // Into the HBM of the other process. No transport of this process reaches it: the bytes are sent as messages, and the peer stores them.
  await endpoint.put(new Uint8Array(BYTES).fill(42), rkey);
  await endpoint.flush();

  await endpoint.tagSend(Buffer.from('hello'), GREETING);
  for (let line = 1; line <= LINES; line++) await endpoint.amSend(LINE, Buffer.from(`line ${line}`));

  // If the peer never answers, the wait ends, not the program.
  const answer = new Uint8Array(100);
  const { byteLength } = await worker.tagRecv(answer, { ...ANSWER, signal: AbortSignal.timeout(10_000) });
  console.log(`the answer, over ${endpoint.messageTransport}: ${Buffer.from(answer.subarray(0, byteLength))}`);
}

/** The second process. */
async function owner(): Promise<void> {
  await using context = await Context.create();
  const worker = context.worker();
  const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
  const contact: Contact = { address: worker.address(), key: context.packRkey(hbm) };
  process.send!(contact);

  // The first process may disconnect before it sends anything.
  const gone = new AbortController();
  process.once('disconnect', () => gone.abort());
  const { signal } = gone;

  // Active messages without a handler are dropped: the loop begins before the peer can send any.
  let peer: Endpoint | undefined;
  const lines: string[] = [];
  for await (const message of worker.messages(LINE, { signal })) {
    peer = message.replyEndpoint;
    lines.push(await message.text());
    if (lines.length === LINES) break;
  }

  // Tagged messages are kept until their receive.
  const greeting = new Uint8Array(100);
  const { byteLength } = await worker.tagRecv(greeting, { ...GREETING, signal });
  const hello = Buffer.from(greeting.subarray(0, byteLength)).toString();

  const itself = worker.endpoint(worker.address());
  const bytes = new Uint8Array(BYTES);
  await itself.get(bytes, itself.unpackRkey(contact.key));
  const isThere = bytes.every((byte) => byte === 42);
  const answer = `${hello}, ${lines.join(', ')}; the bytes ${isThere ? 'are' : 'are not'} in the HBM`;
  await peer!.tagSendSync(Buffer.from(answer), { ...ANSWER, signal });
  process.disconnect?.();
}

if (process.argv[2] === 'owner') await owner();
else {
  const child = fork(import.meta.filename, ['owner'], { serialization: 'advanced' });
  await client(child);
  const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
  process.exitCode = Number(code);
}
