/** Tests of a program with the test runner of Node.js, on an emulated node of their own. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { createEmulatedNode, type EmulatedNode } from '../../src/emulator/index.ts';
import { Context } from '../../src/index.ts';
import { BlockStore } from './block-store.ts';

let node: EmulatedNode;
let context: Context;

beforeEach(async () => {
  node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
  context = await Context.create({ node });
});

afterEach(async () => {
  await context.close();
  node.close();
});

test('a block is read as it was written', async () => {
  const store = new BlockStore(context);
  const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i & 0xff);
  await store.write('a', bytes);
  assert.deepEqual(await store.read('a'), bytes);
});

test('a write that the card fails is an error, and leaves no HBM in use', async () => {
  const store = new BlockStore(context);
  node.inject(node.cards()[0]!.minor, { kind: 'malfunction' });
  await assert.rejects(store.write('a', new Uint8Array(100_000)), { code: 'ERR_GAUDI_DMA_FAILED' });
  assert.deepEqual(context.snapshot().memory, []);
});
