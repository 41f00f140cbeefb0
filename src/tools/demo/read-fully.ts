/** Reads a complete range of a file. */

import type { FileHandle } from 'node:fs/promises';
import { invalidParam } from '../../ucs/type/error.ts';

/**
 * Fills `data` with the bytes of the file from `position` on.
 * @throws UcxError ERR_INVALID_PARAM if the file ends before; the errors of node:fs
 */
export async function readFully(file: FileHandle, data: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < data.byteLength; ) {
    const { bytesRead } = await file.read(data, done, data.byteLength - done, position + done);
    if (bytesRead === 0) throw invalidParam('file', 'must not shrink while it is read', position + done);
    done += bytesRead;
  }
}
