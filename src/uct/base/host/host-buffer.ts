/** Requirements for host buffers to be registered, for every memory domain. */

import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { isResizable } from '../../../ucs/type/resizable.ts';
import type { RegistrationSource } from '../../api/memory-domain.ts';
import { RawRange } from './host-range.ts';

/**
 * Returns the bytes of host memory to register.
 * @throws UcxError as {@link checkHostBuffer}
 */
export function hostBytesOf(source: RegistrationSource): Uint8Array {
  if (source instanceof RawRange) return source.bytes;
  checkHostBuffer('buffer', source);
  return source;
}

/**
 * Checks a buffer that is to be registered as a whole.
 * @throws UcxError ERR_INVALID_PARAM that names the rule: a Uint8Array, not empty or detached, not resizable or growable, and not a small Buffer from Node's
 * pool, because registering the pool would expose its other Buffers
 */
export function checkHostBuffer(argument: string, buffer: unknown): asserts buffer is Uint8Array {
  if (!isBytes(buffer)) throw invalidParam(argument, 'must be a Uint8Array or Buffer', buffer);
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

/** Bytes of the pool, before a program changes `Buffer.poolSize`: Node.js 26 adds some to that. */
const POOL_BYTES = Buffer.allocUnsafe(1).buffer.byteLength;

/** Whether a Buffer is a slice of the pool from which Node allocates small Buffers. */
function isPooled(buffer: Uint8Array): boolean {
  return (
    Buffer.isBuffer(buffer) &&
    (buffer.buffer.byteLength === POOL_BYTES || buffer.buffer.byteLength === Buffer.poolSize) &&
    buffer.byteLength < buffer.buffer.byteLength
  );
}
