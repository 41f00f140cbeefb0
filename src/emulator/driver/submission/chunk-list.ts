/**
 * The checked chunks of the current submission: their command buffers and streams. Reused from call to call, so that a
 * submission allocates nothing.
 */

import type { PhysicalMemory } from '../../device/memory/physical-memory.ts';
import type { Stream } from '../../device/queue/stream.ts';

/** A checked chunk: command buffer and stream. Slots are reused from call to call. */
export class CheckedChunk {
  stream: Stream;
  /** A command buffer of the driver; undefined for one that the card fetches from the address in `high` and `low`. */
  memory: PhysicalMemory | undefined = undefined;
  high = 0;
  low = 0;
  byteLength = 0;

  constructor(stream: Stream) {
    this.stream = stream;
  }
}

/** Checked chunks of the current submission. */
export class ChunkList {
  readonly items: CheckedChunk[] = [];
  length = 0;

  next(stream: Stream): CheckedChunk {
    const item = this.items[this.length] ?? new CheckedChunk(stream);
    item.stream = stream;
    this.items[this.length] = item;
    this.length += 1;
    return item;
  }
}
