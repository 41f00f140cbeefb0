/** What an endpoint is to others: what can be asked about it, how it is closed, and what it needs of its worker. */

import type { SocketAddress } from '../../uct/api/connection-manager.ts';
import type { Connections } from '../wireup/connections.ts';
import { nameOf } from '../wireup/lanes.ts';
import type { Protocols } from './dispatch.ts';
import type { ExplainContext } from './explain-transfer.ts';
import type { PeerConnection } from './peer-connection.ts';
import type { PromiseTier } from './promise-tier.ts';
import type { ProtocolContext, ProtocolHost } from './protocol-host.ts';

/** What is known about an endpoint (ucp_ep_attr_t). */
export interface EndpointAttributes {
  /** The ends of the connection by which a client and a listener have found each other; undefined for endpoints by worker address. */
  readonly localAddress: SocketAddress | undefined;
  readonly remoteAddress: SocketAddress | undefined;
  /** Transports and devices of the lanes, such as `gaudi_cpy/gaudi0`. */
  readonly transports: readonly string[];
  /** The lane that carries messages, such as `posix/memory`; undefined where none does. */
  readonly messageTransport: string | undefined;
}

/** How an endpoint is closed. */
export interface CloseOptions {
  /** Ends what waits for the peer with CANCELED instead of waiting for it. */
  readonly force?: boolean;
}

/** The worker behind an endpoint; `E` is the endpoint. */
export interface EndpointWorker<E> extends ProtocolHost {
  readonly context: ProtocolContext & ExplainContext;
  readonly promises: PromiseTier;
  readonly protocols: Protocols<E>;
  readonly connections: Connections;
  forgetEndpoint(connection: PeerConnection): void;
}

/** The attributes of the endpoint of a connection. */
export function attributesOf({ lanes, amLane, socketAddresses }: PeerConnection): EndpointAttributes {
  return {
    localAddress: socketAddresses?.local,
    remoteAddress: socketAddresses?.remote,
    transports: lanes.map(({ iface }) => nameOf(iface.attributes)),
    messageTransport: amLane === undefined ? undefined : nameOf(amLane.iface.attributes),
  };
}
