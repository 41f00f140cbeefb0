/** A node server as a driver node: its clients open cards on it. Above the driver port it is the same as a node in this process. */

import type { AbsentCard, CardEntry, DriverFile, DriverNode, NodeTransfers, PortLink } from '../../driver/port.ts';
import { DRM_IOCTLS, HABANALABS_IOCTLS } from '../../uapi/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { checkString } from '../../ucs/type/check-options.ts';
import { invalidParam, isUcxError } from '../../ucs/type/error.ts';
import { type Fault, readFault } from '../faults/fault-plan.ts';
import { EmulatedVerbs } from '../rdma/emulated-verbs.ts';
import { connectToServer, type ServerConnection } from './connection.ts';
import { RemoteDmabufs } from './dmabufs.ts';
import type { NodeStatus } from './node-status.ts';
import { RemoteFile } from './remote-file.ts';

/** A node of emulated cards in another process. */
export class RemoteNode implements DriverNode {
  readonly kind = 'emulator';
  readonly emulated = true;
  /** RDMA devices in this process, in the number that the server reports; undefined for none. */
  readonly verbs: EmulatedVerbs | undefined;
  /** The memory of the cards behind dma-bufs, for the RDMA devices. */
  readonly #dmabufs: RemoteDmabufs;
  readonly #connection: ServerConnection;
  readonly #files: Set<RemoteFile> = new Set();
  #nextFile = 1;

  constructor(connection: ServerConnection) {
    this.#connection = connection;
    this.#dmabufs = new RemoteDmabufs(connection);
    const { nics } = connection;
    const options = { nics, clock: systemClock, dmabufs: this.#dmabufs, sockets: true };
    this.verbs = nics > 0 ? new EmulatedVerbs(options) : undefined;
    connection.listen(() => {
      for (const file of [...this.#files]) file.settle();
    });
  }

  /** Identity of the node in the server: the same for all its clients. */
  get identity(): string {
    return this.#connection.identity;
  }

  /** Path of the server's socket. */
  get socketPath(): string {
    return this.#connection.path;
  }

  /** The process of the server. */
  get serverPid(): number {
    return this.#connection.serverPid;
  }

  get lostReason(): string | undefined {
    return this.#connection.lostReason;
  }

  /** Empty once the server has ended. */
  cards(): readonly CardEntry[] {
    return this.#connection.ask<CardEntry[]>({ op: 'cards' }, 'cards') ?? [];
  }

  absentCards(): readonly AbsentCard[] {
    return this.#connection.ask<AbsentCard[]>({ op: 'absentCards' }, 'cards') ?? [];
  }

  ownerOf(minor: number): number | undefined {
    return this.#connection.ask({ op: 'ownerOf', minor: sent(minor) }, 'pid');
  }

  open(minor: number): DriverFile {
    return this.#open(minor, false);
  }

  openControl(minor: number): DriverFile {
    return this.#open(minor, true);
  }

  attribute(minor: number, name: string): string | undefined {
    return this.#connection.ask(
      { op: 'attribute', minor: sent(minor), name: typeof name === 'string' && name.length <= NAME_MAX ? name : '' },
      'value',
    );
  }

  temperature(minor: number): number | undefined {
    return this.#connection.ask({ op: 'temperature', minor: sent(minor) }, 'value');
  }

  links(minor: number): readonly PortLink[] | undefined {
    return this.#connection.ask({ op: 'links', minor: sent(minor) }, 'links');
  }

  transfers(): NodeTransfers | undefined {
    return this.#connection.ask({ op: 'transfers' }, 'transfers');
  }

  /**
   * Injects a fault into a card.
   * @throws UcxError ERR_INVALID_PARAM for an invalid fault; SyscallError ENOENT for an unknown minor, ENODEV
   */
  inject(minor: number, fault: Fault): void {
    this.#connection.request({ op: 'fault', minor: sent(minor), fault: readFault(fault) });
  }

  /**
   * Makes the server serve a mount of device nodes, also after the end of this connection.
   * @param fuse descriptor of /dev/fuse, which the caller keeps
   * @param device number of the file system, such as `0:52`
   * @throws SyscallError ENODEV if the server has ended
   */
  serveDevices(fuse: number, device: string): void {
    checkDescriptor('fuse', fuse);
    checkString('device', device);
    this.#connection.request({ op: 'devices', device }, fuse);
  }

  /**
   * Makes the server answer the system calls that a filter reports, also after the end of this connection.
   * @param listener descriptor of the supervisor, which the caller keeps
   * @throws SyscallError ENODEV if the server has ended
   */
  supervise(listener: number): void {
    checkDescriptor('listener', listener);
    this.#connection.request({ op: 'supervise' }, listener);
  }

  /** The state of the server. Throws SyscallError ENODEV if it has ended. */
  status(): NodeStatus {
    return this.#connection.request({ op: 'status' }).message['status'] as NodeStatus;
  }

  /**
   * Ends the server and waits until it has ended: all its clients lose their cards.
   * @throws SyscallError ENODEV if it has ended already; UcxError ERR_NODE_REFUSED if it does not end in time
   */
  shutdown(): void {
    this.#connection.request({ op: 'shutdown' });
    this.#connection.awaitEnd();
  }

  close(): void {
    this.verbs?.close();
    this.#dmabufs.close();
    for (const file of [...this.#files]) file.close();
    this.#connection.close();
  }

  #open(minor: number, control: boolean): DriverFile {
    const id = this.#nextFile++;
    const request = { op: 'open', minor: sent(minor), control, file: id };
    const forget = (): void => {
      if (this.#connection.alive) this.#connection.request({ op: 'close', file: id });
    };
    const { message, fd } = this.#connection.requestDescriptor(request, forget);
    try {
      const file = new RemoteFile({
        id,
        numbers: message['family'] === 'drm' ? DRM_IOCTLS : HABANALABS_IOCTLS,
        connection: this.#connection,
        mailboxFd: fd,
        onClose: (closed) => this.#files.delete(closed),
      });
      this.#files.add(file);
      return file;
    } catch (error) {
      forget();
      throw error;
    }
  }
}

/**
 * Connects to the node server at a socket.
 * @throws UcxError ERR_NODE_UNREACHABLE if no server listens there; ERR_NODE_REFUSED
 */
export function connectEmulatedNode(socketPath: string): RemoteNode {
  checkString('socketPath', socketPath);
  return new RemoteNode(connectToServer(socketPath));
}

/** Connects to the node server at a socket; undefined if no server listens, also if an ended one has left its socket behind. */
export function findEmulatedNode(socketPath: string): RemoteNode | undefined {
  try {
    return connectEmulatedNode(socketPath);
  } catch (error) {
    if (isUcxError(error) && error.code === 'ERR_NODE_UNREACHABLE') return undefined;
    throw error;
  }
}

/** Longest name of an attribute that a server accepts. */
const NAME_MAX = 256;

/** A message without its descriptor would end the connection. @throws UcxError ERR_INVALID_PARAM */
function checkDescriptor(argument: string, fd: number): void {
  if (!Number.isInteger(fd) || fd < 0 || fd > 0x7fff_ffff) {
    throw invalidParam(argument, 'must be a file descriptor', fd);
  }
}

/** A minor as a message has it, -1 for one of no card: a server ends the connection of a client that sends other values than integers of 32 bits. */
function sent(minor: number): number {
  return Number.isInteger(minor) && minor >= 0 && minor <= 0xffff_ffff ? minor : -1;
}
