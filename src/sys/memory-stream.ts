/** Text that a function of C writes to a stream (FILE *): a stream into memory, whose text is taken when it is closed. Not a file. */

import { addressOfView, errno, fclose, free, memcpy, openMemstream } from './libc.ts';
import { allocateScratch } from './scratch.ts';
import { SyscallError } from './syscall-error.ts';

/**
 * The text that a function writes.
 * @param write is given the address of the stream, which is valid during the call
 * @throws SyscallError ENOMEM; what `write` throws
 */
export function textWrittenBy(write: (stream: number) => void): string {
  // Where the C library puts the address of the text and its length.
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
