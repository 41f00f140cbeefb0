/**
 * Loads a checkpoint in the safetensors format into the HBM of eight cards: large tensors are sharded over all cards; small ones are loaded into
 * the first card and copied from there to all others, card to card. The example creates the file itself, reads every shard back and compares it.
 */

import { randomFillSync } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { type FileHandle, open, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Context, type Endpoint, type MemoryHandle, MemoryType, type RemoteKey } from '../src/index.ts';

const CARDS = 8;
const LAYERS = 4;
const HIDDEN = 1024;
const BFLOAT16_BYTES = 2;
/** Bytes of each read from the file. */
const CHUNK_BYTES = 2 ** 20;

/** A tensor of a safetensors header. Offsets count from the end of the header. */
interface Tensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/** Writes a file of layers: one large matrix and one norm vector each. */
async function makeCheckpoint(path: string): Promise<void> {
  const tensors: Record<string, Tensor> = {};
  let at = 0;
  const add = (name: string, shape: readonly number[]): void => {
    const end = at + shape.reduce((product, size) => product * size, BFLOAT16_BYTES);
    tensors[name] = { dtype: 'BF16', shape, data_offsets: [at, end] };
    at = end;
  };
  for (let layer = 0; layer < LAYERS; layer++) {
    add(`layers.${layer}.mlp.weight`, [HIDDEN, HIDDEN]);
    add(`layers.${layer}.norm.weight`, [HIDDEN]);
  }
  const header = Buffer.from(JSON.stringify(tensors));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.byteLength));
  const data = randomFillSync(new Uint8Array(at));
  await writeFile(path, Buffer.concat([length, header, data]));
}

/** Reads the header; returns the tensors and the offset of their data. */
async function readHeader(file: FileHandle): Promise<{ tensors: Record<string, Tensor>; dataStart: number }> {
  const length = Buffer.alloc(8);
  await file.read(length, 0, 8, 0);
  const header = Buffer.alloc(Number(length.readBigUInt64LE()));
  await file.read(header, 0, header.byteLength, 8);
  return { tensors: JSON.parse(header.toString()) as Record<string, Tensor>, dataStart: 8 + header.byteLength };
}

/** HBM of one card, filled from its beginning. */
interface Card {
  readonly memory: MemoryHandle;
  readonly rkey: RemoteKey;
  used: number;
}

/** A piece of a tensor on a card. */
interface Shard {
  readonly name: string;
  readonly card: number;
  readonly offset: number;
  readonly fileOffset: number;
  readonly byteLength: number;
}

/** Puts bytes of the file into the HBM of a card, chunk by chunk. */
async function load(endpoint: Endpoint, file: FileHandle, card: Card, { offset, fileOffset, byteLength }: Shard) {
  const buffer = new Uint8Array(Math.min(CHUNK_BYTES, byteLength));
  for (let done = 0; done < byteLength; done += buffer.byteLength) {
    const bytes = Math.min(buffer.byteLength, byteLength - done);
    await file.read(buffer, 0, bytes, fileOffset + done);
    await endpoint.put(buffer, card.rkey, { byteLength: bytes, remoteOffset: offset + done });
  }
}

/** Compares HBM with the file; returns whether they are equal. */
async function isSame(endpoint: Endpoint, file: FileHandle, card: Card, { offset, fileOffset, byteLength }: Shard) {
  const [there, here] = [new Uint8Array(byteLength), new Uint8Array(byteLength)];
  await endpoint.get(there, card.rkey, { remoteOffset: offset });
  await file.read(here, 0, byteLength, fileOffset);
  return Buffer.compare(there, here) === 0;
}

const folder = mkdtempSync(join(tmpdir(), 'checkpoint-'));
const path = join(folder, 'model.safetensors');
await makeCheckpoint(path);
const file = await open(path);
await using context = await Context.create({ env: { ...process.env, UCX_GAUDI_EMULATOR_CARDS: String(CARDS) } });
const worker = context.worker();
await using endpoint = worker.endpoint(worker.address());

const { tensors, dataStart } = await readHeader(file);
const { size } = await file.stat();
const cards = Array.from({ length: CARDS }, (_, sysDevice): Card => {
  const memory = context.memMap({ allocate: size, memoryType: MemoryType.GAUDI, sysDevice });
  return { memory, rkey: endpoint.unpackRkey(context.packRkey(memory)), used: 0 };
});

const shards: Shard[] = [];
let loaded = 0;
for (const [
  name,
  {
    shape,
    data_offsets: [begin, end],
  },
] of Object.entries(tensors)) {
  const isSharded = shape.length > 1;
  const byteLength = isSharded ? (end - begin) / CARDS : end - begin;
  const placed = cards.map((card, index): Shard => {
    const fileOffset = dataStart + begin + (isSharded ? index * byteLength : 0);
    const shard = { name, card: index, offset: card.used, fileOffset, byteLength };
    card.used += byteLength;
    return shard;
  });
  shards.push(...placed);
  if (isSharded) await Promise.all(placed.map((shard) => load(endpoint, file, cards[shard.card]!, shard)));
  else {
    // Read once from the file; then every card that has it copies it to another one, so that three rounds reach eight.
    await load(endpoint, file, cards[0]!, placed[0]!);
    for (let have = 1; have < CARDS; have *= 2) {
      await Promise.all(
        placed.slice(have, 2 * have).map(({ card, offset }) =>
          endpoint.put(cards[card - have]!.memory, cards[card]!.rkey, {
            offset: placed[card - have]!.offset,
            remoteOffset: offset,
            byteLength,
          }),
        ),
      );
    }
  }
  loaded += end - begin;
  const percent = Math.round((100 * loaded) / (size - dataStart));
  // A progress bar on a terminal, and none in a pipe.
  if (process.stdout.isTTY) {
    const bar = '#'.repeat(Math.round(percent / 4)).padEnd(25, '.');
    process.stdout.write(
      `\r[${bar}] ${String(percent).padStart(3)} % ${name.padEnd(30)}${percent === 100 ? '\n' : ''}`,
    );
  }
}

let same = 0;
for (const shard of shards) if (await isSame(endpoint, file, cards[shard.card]!, shard)) same += 1;
await file.close();
rmSync(folder, { recursive: true });
console.log(`${same} of ${shards.length} shards on ${CARDS} cards are as in the file`);
process.exitCode = same === shards.length ? 0 : 1;
