/**
 * Queries of libucp: the socket addresses of an endpoint, its lanes (since 1.14), and the transports and devices that carried a request, parsed from its
 * debug string.
 */

import type { EndpointAttributes } from '../../api/contract/endpoint.ts';
import { allocateScratch, type InetAddress, type ScratchBlock, textAt } from '../../sys/index.ts';
import {
  SINCE_MINOR,
  UCP_EP_ATTR,
  UCP_EP_ATTR_FIELD,
  UCP_REQUEST_ATTR,
  UCP_REQUEST_ATTR_FIELD,
  UCP_TRANSPORT_ENTRY,
} from './abi.ts';
import { Fields } from './fields.ts';
import type { LibucpFunctions } from './functions.ts';
import type { Libucp } from './library.ts';

const LANES_MAX = 64;

/** Queries all attributes; those that libucp does not provide, such as the socket addresses of an endpoint created by worker address, are omitted. */
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

const TEXT_BYTES = 512;
/** The lane in the debug string of a request, in versions without UCX_PROTO_ENABLE or with it disabled. */
const LANE = /\blane\[\d+\]: +\d+:([^\s/]+)\/(\S+)\.\d+ md\[/;
/** Marks a lane that carried only a rendezvous offer: the data went over another lane. */
const OFFER = /_rts\(\) /;
/** Follows the length: the protocol and its lanes, as in `length 8 eager short tcp/eth0 10.5 MB/s`, `52% on tcp/lo and 48% on tcp/eth0`. */
const PROTOCOL = /\blength \d+ (.*)$/s;
const LANES = /(?<![\w/.-])([a-z]\w*)\/([\w.:-]+)/g;

/** The transports and devices that carried a request; several names are joined by `+`. */
export interface Carrier {
  readonly transport: string;
  readonly device: string;
}

export class RequestQuery {
  readonly #functions: LibucpFunctions;
  readonly #attributes: Fields<typeof UCP_REQUEST_ATTR.at> = new Fields(UCP_REQUEST_ATTR);
  readonly #text: ScratchBlock = allocateScratch(TEXT_BYTES);

  constructor(functions: LibucpFunctions) {
    this.#functions = functions;
    const { INFO_STRING, INFO_STRING_SIZE } = UCP_REQUEST_ATTR_FIELD;
    this.#attributes.setU64('field_mask', INFO_STRING | INFO_STRING_SIZE);
    this.#attributes.setU64('debug_string', this.#text.address).setU64('debug_string_size', TEXT_BYTES);
  }

  /** The carrier of a request that has succeeded, is not freed yet and whose endpoint exists; undefined if libucp does not report it. */
  carrierOf(request: number): Carrier | undefined {
    const status = this.#functions.ucp_request_query(request, this.#attributes.address);
    return status < 0 ? undefined : carrierIn(textAt(this.#text.address));
  }

  close(): void {
    this.#attributes[Symbol.dispose]();
    this.#text.free();
  }
}

/** The carrier that a debug string of ucp_request_query names. */
export function carrierIn(text: string): Carrier | undefined {
  const lane = LANE.exec(text);
  if (lane !== null) return OFFER.test(text) ? undefined : { transport: lane[1]!, device: lane[2]! };
  const lanes = [...(PROTOCOL.exec(text)?.[1] ?? '').matchAll(LANES)];
  if (lanes.length === 0) return undefined;
  const namesAt = (group: number): string => [...new Set(lanes.map((match) => match[group]!))].join('+');
  return { transport: namesAt(1), device: namesAt(2) };
}
