/** Checks of every active message that is sent, for data in any memory. */

import { AM_HEADER_BYTES_MAX, checkAmId } from '../../ucp/api/active-message.ts';
import type { AmSendParams } from '../../ucp/api/request.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/**
 * Checks the id and header of a message.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkMessage(id: number, header: Uint8Array | undefined, params: AmSendParams | undefined): void {
  checkAmId(id);
  if (header !== undefined && (!(header instanceof Uint8Array) || header.byteLength > AM_HEADER_BYTES_MAX)) {
    throw invalidParam('header', `must be a Uint8Array of at most ${AM_HEADER_BYTES_MAX} bytes`, header);
  }
  const { protocol } = params ?? {};
  if (protocol !== undefined && protocol !== 'eager' && protocol !== 'rendezvous') {
    throw invalidParam('protocol', 'must be eager or rendezvous', protocol);
  }
}
