/** Slices of the file of the exchange: one for each card, in order, without gaps. */

/** A range of the file. */
export interface FileSlice {
  readonly offset: number;
  readonly byteLength: number;
}

/** The slice of a card. Lengths differ by one byte at most; a file with fewer bytes than cards has empty ones. */
export function sliceOf(index: number, count: number, byteLength: number): FileSlice {
  const offset = Math.floor((index * byteLength) / count);
  return { offset, byteLength: Math.floor(((index + 1) * byteLength) / count) - offset };
}
