/** The address of a TCP server that listens. */

import type { AddressInfo, Server } from 'node:net';
import { invalidParam } from '../../ucs/type/error.ts';

/** Where a server listens. @throws UcxError ERR_INVALID_PARAM if it does not, or not on TCP */
export function boundAddress(server: Server): AddressInfo {
  const address = server.address();
  if (typeof address === 'object' && address !== null) return address;
  throw invalidParam('server', 'must listen on a TCP port', address);
}
