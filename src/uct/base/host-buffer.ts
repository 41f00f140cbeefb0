/**
 * The rules that host buffers must obey to be registered, in one place for every memory domain.
 */

import { invalidParam } from '../../ucs/type/error.ts';
import { isResizable } from '../../ucs/type/resizable.ts';
import type { RegistrationSource } from '../api/memory-domain.ts';
import { RawRange } from './host-range.ts';

/**
 * The bytes of host memory to be registered.
 * @throws UcxError as {@link checkHostBuffer}
 */
export function hostBytesOf(source: RegistrationSource): Uint8Array {
  if (source instanceof RawRange) return source.bytes;
  const buffer = source as Uint8Array;
  checkHostBuffer('buffer', buffer);
  return buffer;
}

/**
 * Checks a buffer that is to be registered as a whole.
 * @throws UcxError ERR_INVALID_PARAM that names the rule: a Uint8Array, not empty or detached, not resizable or growable, and no
 *   small Buffer out of Node's pool, whose neighbours would be exposed with it
 */
export function checkHostBuffer(argument: string, buffer: Uint8Array): void {
  if (!(buffer instanceof Uint8Array)) throw invalidParam(argument, 'must be a Uint8Array or Buffer', buffer);
  if (isResizable(buffer.buffer)) {
    throw invalidParam(argument, 'must not lie in a resizable ArrayBuffer: its memory can go away', buffer);
  }
  if (buffer.byteLength === 0) throw invalidParam(argument, 'must not be empty or detached', buffer.byteLength);
  if (isPooled(buffer)) {
    throw invalidParam(
      argument,
      'must not share the pool of small Buffers: use Buffer.allocUnsafeSlow',
      buffer.byteLength,
    );
  }
}

/** True for a Buffer that is a slice of the pool from which Node makes small Buffers. */
function isPooled(buffer: Uint8Array): boolean {
  return (
    Buffer.isBuffer(buffer) &&
    buffer.buffer.byteLength === Buffer.poolSize &&
    buffer.byteLength < buffer.buffer.byteLength
  );
}
