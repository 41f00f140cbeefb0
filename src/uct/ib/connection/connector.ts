/**
 * Establishes the connections of an interface: sends connection requests until the reply arrives, and replies to those of peers. Datagrams can be lost,
 * repeated or forged: a reply counts only if it contains the id of the connection, and a repeated request gets the same reply.
 */

import type { Timer } from '../../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { identityText } from '../../base/iface.ts';
import type { IbShared } from '../shared.ts';
import type { IbAddress } from './address.ts';
import type { IbConnection } from './connection.ts';
import type { ConnectionTable } from './connection-table.ts';
import type { Datagrams, DatagramTarget } from './datagrams.ts';
import { CONNECTION_ID_BYTES, type ConnectMessage, ConnectType } from './layout.ts';

/** Interval between connection requests at first, and its maximum. */
const RETRY_NS = 20e6;
const RETRY_NS_MAX = 1e9;
/** Maximum number of connections that peers may make to an interface. */
export const PASSIVE_MAX = 1024;

/** A connection request without a reply. */
interface Attempt {
  readonly connection: IbConnection;
  readonly target: DatagramTarget;
  readonly request: ConnectMessage;
  readonly deadlineNs: number;
  intervalNs: number;
  timer: Timer | undefined;
}

export class IbConnector {
  readonly #table: ConnectionTable;
  readonly #shared: IbShared;
  readonly #datagrams: Datagrams;
  readonly #self: IbAddress;
  readonly #attempts: Map<string, Attempt> = new Map();
  /** Connections that peers have made, by sender and id. */
  readonly #passive: Map<string, IbConnection> = new Map();

  /** @param self the address of the interface */
  constructor(table: ConnectionTable, datagrams: Datagrams, self: IbAddress) {
    this.#table = table;
    this.#shared = table.shared;
    this.#datagrams = datagrams;
    this.#self = self;
  }

  /** Number of requests without a reply. */
  get pending(): number {
    return this.#attempts.size;
  }

  /** Number of connections that peers have made. */
  get passiveCount(): number {
    return this.#passive.size;
  }

  /** Starts to connect. @throws SyscallError */
  connect(peer: IbAddress): IbConnection {
    const id = systemRandomBytes(CONNECTION_ID_BYTES).slice();
    const connection = this.#table.create({ peer: identityText(peer.id), id, isActive: true });
    const attempt: Attempt = {
      connection,
      target: peer,
      request: this.#message(ConnectType.REQUEST, connection, peer.id, Math.min(this.#self.mtu, peer.mtu)),
      deadlineNs: this.#shared.clock.nowNs() + this.#shared.rc.CONNECT_TIMEOUT,
      intervalNs: RETRY_NS,
      timer: undefined,
    };
    this.#attempts.set(identityText(id), attempt);
    this.#request(attempt);
    this.#table.add(connection);
    return connection;
  }

  /** Handles a datagram of a peer. */
  onMessage(message: ConnectMessage): void {
    if (Buffer.compare(message.receiver, this.#self.id) !== 0) return;
    if (message.type === ConnectType.REQUEST) this.#accept(message);
    else this.#answered(message);
  }

  /** Removes a connection that has ended. */
  forget(connection: IbConnection): void {
    const attempt = this.#attempts.get(identityText(connection.id));
    if (attempt?.connection === connection) this.#end(attempt);
    const key = connection.peer + identityText(connection.id);
    if (this.#passive.get(key) === connection) this.#passive.delete(key);
  }

  close(): void {
    for (const attempt of this.#attempts.values()) attempt.timer?.cancel();
    this.#attempts.clear();
    this.#passive.clear();
  }

  #request(attempt: Attempt): void {
    const { clock } = this.#shared;
    attempt.timer = undefined;
    if (clock.nowNs() >= attempt.deadlineNs) {
      this.#end(attempt);
      attempt.connection.fail(Status.ENDPOINT_TIMEOUT);
      this.#shared.sleeper.wake();
      return;
    }
    this.#datagrams.send(attempt.request, attempt.target);
    attempt.timer = clock.setTimer(attempt.intervalNs, () => this.#request(attempt));
    attempt.intervalNs = Math.min(RETRY_NS_MAX, attempt.intervalNs * 2);
  }

  #answered(message: ConnectMessage): void {
    const attempt = this.#attempts.get(identityText(message.connection));
    if (attempt === undefined || identityText(message.sender) !== attempt.connection.peer) return;
    this.#end(attempt);
    const { connection } = attempt;
    if (message.type === ConnectType.REFUSAL) connection.fail(Status.REJECTED);
    else if (!this.#establish(connection, message)) connection.fail(Status.UNREACHABLE);
    this.#shared.sleeper.wake();
  }

  #accept(message: ConnectMessage): void {
    const { warnings } = this.#shared;
    const { id: sender } = this.#self;
    const peer = identityText(message.sender);
    const key = peer + identityText(message.connection);
    const known = this.#passive.get(key);
    if (known !== undefined) {
      if (known.answer !== undefined) this.#answer(message, known.answer);
      return;
    }
    if (this.#passive.size >= PASSIVE_MAX) {
      // Connections of killed peers fail, which frees an entry for the next request.
      for (const each of this.#passive.values()) {
        if (!each.isBusy && each.freeSlots > 0 && each.failure === Status.OK) each.probe();
      }
      warnings.warn(
        `rejected a connection from interface ${peer}: ${PASSIVE_MAX} peers are connected already; it can connect when one of them has closed its endpoints`,
      );
      this.#answer(message, { ...message, type: ConnectType.REFUSAL, sender, receiver: message.sender });
      return;
    }
    let connection: IbConnection | undefined;
    try {
      connection = this.#table.create({ peer, id: message.connection, isActive: false });
    } catch (error) {
      if (!isUcxError(error)) throw error;
      warnings.warn(`rejected a connection from interface ${peer}: ${error.message}`);
      this.#answer(message, { ...message, type: ConnectType.REFUSAL, sender, receiver: message.sender });
      return;
    }
    if (!this.#establish(connection, message)) {
      connection.destroy();
      return;
    }
    connection.answer = this.#message(ConnectType.REPLY, connection, message.sender, message.mtu);
    this.#passive.set(key, connection);
    this.#table.add(connection);
    this.#answer(message, connection.answer);
  }

  /** Connects a queue pair to that of a peer; false if the device rejects the parameters of the peer. */
  #establish(connection: IbConnection, message: ConnectMessage): boolean {
    try {
      connection.establish(message);
      return true;
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#shared.warnings.warn(`cannot connect a queue pair: ${error.message}`);
      return false;
    }
  }

  #answer({ gid, lid, answerQpNum, answerQkey }: ConnectMessage, answer: ConnectMessage): void {
    this.#datagrams.send(answer, { gid, lid, qpNum: answerQpNum, qkey: answerQkey });
  }

  #message(type: ConnectType, connection: IbConnection, receiver: Uint8Array, mtu: number): ConnectMessage {
    const { rc, port } = this.#shared;
    const self = this.#self;
    return {
      type,
      mtu: Math.min(mtu, self.mtu),
      lid: self.lid,
      qpNum: connection.qp.qpNum,
      psn: connection.psn,
      maxReads: Math.min(rc.MAX_RD_ATOMIC, port.device.attributes.maxQpRdAtom),
      answerQpNum: this.#datagrams.qpNum,
      answerQkey: self.qkey,
      connection: connection.id,
      gid: self.gid,
      sender: self.id,
      receiver,
    };
  }

  #end(attempt: Attempt): void {
    attempt.timer?.cancel();
    this.#attempts.delete(identityText(attempt.connection.id));
  }
}
