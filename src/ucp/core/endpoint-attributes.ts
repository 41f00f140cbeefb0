/** What an endpoint is to others: what can be asked about it, how it is closed, and what it needs of its worker. */

import type { PromiseTier } from '../api/awaited/promise-tier.ts';
import type { EndpointAttributes } from '../api/endpoint.ts';
import type { Engine } from '../api/engine.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import type { ProtocolContext, ProtocolHost } from '../base/protocol-host.ts';
import { nameOf } from '../lane/lanes.ts';
import type { ExplainContext } from '../rma/explain-transfer.ts';
import type { Connections } from '../wireup/connections.ts';
import type { Protocols } from './dispatch.ts';

/** The worker behind an endpoint; `E` is the endpoint. */
export interface EndpointWorker extends ProtocolHost {
  readonly context: ProtocolContext & ExplainContext & { readonly engine: Engine };
  readonly promises: PromiseTier;
  readonly protocols: Protocols;
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
