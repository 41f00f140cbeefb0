/** The wire between emulated RDMA devices: delivers packets to the port of a GID, in order; packets to an unknown GID are lost. */

import type { Packet } from './queue/packet.ts';

/** A port on the wire. */
export class WirePort {
  readonly gid: Uint8Array;
  readonly deliver: (packet: Packet, sourceGid: Uint8Array) => void;
  readonly resume: () => void;

  /**
   * @param deliver called when a packet has arrived; the packet belongs to the wire and is valid during the call
   * @param resume called when the wire accepts packets again
   */
  constructor(gid: Uint8Array, deliver: (packet: Packet, sourceGid: Uint8Array) => void, resume: () => void) {
    this.gid = gid;
    this.deliver = deliver;
    this.resume = resume;
  }
}

/** The wire. */
export interface RdmaWire {
  /** Adds a port. */
  join(port: WirePort): void;
  /** Removes a port; packets in flight to it are lost. */
  leave(port: WirePort): void;
  /** Whether the wire accepts a packet to this GID now. */
  canSend(gid: Uint8Array): boolean;
  /** Delivers packets that have arrived. */
  progress(): void;
  /** Sends a packet, which can be reused on return. */
  send(packet: Packet, sourceGid: Uint8Array, gid: Uint8Array): void;
}

/** The GID as a string: the key of a port in maps. */
export function gidText(gid: Uint8Array): string {
  return Buffer.from(gid.buffer, gid.byteOffset, gid.byteLength).toString('latin1');
}

/** The wire within this process: packets arrive inside the call that sends them. */
export class LocalWire implements RdmaWire {
  readonly #ports: Map<string, WirePort> = new Map();

  join(port: WirePort): void {
    this.#ports.set(gidText(port.gid), port);
  }

  leave(port: WirePort): void {
    this.#ports.delete(gidText(port.gid));
  }

  /** Whether the port of a GID is in this process. */
  has(gid: Uint8Array): boolean {
    return this.#ports.has(gidText(gid));
  }

  canSend(): boolean {
    return true;
  }

  /** No effect: packets are delivered when they are sent. */
  progress(): void {}

  send(packet: Packet, sourceGid: Uint8Array, gid: Uint8Array): void {
    this.#ports.get(gidText(gid))?.deliver(packet, sourceGid);
  }
}
