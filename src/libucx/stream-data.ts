/** Bytes of a stream that have arrived before anybody has asked for them: copied out of libucp, which gets its memory back at once. */

import { addressOf, memcpy } from '../sys/index.ts';
import { OutValue } from './fields.ts';
import type { LibucpFunctions } from './functions.ts';

/** Takes what is there, or undefined. @param ep the handle of an endpoint */
export function takeStreamData(functions: LibucpFunctions, ep: number): Uint8Array | undefined {
  using length = new OutValue();
  const data = functions.ucp_stream_recv_data_nb(ep, length.address);
  if (data <= 0) return undefined;
  const bytes = new Uint8Array(length.value);
  if (bytes.byteLength > 0) memcpy(addressOf(bytes), data, bytes.byteLength);
  functions.ucp_stream_data_release(ep, data);
  return bytes;
}
