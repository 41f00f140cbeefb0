/**
 * Device memory of one process, used by another process with another card: first by hand with IPC handles (wrap, send, open, transfer, close), then by remote
 * keys of gaudi_ipc, which do the same behind a put. The first process serves an emulated node to the second; on a real node both would call
 * `openDriverNode()`, and nothing else changes.
 */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectEmulatedNode, NodeServer } from '../src/emulator/index.ts';
import * as hlthunk from '../src/hlthunk.ts';
import { Context, isUcxError, MemoryType, Status, type UcxError } from '../src/index.ts';

const BYTES = 2 ** 20;

/** Polls until a transfer has ended, and throws its error. */
function finish(device: hlthunk.Device, request: hlthunk.DmaRequest | undefined): void {
  if (request === undefined) throw new Error('too many transfers in flight');
  let status = hlthunk.dmaPoll(device, request);
  while (status === Status.INPROGRESS) status = hlthunk.dmaPoll(device, request);
  hlthunk.dmaRequestFree(device, request);
  if (status !== Status.OK) throw device.dma.errorOf(status);
}

/** Copies between pinned host memory and device memory. */
function copy(device: hlthunk.Device, memory: hlthunk.DmaMemory, direction: 'in' | 'out', byte = 0): Uint8Array {
  const buffer = hlthunk.malloc(BYTES);
  buffer.bytes.fill(byte);
  const host = hlthunk.hostMemoryMap(device, buffer.address, BYTES);
  finish(
    device,
    direction === 'in'
      ? hlthunk.dmaHostToDeviceAsync(device, host, 0, memory, 0, BYTES)
      : hlthunk.dmaDeviceToHostAsync(device, memory, 0, host, 0, BYTES),
  );
  const bytes = buffer.bytes.slice();
  host.unmap();
  hlthunk.free(buffer);
  return bytes;
}

/** The process that owns the memory. */
async function owner(folder: string): Promise<void> {
  const server = new NodeServer({ node: { cards: 2 }, socketPath: join(folder, 'node') });
  const { node } = server;
  const child = fork(import.meta.filename, ['importer', folder], { serialization: 'advanced' });
  const exited = once(child, 'exit');
  const next = async (): Promise<{ readonly address: Uint8Array }> => (await once(child, 'message'))[0];

  // By hand. The block has its own arena, because the other process gets access to a whole arena.
  const device = hlthunk.open(node, { busId: node.cards()[0]!.busId });
  const block = device.memory.allocate(BYTES, { dedicated: true });
  copy(device, block, 'in', 42);
  const wrapped = hlthunk.ipcWrapHandle(device, block);
  await next(); // the other process waits at the path
  await hlthunk.sendHandle(join(folder, 'handle'), wrapped, { signal: AbortSignal.timeout(10_000) });
  closeSync(wrapped.fd);
  await next(); // it has closed the handle
  block.free();

  // By a remote key.
  const context = await Context.create({ devices: [device], config: { TLS: 'gaudi,posix,self' } });
  const worker = context.worker();
  const memory = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
  child.send({ address: worker.address(), key: context.packRkey(memory) });
  await next(); // it has put
  const itself = worker.endpoint(worker.address());
  const bytes = new Uint8Array(BYTES);
  await itself.get(bytes, itself.unpackRkey(context.packRkey(memory)));
  if (!bytes.every((byte) => byte === 7)) throw new Error('other bytes were put');
  console.log('the owner has the bytes of the put');

  // The key is stale from now on: the other process notices before its next transfer.
  context.memUnmap(memory);
  child.send('unmapped');
  const [code] = await exited;
  process.exitCode = Number(code);
  await context.close();
  device.close();
  server.close();
  await server.closed;
}

/** The process that uses the memory. */
async function importer(folder: string): Promise<void> {
  const node = connectEmulatedNode(join(folder, 'node'));
  const device = hlthunk.open(node, { busId: node.cards()[1]!.busId });

  const receiving = hlthunk.receiveHandle(join(folder, 'handle'), { signal: AbortSignal.timeout(10_000) });
  process.send!('ready');
  const { fd, handle } = await receiving;
  const { busId, byteLength, offset } = hlthunk.ipcInspectHandle(handle);
  console.log(`a handle of ${byteLength} bytes at offset ${offset} of the card at ${busId}`);
  const mapping = hlthunk.ipcOpenHandle(device, fd, handle);
  closeSync(fd);
  if (!copy(device, mapping, 'out').every((byte) => byte === 42)) throw new Error('other bytes were read');
  console.log('card 1 reads the bytes of card 0');
  hlthunk.ipcCloseHandle(mapping);
  process.send!('closed');

  const contact = once(process, 'message');
  const context = await Context.create({ devices: [device], config: { TLS: 'gaudi,posix,self' } });
  const worker = context.worker();
  const [{ address, key }] = (await contact) as [{ readonly address: Uint8Array; readonly key: Uint8Array }];
  const endpoint = worker.endpoint(address);
  const rkey = endpoint.unpackRkey(key);
  const put = await endpoint.put(new Uint8Array(BYTES).fill(7), rkey);
  await endpoint.flush();
  for (const { id, remote, puts, bytesPut } of context.snapshot().channels) {
    console.log(`${put.transport}: channel ${id} to the card at ${remote}, ${puts} put of ${bytesPut} bytes`);
  }
  const part = rkey.describe().find(({ md }) => md === 'gaudi_ipc');
  console.log(`the key is of the card at ${part?.source?.busId}, channels ${part?.source?.channels.join(', ')}`);
  const unmapped = once(process, 'message');
  process.send!('put');
  await unmapped;
  try {
    await endpoint.put(new Uint8Array(8), rkey);
  } catch (error) {
    if (!isUcxError(error)) throw error;
    console.log(`after memUnmap: ${error.code}, because of ${(error.cause as UcxError).code}`);
  }
  await context.close();
  device.close();
  node.close();
  process.disconnect?.();
}

if (process.argv[2] === 'importer') await importer(process.argv[3]!);
else {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ipc-'));
  try {
    await owner(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
  console.log('both processes have released the memory');
}
