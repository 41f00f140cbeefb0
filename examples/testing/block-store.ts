/** The program under test of docs/guide/testing-your-program.md: blocks in the HBM of a card, by name. */

import type { Context, Endpoint, MemoryHandle } from '../../src/index.ts';

/** Blocks of one context, in the HBM of its card. */
export class BlockStore {
  readonly #context: Context;
  readonly #endpoint: Endpoint;
  readonly #blocks: Map<string, MemoryHandle> = new Map();

  constructor(context: Context) {
    this.#context = context;
    const worker = context.worker();
    this.#endpoint = worker.endpoint(worker.address());
  }

  /** Writes a block. A failed write leaves no block, and no HBM in use. */
  async write(name: string, bytes: Uint8Array): Promise<void> {
    const hbm = this.#context.memMap({ allocate: bytes.byteLength, memoryType: 'gaudi' });
    const rkey = this.#endpoint.unpackRkey(this.#context.packRkey(hbm));
    try {
      await this.#endpoint.put(bytes, rkey);
    } catch (error) {
      this.#context.memUnmap(hbm);
      throw error;
    } finally {
      rkey.release();
    }
    this.#blocks.set(name, hbm);
  }

  /** Reads a block. */
  async read(name: string): Promise<Uint8Array> {
    const hbm = this.#blocks.get(name);
    if (hbm === undefined) throw new RangeError(`no block ${name}`);
    const rkey = this.#endpoint.unpackRkey(this.#context.packRkey(hbm));
    const bytes = new Uint8Array(hbm.byteLength);
    await this.#endpoint.get(bytes, rkey);
    rkey.release();
    return bytes;
  }
}
