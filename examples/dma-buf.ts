/**
 * Dma-bufs: HBM of one program in the address space of another card and of an RDMA device, host memory as a dma-buf, and what is counted. The two contexts
 * stand for two programs; the descriptor of a real program goes to another process by `sendHandle`.
 *
 * The node is emulated, with four cards and two RDMA devices. On real cards, importing needs the vendor's driver.
 */

import { randomBytes } from 'node:crypto';
import { createEmulatedNode } from '../src/emulator/index.ts';
import { Context, isUcxError, type MemoryHandle, MemoryType } from '../src/index.ts';

const BYTES = 2 ** 20;

const node = createEmulatedNode({ cards: 4, nics: 2 });
/** A context with one card. */
const onCard = (card: number, TLS = 'all'): Promise<Context> =>
  Context.create({ node, config: { TLS, ACC_DEVICES: `gaudi${card}` } });

/** Copies bytes into memory of a context, by the card. */
async function write(context: Context, memory: MemoryHandle, source: Uint8Array): Promise<void> {
  const worker = context.worker();
  const itself = worker.endpoint(worker.address());
  await itself.put(source, itself.unpackRkey(context.packRkey(memory)));
}

/** Compares memory of a context with bytes, and tells what has read it. */
async function check(context: Context, memory: MemoryHandle, expected: Uint8Array): Promise<string> {
  const worker = context.worker();
  const itself = worker.endpoint(worker.address());
  const target = new Uint8Array(expected.byteLength);
  const { transport, device } = await itself.get(target, itself.unpackRkey(context.packRkey(memory)));
  if (Buffer.compare(target, expected) !== 0) throw new Error('other bytes came back');
  return `${transport}/${device}`;
}

const owner = await onCard(0);
const bytes = randomBytes(BYTES);
// In its own arena: who gets the dma-buf has access to the whole arena.
const memory = owner.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI, shared: true });
await write(owner, memory, bytes);

// Export: a descriptor, and where the memory is in it. Every export is another descriptor of the same dma-buf.
const exported = owner.exportDmabuf(memory);
console.log(`exported ${BYTES} bytes at offset ${exported.offset}`);

// Import: the other card maps the memory into its address space.
const importer = await onCard(1);
const mapped = importer.memMap({
  dmabuf: { fd: exported.fd, offset: exported.offset, byteLength: BYTES },
  memoryType: MemoryType.GAUDI,
});
exported.close();
console.log(`the same bytes by ${await check(importer, mapped, bytes)}`);

// An RDMA device: memMap exports and registers. Nothing is staged through host memory.
const [one, two] = [await onCard(2, 'rc,self,gaudi_cpy'), await onCard(3, 'rc,self,gaudi_cpy')];
const [hbm, far] = [one, two].map((context) => context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI }));
await write(one, hbm!, bytes);
const endpoint = one.worker().endpoint(two.worker().address());
const key = endpoint.unpackRkey(two.packRkey(far!));
const put = await endpoint.put(hbm!, key);
await endpoint.flush();
console.log(`HBM to HBM by ${put.protocol} over ${put.transport}/${put.device}`);
await check(two, far!, bytes);

// Host memory: only memory that was allocated for it, by /dev/udmabuf.
for (const host of [owner.memMap({ buffer: new Uint8Array(4096) }), owner.memMap({ allocate: 4096, shared: true })]) {
  try {
    owner.exportDmabuf(host).close();
    console.log('host memory was exported');
  } catch (error) {
    if (!isUcxError(error)) throw error;
    console.log(`${error.code}: ${error.message}`);
  }
}

for (const [name, context] of Object.entries({ owner, importer, two })) {
  for (const { owner: of, exports, imports, mappings, descriptors } of context.snapshot().dmabufs) {
    if (exports + imports === 0) continue;
    console.log(`${name}, ${of}: ${exports} exports, ${imports} imports, ${mappings} mapped, ${descriptors} kept open`);
  }
}

// The importer first: the driver keeps exported memory until all imports and descriptors have ended.
for (const context of [importer, one, two, owner]) await context.close();
node.close();
console.log('nothing is left');
