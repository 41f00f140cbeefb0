/**
 * Transfers a KV cache from a prefill process to a decode process on another node: paged blocks of many layers, from the HBM of one card to that of
 * the other,
 * as one batch with one completion, and a report of the time of every transfer. Both nodes are emulated; each process has its own.
 *
 * The decode process listens and announces its free pages; the prefill process puts the blocks there, in any order, and sends the table of blocks
 * when all have arrived.
 */

import { fork } from 'node:child_process';
import { createHash, randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { Context, type Endpoint, type MemoryHandle, MemoryType, type TransferResult } from '../src/index.ts';

const LAYERS = 32;
/** Pages of each layer that the request fills, out of those of the decode process. */
const PAGES_USED = 6;
const PAGES = 8;
const PAGE_BYTES = 64 * 1024;
const LAYER_BYTES = PAGES * PAGE_BYTES;

/** Tags of the messages. */
const POOL = { tag: 1 };
const TABLE = { tag: 2 };
const VERDICT = { tag: 3 };

/** A context as on a node of its own: it shares only the network of the machine. */
function onOwnNode(): Promise<Context> {
  return Context.create({ config: { TLS: 'tcp,gaudi_cpy,self' }, env: { UCX_GAUDI_DRIVER: 'emulator' } });
}

/** One block: its local offset, and its destination. */
interface Block {
  readonly layer: number;
  readonly page: number;
  readonly targetPage: number;
}

async function prefill(port: number): Promise<void> {
  await using context = await onOwnNode();
  const worker = context.worker();
  const cache = context.memMap({ allocate: LAYERS * LAYER_BYTES, memoryType: MemoryType.GAUDI });
  const bytes = randomFillSync(new Uint8Array(LAYERS * LAYER_BYTES));
  await copy(worker.endpoint(worker.address()), context, cache, bytes, 'put');

  await using endpoint = await worker.connect({ address: '127.0.0.1', port });
  const { key, freePages } = await receiveJson<{ readonly key: string; readonly freePages: number[] }>(worker, POOL);
  const rkey = endpoint.unpackRkey(Buffer.from(key, 'hex'));
  const blocks: Block[] = [];
  for (let layer = 0; layer < LAYERS; layer++) {
    for (let page = 0; page < PAGES_USED; page++) blocks.push({ layer, page, targetPage: freePages[page]! });
  }

  // One batch, one completion: then every block is in the HBM of the peer.
  let done = 0;
  const results = await Promise.all(
    blocks.map(async ({ layer, page, targetPage }) => {
      const result = await endpoint.put(cache, rkey, {
        localOffset: layer * LAYER_BYTES + page * PAGE_BYTES,
        remoteOffset: layer * LAYER_BYTES + targetPage * PAGE_BYTES,
        byteLength: PAGE_BYTES,
      });
      done += 1;
      if (done % 64 === 0) console.log(`${done} of ${blocks.length} blocks have arrived`);
      return result;
    }),
  );
  report(results);

  const table = blocks.map(({ layer, page, targetPage }) => {
    const start = layer * LAYER_BYTES + page * PAGE_BYTES;
    return { layer, page: targetPage, digest: digestOf(bytes.subarray(start, start + PAGE_BYTES)) };
  });
  await endpoint.tagSend(Buffer.from(JSON.stringify(table)), TABLE);
  const { good } = await receiveJson<{ readonly good: number }>(worker, VERDICT);
  console.log(`${good} of ${blocks.length} blocks are in the HBM of the decode process as they were`);
}

/** Prints the time of the transfers of the batch, by transport and protocol. */
function report(results: readonly TransferResult[]): void {
  const ways = new Map<string, number>();
  for (const { transport, device, protocol } of results) {
    const way = `${transport}/${device} (${protocol})`;
    ways.set(way, (ways.get(way) ?? 0) + 1);
  }
  for (const [way, count] of ways) console.log(`${count} blocks of ${PAGE_BYTES / 1024} KiB by ${way}`);
}

async function decode(): Promise<void> {
  await using context = await onOwnNode();
  const worker = context.worker();
  const pool = context.memMap({ allocate: LAYERS * LAYER_BYTES, memoryType: MemoryType.GAUDI });
  await using listener = worker.listener();
  process.send!(listener.port);

  // The first client is the prefill process; it may disconnect before it has sent anything.
  const gone = new AbortController();
  process.once('disconnect', () => gone.abort());
  const request = await listener.next({ signal: gone.signal });
  if (request === undefined) return;
  const endpoint = request.accept();
  // Pages are used in the order in which they became free.
  const freePages = [5, 0, 7, 2, 6, 3];
  const contact = { key: Buffer.from(context.packRkey(pool)).toString('hex'), freePages };
  await endpoint.tagSend(Buffer.from(JSON.stringify(contact)), POOL);

  type Entry = { readonly layer: number; readonly page: number; readonly digest: string };
  const table = await receiveJson<Entry[]>(worker, TABLE);
  const bytes = new Uint8Array(LAYERS * LAYER_BYTES);
  await copy(worker.endpoint(worker.address()), context, pool, bytes, 'get');
  const good = table.filter(({ layer, page, digest }) => {
    const start = layer * LAYER_BYTES + page * PAGE_BYTES;
    return digestOf(bytes.subarray(start, start + PAGE_BYTES)) === digest;
  });
  await endpoint.tagSendSync(Buffer.from(JSON.stringify({ good: good.length })), VERDICT);
  process.disconnect();
}

/** Fills device memory of this process, or reads it. */
async function copy(
  endpoint: Endpoint,
  context: Context,
  memory: MemoryHandle,
  bytes: Uint8Array,
  operation: 'put' | 'get',
): Promise<void> {
  const rkey = endpoint.unpackRkey(context.packRkey(memory));
  await endpoint[operation](bytes, rkey);
  rkey.release();
}

async function receiveJson<T>(worker: ReturnType<Context['worker']>, tag: { readonly tag: number }): Promise<T> {
  const text = new Uint8Array(2 ** 20);
  const { byteLength } = await worker.tagRecv(text, tag);
  return JSON.parse(Buffer.from(text.subarray(0, byteLength)).toString()) as T;
}

function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

if (process.argv[2] === 'decode') await decode();
else {
  const child = fork(import.meta.filename, ['decode']);
  const [port] = (await once(child, 'message')) as [number];
  await prefill(port);
  const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
  process.exitCode = Number(code);
}
