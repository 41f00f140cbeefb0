/** Writes host memory to the HBM of a card and reads it back. Runs on the emulated node if there is no card. */

import { Context, MemoryType } from '../src/index.ts';

const context = await Context.create();
const worker = context.worker();
const endpoint = worker.endpoint(worker.address()); // to the worker itself

// 1 MiB of HBM on the first card; its remote key is what a peer needs to reach it.
const hbm = context.memMap({ allocate: 2 ** 20, memoryType: MemoryType.GAUDI, sysDevice: 0 });
const rkey = endpoint.unpackRkey(context.packRkey(hbm));

const source = new Uint8Array(2 ** 20).fill(42);
const put = await endpoint.put(source, rkey);
console.log(`put ${put.byteLength} bytes by ${put.transport} (${put.protocol}) on ${put.device}`);

const target = new Uint8Array(2 ** 20);
await endpoint.get(target, rkey);
console.log(Buffer.compare(source, target) === 0 ? 'the same bytes came back' : 'the bytes differ');

await context.close(); // with its worker, its endpoint and its memory
