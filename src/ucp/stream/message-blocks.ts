/**
 * Memory of messages that have arrived before their receive: long ones are copied into blocks that are used again, because new memory costs more than the
 * copy: it is cleared, mapped page by page, and collected. Short ones have memory of their own.
 */

/** Shorter messages have no block. */
const BLOCK_BYTES_MIN = 4096;

/** Blocks that are kept for later messages: a megabyte of the longest messages. */
const FREE_MAX = 16;

/** The blocks of the streams of one worker. */
export class MessageBlocks {
  /** Blocks without a message, the one that was used last at the end. Most messages are as long as a transport allows, so most blocks have that length. */
  readonly #free: Uint8Array[] = [];
  /** Blocks that the program has and may give back. */
  readonly #lent: WeakSet<Uint8Array> = new WeakSet();

  /** Copies a message. The memory has no other owner. */
  copy(bytes: Uint8Array, start: number, end: number): Uint8Array {
    if (end - start < BLOCK_BYTES_MIN) return bytes.slice(start, end);
    const block = this.#take(end - start);
    block.set(bytes.subarray(start, end));
    return block;
  }

  /** Takes back the memory of a message whose bytes have been copied, or released by the program. */
  give(block: Uint8Array): void {
    // A short message, or a block that a program has detached. One that it detaches later has no length that a message has, and leaves in turn.
    if (block.byteLength < BLOCK_BYTES_MIN) return;
    this.#free.push(block);
    if (this.#free.length > FREE_MAX) this.#free.shift();
  }

  /** Passes the memory of a message to the program, which may keep it for ever. */
  lend(block: Uint8Array): Uint8Array {
    if (block.byteLength >= BLOCK_BYTES_MIN) this.#lent.add(block);
    return block;
  }

  /** Takes back what was lent, once. Other memory is not taken. */
  takeBack(block: Uint8Array): void {
    if (this.#lent.delete(block)) this.give(block);
  }

  #take(byteLength: number): Uint8Array {
    for (let i = this.#free.length - 1; i >= 0; i--) {
      const block = this.#free[i]!;
      if (block.byteLength !== byteLength) continue;
      this.#free.splice(i, 1);
      return block;
    }
    // Not cleared, as all of it is written next. A plain array, since a program gets it.
    return new Uint8Array(Buffer.allocUnsafeSlow(byteLength).buffer);
  }
}
