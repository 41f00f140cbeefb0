/** Captures text that a C function writes to a stream (FILE *): an in-memory stream, whose text is read when it is closed. No file is involved. */

import { addressOfView, errno, fclose, free, memcpy, openMemstream } from '../base/libc.ts';
import { allocateScratch } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';

/**
 * Returns the text that a function writes.
 * @param write receives the address of the stream, which is valid during the call
 * @throws SyscallError ENOMEM; exceptions of `write`
 */
export function textWrittenBy(write: (stream: number) => void): string {
  // Destination for the address of the text and its length, written by the C library.
  using place = allocateScratch(16);
  place.u8.fill(0);
  const stream = openMemstream(place.address, place.address + 8);
  if (stream === 0) throw new SyscallError('open_memstream', errno(), 'memory');
  try {
    try {
      write(stream);
    } finally {
      fclose(stream);
    }
    const bytes = new Uint8Array(Number(place.view.getBigUint64(8, true)));
    if (bytes.byteLength > 0) memcpy(addressOfView(bytes), Number(place.view.getBigUint64(0, true)), bytes.byteLength);
    return Buffer.from(bytes.buffer).toString('utf8');
  } finally {
    free(Number(place.view.getBigUint64(0, true)));
  }
}
