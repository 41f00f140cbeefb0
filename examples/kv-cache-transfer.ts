/**
 * Transfers a KV cache from a prefill process to a decode process on another node: paged blocks of many layers, from the HBM of one card to that of
 * the other, one list for each layer. With each list goes a notification: when it comes, the layer is in the HBM of the decode process, which can start on
 * it while the others are on their way. Both nodes are emulated; each process has its own.
 *
 * Without arguments it starts both processes. On two hosts: `decode ADDRESS` prints its port, `prefill ADDRESS PORT` connects to it.
 */

import { fork } from 'node:child_process';
import { createHash, randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { Context, type Endpoint, type MemoryHandle, MemoryType } from '../src/index.ts';

const LAYERS = 32;
/** Pages of each layer that the request fills, out of those of the decode process, which has used some of them already. */
const PAGES_USED = 6;
const PAGES = 8;
const PAGE_BYTES = 64 * 1024;
const LAYER_BYTES = PAGES * PAGE_BYTES;
const FREE_PAGES = [5, 0, 7, 2, 6, 3];

/** What the notification of a layer says: the layer, and the digest of each of its pages. */
interface Layer {
  readonly layer: number;
  readonly digests: readonly string[];
}

/** A context as on a separate node: it shares only the network of the machine. */
function onOwnNode(): Promise<Context> {
  return Context.create({ config: { TLS: 'tcp,gaudi_cpy,self' }, env: { UCX_GAUDI_DRIVER: 'emulator' } });
}

async function prefill(address: string, port: number): Promise<void> {
  await using context = await onOwnNode();
  const worker = context.worker();
  const cache = context.memMap({ allocate: LAYERS * LAYER_BYTES, memoryType: MemoryType.GAUDI });
  const bytes = randomFillSync(new Uint8Array(LAYERS * LAYER_BYTES));
  await copy(worker.endpoint(worker.address()), context, cache, bytes, 'put');

  // A wait for a notification does not end with the connection on which it is expected.
  const gone = new AbortController();
  await using endpoint = await worker.connect({ address, port, onError: () => gone.abort() });
  const pool = await nextJson<{ readonly key: string; readonly freePages: readonly number[] }>(worker, gone.signal);
  const rkey = endpoint.unpackRkey(Buffer.from(pool.key, 'hex'));
  const started = performance.now();
  const layers = Array.from({ length: LAYERS }, (_, layer) => {
    const pages = pool.freePages.map((target, page) => ({
      local: cache,
      offset: layer * LAYER_BYTES + page * PAGE_BYTES,
      rkey,
      remoteOffset: layer * LAYER_BYTES + target * PAGE_BYTES,
      byteLength: PAGE_BYTES,
    }));
    const digests = pages.map(({ offset }) => digestOf(bytes.subarray(offset, offset + PAGE_BYTES)));
    return endpoint.putList(pages, { notify: json({ layer, digests }) });
  });
  const [first] = await Promise.all(layers);
  const ms = (performance.now() - started).toFixed(1);
  console.log(`${LAYERS} layers in ${ms} ms by ${first!.transport}/${first!.device} (${first!.protocol})`);
  const { good } = await nextJson<{ readonly good: number }>(worker, gone.signal);
  const count = LAYERS * PAGES_USED;
  console.log(`${good} of ${count} blocks are in the HBM of the decode process as they were`);
  process.exitCode = good === count ? 0 : 1;
}

async function decode(address: string, tellPort: (port: number) => void): Promise<void> {
  await using context = await onOwnNode();
  const worker = context.worker();
  const pool = context.memMap({ allocate: LAYERS * LAYER_BYTES, memoryType: MemoryType.GAUDI });
  await using listener = worker.listener({ address });
  tellPort(listener.port);

  // The first client is the prefill process; it may disconnect before it has sent anything, or in between.
  const gone = new AbortController();
  process.once('disconnect', () => gone.abort());
  const request = await listener.next({ signal: gone.signal });
  if (request === undefined) return;
  const endpoint = request.accept({ onError: () => gone.abort() });
  await endpoint.notify(json({ key: Buffer.from(context.packRkey(pool)).toString('hex'), freePages: FREE_PAGES }));

  const self = worker.endpoint(worker.address());
  const bytes = new Uint8Array(LAYERS * LAYER_BYTES);
  let good = 0;
  for (let count = 0; count < LAYERS; count++) {
    const { layer, digests } = await nextJson<Layer>(worker, gone.signal);
    // Everything that the notification stands for is in the HBM.
    await copy(self, context, pool, bytes, 'get');
    for (const [page, digest] of digests.entries()) {
      const start = layer * LAYER_BYTES + FREE_PAGES[page]! * PAGE_BYTES;
      if (digestOf(bytes.subarray(start, start + PAGE_BYTES)) === digest) good += 1;
    }
  }
  await endpoint.notify(json({ good }));
  // The prefill process closes the connection when it has the result.
  await worker.serve(gone.signal);
  await endpoint.close();
  if (process.connected) process.disconnect?.();
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

function json(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value));
}

/** The next notification. Rejects with an AbortError once the other process is gone. */
async function nextJson<T>(worker: ReturnType<Context['worker']>, signal: AbortSignal): Promise<T> {
  const { value } = await worker.notifications({ signal }).next();
  return JSON.parse(Buffer.from(value!.bytes).toString()) as T;
}

function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

const [role, address = '127.0.0.1', port] = process.argv.slice(2);
if (role === 'decode')
  await decode(address, (own) => (process.send === undefined ? console.log(own) : process.send(own)));
else if (role === 'prefill') await prefill(address, Number(port));
else {
  const child = fork(import.meta.filename, ['decode']);
  const [listening] = (await once(child, 'message')) as [number];
  await prefill(address, listening);
  const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
  process.exitCode ||= Number(code);
}
