/**
 * The wire between processes of one machine and user: each port listens on a socket named after its GID, to which other processes send packets. Packets to
 * a port that does not exist, or whose process has ended, are lost. The names are abstract, so a killed process leaves no file behind. Senders are not
 * trusted: every received field is checked.
 */

import {
  close,
  connectUnix,
  Errno,
  EventSet,
  isSyscallError,
  listenUnix,
  type PollSubscription,
  pollReadable,
  ReadyFor,
  SocketType,
  UnixListener,
  type UnixSocket,
} from '../../sys/index.ts';
import { userId } from '../../ucs/sys/user-id.ts';
import { GID_BYTES } from '../../verbs/abi.ts';
import { PAYLOAD_BYTES_MAX, Packet, PacketKind, Syndrome } from './queue/packet.ts';
import { gidText, type LocalWire, type RdmaWire, type WirePort } from './wire.ts';

/** Limit of connections from other processes to a port; further ones are closed, and their packets are lost. */
export const INCOMING_MAX = 256;
/** Maximum number of packets that are queued for a receiver; further ones are lost. Queue pairs stop sending once one packet is queued. */
const QUEUED_MAX = 1024;
/** Maximum number of packets that are received from a socket in one poll. */
const PACKETS_PER_POLL = 64;

/** A source of events of a port: its listener, or a socket from which packets arrive. */
interface Incoming {
  readonly port: WirePort;
  /** A listener, or an accepted connection. */
  readonly source: UnixListener | UnixSocket;
}

/** The connection to a port of another process. */
interface Outgoing {
  readonly gid: string;
  readonly token: number;
  readonly socket: UnixSocket;
  readonly queued: Uint8Array[];
}

/** The wire. */
export class SocketWire implements RdmaWire {
  readonly #local: LocalWire;
  readonly #ports: Set<WirePort> = new Set();
  readonly #events: EventSet = new EventSet();
  readonly #subscription: PollSubscription;
  readonly #incoming: Map<number, Incoming> = new Map();
  readonly #outgoing: Map<string, Outgoing> = new Map();
  readonly #outgoingByToken: Map<number, Outgoing> = new Map();
  readonly #packet: Packet = new Packet();
  readonly #buffer: Uint8Array = new Uint8Array(MESSAGE_BYTES_MAX);
  readonly #view: DataView = new DataView(this.#buffer.buffer);
  #lastToken = 0;
  #isProgressing = false;
  #closed = false;

  /**
   * @param local the ports of this thread, which are reached without sockets
   * @throws SyscallError EMFILE
   */
  constructor(local: LocalWire) {
    this.#local = local;
    this.#subscription = pollReadable(this.#events.fd, () => this.progress());
    this.#subscription.unref();
  }

  /** @throws SyscallError EMFILE, EADDRINUSE */
  join(port: WirePort): void {
    const listener = listenUnix(nameOf(gidText(port.gid)), SocketType.SEQPACKET);
    this.#addIncoming({ port, source: listener });
    this.#ports.add(port);
    this.#local.join(port);
  }

  leave(port: WirePort): void {
    this.#local.leave(port);
    this.#ports.delete(port);
    for (const [token, incoming] of this.#incoming) if (incoming.port === port) this.#removeIncoming(token, incoming);
    if (this.#ports.size === 0) for (const outgoing of [...this.#outgoing.values()]) this.#disconnect(outgoing);
  }

  canSend(gid: Uint8Array): boolean {
    if (this.#local.has(gid)) return true;
    const outgoing = this.#outgoing.get(gidText(gid));
    return outgoing === undefined || outgoing.queued.length === 0;
  }

  send(packet: Packet, sourceGid: Uint8Array, gid: Uint8Array): void {
    if (this.#local.has(gid)) {
      this.#local.send(packet, sourceGid, gid);
      return;
    }
    const outgoing = this.#closed ? undefined : this.#connected(gidText(gid));
    if (outgoing === undefined || outgoing.queued.length >= QUEUED_MAX) return;
    const message = this.#buffer.subarray(0, encodePacket(packet, sourceGid, this.#view));
    if (outgoing.queued.length > 0) {
      outgoing.queued.push(message.slice());
      return;
    }
    const sent = outgoing.socket.sendmsg(message);
    if (sent === -Errno.EAGAIN) {
      outgoing.queued.push(message.slice());
      this.#events.modify(outgoing.socket.fd, ReadyFor.PEER_CLOSED | ReadyFor.WRITE, outgoing.token);
    } else if (sent < 0) this.#disconnect(outgoing);
  }

  progress(): void {
    if (this.#isProgressing || this.#closed) return;
    this.#isProgressing = true;
    const count = this.#events.poll();
    for (let i = 0; i < count && !this.#closed; i++) {
      const token = this.#events.token(i);
      const outgoing = this.#outgoingByToken.get(token);
      if (outgoing !== undefined) this.#onOutgoing(outgoing, this.#events.events(i));
      const incoming = this.#incoming.get(token);
      if (incoming !== undefined) this.#onIncoming(token, incoming);
    }
    this.#isProgressing = false;
  }

  /** Removes all ports and closes everything. Idempotent. */
  close(): void {
    if (this.#closed) return;
    for (const port of [...this.#ports]) this.leave(port);
    this.#closed = true;
    this.#subscription.close();
    this.#events.close();
    this.#packet.close();
  }

  #onOutgoing(outgoing: Outgoing, events: number): void {
    const { socket, queued, token } = outgoing;
    if ((events & ~ReadyFor.WRITE) !== 0) this.#disconnect(outgoing);
    else {
      let count = 0;
      while (count < queued.length) {
        const sent = socket.sendmsg(queued[count]!);
        if (sent === -Errno.EAGAIN) break;
        if (sent < 0) {
          this.#disconnect(outgoing);
          break;
        }
        count += 1;
      }
      queued.splice(0, count);
      if (socket.closed) queued.length = 0;
      if (queued.length > 0) return;
      if (!socket.closed) this.#events.modify(socket.fd, ReadyFor.PEER_CLOSED, token);
    }
    for (const port of this.#ports) port.resume();
  }

  #onIncoming(token: number, incoming: Incoming): void {
    const { port, source: from } = incoming;
    if (from instanceof UnixListener) {
      this.#accept(port, from);
      return;
    }
    const fds: number[] = [];
    for (let left = PACKETS_PER_POLL; !from.closed && left > 0; left--) {
      const received = from.recvmsg(this.#buffer, fds);
      if (received === -Errno.EAGAIN) return;
      const source = received > 0 && fds.length === 0 ? decodePacket(this.#view, received, this.#packet) : undefined;
      if (source === undefined) {
        // The peer has closed the connection, or is not a device of this version.
        for (const fd of fds) close(fd);
        this.#removeIncoming(token, incoming);
        return;
      }
      // A copy of the GID: a reply is encoded into the buffer that contains it.
      port.deliver(this.#packet, source.slice());
    }
  }

  #accept(port: WirePort, listener: UnixListener): void {
    for (;;) {
      const socket = acceptFrom(listener);
      if (socket === undefined) return;
      let count = 0;
      for (const each of this.#incoming.values()) if (each.port === port) count += 1;
      if (count <= INCOMING_MAX && socket.peerCredentials().uid === userId()) {
        this.#addIncoming({ port, source: socket });
      } else socket.close();
    }
  }

  #addIncoming(incoming: Incoming): void {
    const token = ++this.#lastToken;
    const { source } = incoming;
    try {
      this.#events.add(source.fd, ReadyFor.READ, token);
    } catch (error) {
      source.close();
      throw error;
    }
    this.#incoming.set(token, incoming);
  }

  #removeIncoming(token: number, { source }: Incoming): void {
    this.#incoming.delete(token);
    this.#events.remove(source.fd);
    source.close();
  }

  /** The connection to a port, created if necessary; undefined if the port does not exist. */
  #connected(gid: string): Outgoing | undefined {
    const known = this.#outgoing.get(gid);
    if (known !== undefined) return known;
    const socket = connectTo(gid);
    if (socket === undefined) return undefined;
    const outgoing = { gid, token: ++this.#lastToken, socket, queued: [] };
    this.#events.add(socket.fd, ReadyFor.PEER_CLOSED, outgoing.token);
    this.#outgoing.set(gid, outgoing);
    this.#outgoingByToken.set(outgoing.token, outgoing);
    return outgoing;
  }

  #disconnect({ gid, token, socket, queued }: Outgoing): void {
    this.#outgoing.delete(gid);
    this.#outgoingByToken.delete(token);
    this.#events.remove(socket.fd);
    queued.length = 0;
    socket.close();
  }
}

/** A socket connected to a port; undefined if the port does not exist: packets to it are lost, as on a real network. */
function connectTo(gid: string): UnixSocket | undefined {
  try {
    const socket = connectUnix(nameOf(gid), SocketType.SEQPACKET);
    if (socket.peerCredentials().uid === userId()) return socket;
    socket.close();
    return undefined;
  } catch (error) {
    if (isSyscallError(error)) return undefined;
    throw error;
  }
}

/** Accepts the next connection; undefined if there is none, or while this process has no free descriptor. */
function acceptFrom(listener: UnixListener): UnixSocket | undefined {
  try {
    return listener.accept();
  } catch (error) {
    if (isSyscallError(error)) return undefined;
    throw error;
  }
}

function nameOf(gid: string): string {
  return `\0gaudi-ucx/rdma/${Buffer.from(gid, 'latin1').toString('hex')}`;
}

/** "GRW1": a packet of this version. */
const MAGIC = 0x3157_5247;
const SOURCE_GID = 64;
const HEADER_BYTES: number = SOURCE_GID + GID_BYTES;
/** Codes of RNR timers are below this. */
const RNR_TIMERS = 32;

/** The longest message. */
export const MESSAGE_BYTES_MAX: number = HEADER_BYTES + PAYLOAD_BYTES_MAX;

/** Writes a packet. @returns its length */
export function encodePacket(packet: Packet, sourceGid: Uint8Array, target: DataView): number {
  target.setUint32(0, MAGIC, true);
  target.setUint8(4, packet.kind);
  target.setUint8(5, packet.flags);
  target.setUint8(6, packet.syndrome);
  target.setUint8(7, packet.rnrTimer);
  target.setUint32(8, packet.destQpNum, true);
  target.setUint32(12, packet.sourceQpNum, true);
  target.setUint32(16, packet.psn, true);
  target.setUint32(20, packet.qkey, true);
  target.setUint32(24, packet.immediate, true);
  target.setUint32(28, packet.rkey, true);
  target.setFloat64(32, packet.remoteAddress, true);
  target.setFloat64(40, packet.dmaLength, true);
  target.setUint32(48, packet.compareLow, true);
  target.setUint32(52, packet.compareHigh, true);
  target.setUint32(56, packet.swapLow, true);
  target.setUint32(60, packet.swapHigh, true);
  const bytes = new Uint8Array(target.buffer, target.byteOffset);
  bytes.set(sourceGid, SOURCE_GID);
  bytes.set(packet.payload.u8.subarray(0, packet.payloadBytes), HEADER_BYTES);
  return HEADER_BYTES + packet.payloadBytes;
}

/**
 * Reads a packet.
 * @returns the GID of its sender, valid until the source is overwritten; undefined for bytes that are not a packet of this version
 */
export function decodePacket(source: DataView, byteLength: number, packet: Packet): Uint8Array | undefined {
  if (byteLength < HEADER_BYTES || source.getUint32(0, true) !== MAGIC) return undefined;
  const kind = source.getUint8(4);
  const syndrome = source.getUint8(6);
  const rnrTimer = source.getUint8(7);
  const remoteAddress = source.getFloat64(32, true);
  const dmaLength = source.getFloat64(40, true);
  const isKnown = kind >= PacketKind.SEND && kind <= PacketKind.DATAGRAM && syndrome <= Syndrome.REMOTE_OPERATION;
  const isInRange = rnrTimer < RNR_TIMERS && Number.isInteger(remoteAddress) && dmaLength >= 0 && dmaLength < 2 ** 32;
  if (!isKnown || !isInRange || !Number.isInteger(dmaLength)) return undefined;
  packet.begin(kind as PacketKind, source.getUint32(8, true), source.getUint32(12, true), source.getUint32(16, true));
  packet.flags = source.getUint8(5);
  packet.syndrome = syndrome as Syndrome;
  packet.rnrTimer = rnrTimer;
  packet.qkey = source.getUint32(20, true);
  packet.immediate = source.getUint32(24, true);
  packet.rkey = source.getUint32(28, true);
  packet.remoteAddress = remoteAddress;
  packet.dmaLength = dmaLength;
  packet.compareLow = source.getUint32(48, true);
  packet.compareHigh = source.getUint32(52, true);
  packet.swapLow = source.getUint32(56, true);
  packet.swapHigh = source.getUint32(60, true);
  packet.payloadBytes = byteLength - HEADER_BYTES;
  const bytes = new Uint8Array(source.buffer, source.byteOffset, byteLength);
  packet.payload.u8.set(bytes.subarray(HEADER_BYTES));
  return bytes.subarray(SOURCE_GID, HEADER_BYTES);
}
