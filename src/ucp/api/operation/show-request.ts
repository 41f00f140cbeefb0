/** How requests of both engines are shown by `console.log` and in JSON. */

import { showAs } from '../../../ucs/type/inspect.ts';
import { statusName } from '../../../ucs/type/status.ts';
import type { Request } from './request.ts';

/** Makes the requests of a class show what an application asks of them. */
export function showRequests(type: { readonly prototype: Request }): void {
  showAs(type, 'Request', ({ protocol, status, byteLength, transport, device }) => ({
    protocol: protocol === '' ? undefined : protocol,
    status: statusName(status),
    byteLength,
    transport,
    device,
  }));
}
