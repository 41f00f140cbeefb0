/**
 * A transfer of up to five dimensions as the DMA cores of gaudi describe it: rows of consecutive bytes at the source and at the destination. It
 * computes the addresses of the rows.
 */

/** Dimensions besides the bytes of a row (TSIZE_1 to TSIZE_4). */
export const STRIDE_DIMENSIONS = 4;

/** One side of a transfer. */
export interface RowShape {
  readonly base: bigint;
  /** Bytes of a row (TSIZE_0). */
  readonly rowBytes: number;
  /** Number of rows in each further dimension, and the distance of two of them in bytes. */
  readonly counts: readonly number[];
  readonly strides: readonly number[];
}

/** The next byte of one side. */
class RowCursor {
  readonly #shape: RowShape;
  readonly #indices: number[];
  #inRow = 0;
  #ended: boolean;

  constructor(shape: RowShape) {
    this.#shape = shape;
    this.#indices = shape.counts.map(() => 0);
    this.#ended = shape.rowBytes === 0 || shape.counts.some((count) => count === 0);
  }

  get ended(): boolean {
    return this.#ended;
  }

  get address(): bigint {
    const { base, strides } = this.#shape;
    const row = this.#indices.reduce(
      (sum, index, dimension) => sum + BigInt(index) * BigInt(strides[dimension]!),
      base,
    );
    return BigInt.asUintN(64, row + BigInt(this.#inRow));
  }

  /** Consecutive bytes from {@link address} on. */
  get available(): number {
    return this.#shape.rowBytes - this.#inRow;
  }

  /** Advances by at most {@link available} bytes. */
  advance(byteLength: number): void {
    this.#inRow += byteLength;
    if (this.#inRow < this.#shape.rowBytes) return;
    this.#inRow = 0;
    for (const [dimension, count] of this.#shape.counts.entries()) {
      const next = this.#indices[dimension]! + 1;
      this.#indices[dimension] = next < count ? next : 0;
      if (next < count) return;
    }
    this.#ended = true;
  }
}

/** A transfer in progress. */
export class StridedTransfer {
  /** Control word of the LIN_DMA packets that move its pieces. */
  readonly control: number;
  /** Whether the engine sends its completion message after it. */
  readonly completes: boolean;
  readonly #source: RowCursor | bigint;
  readonly #destination: RowCursor;

  /** @param source its rows, or the pattern of a fill */
  constructor(source: RowShape | bigint, destination: RowShape, control: number, completes: boolean) {
    this.#source = typeof source === 'bigint' ? source : new RowCursor(source);
    this.#destination = new RowCursor(destination);
    this.control = control;
    this.completes = completes;
  }

  /** Whether one of the sides has no more bytes. */
  get ended(): boolean {
    return this.#destination.ended || (typeof this.#source !== 'bigint' && this.#source.ended);
  }

  /** Writes the LIN_DMA packet of the next piece: consecutive bytes on both sides. */
  write(words: Int32Array): void {
    const source = typeof this.#source === 'bigint' ? this.#source : this.#source.address;
    const destination = this.#destination.address;
    words[0] = this.#pieceBytes;
    words[1] = this.control;
    words[2] = Number(BigInt.asIntN(32, source));
    words[3] = Number(BigInt.asIntN(32, source >> 32n));
    words[4] = Number(BigInt.asIntN(32, destination));
    words[5] = Number(BigInt.asIntN(32, destination >> 32n));
  }

  /** Continues behind the piece. */
  advance(): void {
    const byteLength = this.#pieceBytes;
    if (typeof this.#source !== 'bigint') this.#source.advance(byteLength);
    this.#destination.advance(byteLength);
  }

  get #pieceBytes(): number {
    const { available } = this.#destination;
    return typeof this.#source === 'bigint' ? available : Math.min(available, this.#source.available);
  }
}
