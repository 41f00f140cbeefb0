/** A driver node whose cards are on a node server. Code above the driver port uses it like a node in this process. */

import type { AbsentCard, CardEntry, DriverFile, DriverNode, NodeTransfers, PortLink } from '../../driver/port.ts';
import { DRM_IOCTLS, HABANALABS_IOCTLS } from '../../uapi/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { checkString } from '../../ucs/type/check-options.ts';
import { invalidParam, isUcxError } from '../../ucs/type/error.ts';
import type { SupervisedNode } from '../device-nodes/supervisor-link.ts';
import { type Fault, readFault } from '../faults/fault-plan.ts';
import { EmulatedVerbs } from '../rdma/emulated-verbs.ts';
import { connectToServer, type ServerConnection } from './connection.ts';
import { RemoteDmabufs } from './dmabufs.ts';
import type { NodeStatus } from './node-status.ts';
import { RemoteFile } from './remote-file.ts';

/** The cards of a node server, behind the driver port. Made by connectEmulatedNode and findEmulatedNode. */
export class RemoteNode implements DriverNode {
  readonly kind = 'emulator';
  readonly emulated = true;
  /** RDMA devices in this process, as many as the server reports; undefined for none. */
  readonly verbs: EmulatedVerbs | undefined;
  /** Device memory behind dma-bufs, for the RDMA devices. */
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

  /** Identity of the node, the same for all clients of its server. */
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
    return this.#connection.query<CardEntry[]>({ op: 'cards' }, 'cards') ?? [];
  }

  absentCards(): readonly AbsentCard[] {
    return this.#connection.query<AbsentCard[]>({ op: 'absentCards' }, 'cards') ?? [];
  }

  ownerOf(minor: number): number | undefined {
    return this.#connection.query({ op: 'ownerOf', minor: sent(minor) }, 'pid');
  }

  open(minor: number): DriverFile {
    return this.#open(minor, false);
  }

  openControl(minor: number): DriverFile {
    return this.#open(minor, true);
  }

  attribute(minor: number, name: string): string | undefined {
    return this.#connection.query(
      { op: 'attribute', minor: sent(minor), name: typeof name === 'string' && name.length <= NAME_MAX ? name : '' },
      'value',
    );
  }

  temperature(minor: number): number | undefined {
    return this.#connection.query({ op: 'temperature', minor: sent(minor) }, 'value');
  }

  links(minor: number): readonly PortLink[] | undefined {
    return this.#connection.query({ op: 'links', minor: sent(minor) }, 'links');
  }

  transfers(): NodeTransfers | undefined {
    return this.#connection.query({ op: 'transfers' }, 'transfers');
  }

  /**
   * Injects a fault into a card.
   * @throws UcxError ERR_INVALID_PARAM for an invalid fault; SyscallError ENOENT for an unknown minor, ENODEV
   */
  inject(minor: number, fault: Fault): void {
    this.#connection.request({ op: 'fault', minor: sent(minor), fault: readFault(fault) });
  }

  /**
   * Makes the server serve a mount of device nodes, even after this connection is closed.
   * @param fuse descriptor of /dev/fuse, which the caller keeps
   * @throws SyscallError ENODEV if the server has ended
   */
  serveDevices(fuse: number): void {
    checkDescriptor('fuse', fuse);
    this.#connection.request({ op: 'devices' }, fuse);
  }

  /**
   * Makes the server answer system calls that the supervisor of a program forwards, even after this connection is closed.
   * @returns the descriptor of the supervisor's connection, which the caller closes, and the device nodes of the server
   * @throws SyscallError ENODEV if the server has ended
   */
  supervise(): { readonly connection: number; readonly nodes: readonly SupervisedNode[] } {
    // Without its end of the connection, the server forgets it.
    const { message, fd } = this.#connection.requestDescriptor({ op: 'supervise' }, () => {});
    return { connection: fd, nodes: message['nodes'] as SupervisedNode[] };
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

/** Like {@link connectEmulatedNode}; returns undefined if no server listens, also if an ended one has left its socket. */
export function findEmulatedNode(socketPath: string): RemoteNode | undefined {
  try {
    return connectEmulatedNode(socketPath);
  } catch (error) {
    if (isUcxError(error) && error.code === 'ERR_NODE_UNREACHABLE') return undefined;
    throw error;
  }
}

/** Maximum length of an attribute name that a server accepts. */
const NAME_MAX = 256;

/** The server would close the connection after a message that lacks its descriptor. @throws UcxError ERR_INVALID_PARAM */
function checkDescriptor(argument: string, fd: number): void {
  if (!Number.isInteger(fd) || fd < 0 || fd > 0x7fff_ffff) {
    throw invalidParam(argument, 'must be a file descriptor', fd);
  }
}

/** The minor for a message; -1 for values other than 32-bit integers, after which the server would close the connection. */
function sent(minor: number): number {
  return Number.isInteger(minor) && minor >= 0 && minor <= 0xffff_ffff ? minor : -1;
}
