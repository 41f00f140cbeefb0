/** Attributes of an endpoint of libucp: its socket addresses, and its lanes since version 1.14. */

import type { EndpointAttributes } from '../../api/contract/endpoint.ts';
import { allocateScratch, type InetAddress, textAt } from '../../sys/index.ts';
import { SINCE_MINOR, UCP_EP_ATTR, UCP_EP_ATTR_FIELD, UCP_TRANSPORT_ENTRY } from './abi.ts';
import { Fields } from './fields.ts';
import type { Libucp } from './library.ts';

const LANES_MAX = 64;

/** Queries all attributes; those that libucp does not provide, such as the addresses of an endpoint by worker address, are omitted. */
export function queryEndpoint(libucp: Libucp, ep: number): EndpointAttributes {
  return {
    localAddress: addressOf(libucp, ep, UCP_EP_ATTR_FIELD.LOCAL_SOCKADDR, 'local_sockaddr'),
    remoteAddress: addressOf(libucp, ep, UCP_EP_ATTR_FIELD.REMOTE_SOCKADDR, 'remote_sockaddr'),
    transports: lanesOf(libucp, ep),
    messageTransport: undefined,
  };
}

function addressOf(
  { functions }: Libucp,
  ep: number,
  field: number,
  member: keyof typeof UCP_EP_ATTR.at,
): InetAddress | undefined {
  using attributes = new Fields(UCP_EP_ATTR);
  attributes.setU64('field_mask', field);
  return functions.ucp_ep_query(ep, attributes.address) < 0 ? undefined : attributes.inetAddress(member);
}

function lanesOf({ functions, minor }: Libucp, ep: number): string[] {
  if (minor < SINCE_MINOR.UCP_EP_ATTR_FIELD_TRANSPORTS) return [];
  using attributes = new Fields(UCP_EP_ATTR);
  using entries = allocateScratch(LANES_MAX * UCP_TRANSPORT_ENTRY.size);
  attributes.setU64('field_mask', UCP_EP_ATTR_FIELD.TRANSPORTS).setU64('transports.entries', entries.address);
  attributes.setU64('transports.num_entries', LANES_MAX).setU64('transports.entry_size', UCP_TRANSPORT_ENTRY.size);
  if (functions.ucp_ep_query(ep, attributes.address) < 0) return [];
  const { transport_name, device_name } = UCP_TRANSPORT_ENTRY.at;
  return Array.from({ length: attributes.number('transports.num_entries') }, (_, index) => {
    const at = index * UCP_TRANSPORT_ENTRY.size;
    const text = (offset: number): string => textAt(Number(entries.view.getBigUint64(at + offset, true)));
    return `${text(transport_name)}/${text(device_name)}`;
  });
}
