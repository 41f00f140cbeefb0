/**
 * Copies a file by way of two cards, with progress: into the HBM of the first, from there into the HBM of the second, and back into a file.
 *
 * `node dist/hbm-copy.js SOURCE TARGET`
 */

import { open } from 'node:fs/promises';
import { Context, type MemoryHandle } from 'gaudi-ucx';

/** Bytes that are moved at once. */
const PIECE_BYTES = 16 * 2 ** 20;

/** Moves `bytes` piece by piece, and shows how far it is. */
async function inPieces(
  name: string,
  bytes: number,
  move: (offset: number, length: number) => Promise<unknown>,
): Promise<void> {
  for (let offset = 0; offset < bytes; ) {
    const length = Math.min(PIECE_BYTES, bytes - offset);
    await move(offset, length);
    offset += length;
    console.log(`${name}: ${Math.floor((offset / bytes) * 100)} %`);
  }
}

const [sourcePath, targetPath] = process.argv.slice(2);
if (sourcePath === undefined || targetPath === undefined) {
  console.error('usage: node dist/hbm-copy.js SOURCE TARGET');
  process.exit(2);
}
const source = await open(sourcePath, 'r');
const target = await open(targetPath, 'w');
const { size } = await source.stat();

await using context = await Context.create();
const hbmOf = (sysDevice: number): MemoryHandle =>
  context.memMap({ allocate: Math.max(size, 1), memoryType: 'gaudi', sysDevice });
const [first, second] = [hbmOf(0), hbmOf(1)];
const piece = new Uint8Array(PIECE_BYTES);

await inPieces('file to card 0', size, async (offset, length) => {
  const { bytesRead } = await source.read(piece, 0, length, offset);
  if (bytesRead < length) throw new Error(`${sourcePath} has changed while it was read`);
  await first.write(piece.subarray(0, length), { offset });
});
await inPieces('card 0 to card 1', size, (offset, byteLength) =>
  first.copyTo(second, { offset, byteLength, targetOffset: offset }),
);
await inPieces('card 1 to file', size, async (offset, length) => {
  await target.write(await second.read(piece.subarray(0, length), { offset }), 0, length, offset);
});
await Promise.all([source.close(), target.close()]);
