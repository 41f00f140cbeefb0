/** Address of a listening TCP server. */

import type { AddressInfo, Server } from 'node:net';
import { invalidParam } from '../../ucs/type/error.ts';

/** Returns the address of a listening server. @throws UcxError ERR_INVALID_PARAM if the server does not listen on a TCP port */
export function boundAddress(server: Server): AddressInfo {
  const address = server.address();
  if (typeof address === 'object' && address !== null) return address;
  throw invalidParam('server', 'must listen on a TCP port', address);
}
