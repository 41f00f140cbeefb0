/**
 * How a supervisor gets its work. The process that will execute the program sends it two messages: the mounted tree, with the connection to the node server
 * and the descriptor of /dev/fuse; then, once the program has its filter, the descriptor of that.
 */

import { POLL_TIMEOUT_MS_MAX, PollEvent, pollFor, SyscallError, type UnixSocket } from '../../sys/index.ts';

/** A device node for the supervisor. */
export interface SupervisedNode {
  readonly name: string;
  readonly ino: number;
  readonly control: boolean;
  readonly major: number;
  readonly minor: number;
}

/** A file system that stands for another one. */
export interface DisguisedFileSystem {
  /** Device number such as `0:52`. */
  readonly device: string;
  /** The type that statfs(2) reports for the file system that it stands for. */
  readonly type: number;
}

/** The mounted device tree that a supervisor cares for. */
export interface SupervisedTree {
  /** Device number of its file system. */
  readonly device: string;
  readonly nodes: readonly SupervisedNode[];
}

/** The filter of the program. */
interface SupervisedFilter {
  readonly listener: number;
  readonly disguised: readonly DisguisedFileSystem[];
}

/** The message of a supervisor to the node server that has the descriptor of the filter; the others are records of calls. */
export const FIRST_MESSAGE: Uint8Array = new Uint8Array(1);
const MESSAGE_BYTES = 65_536;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Sends a supervisor its tree. @throws SyscallError EPIPE if it has ended */
export function sendTree(
  supervisor: UnixSocket,
  tree: SupervisedTree,
  [server, fuse]: readonly [number, number],
): void {
  send(supervisor, tree, [server, fuse]);
}

/** Sends a supervisor the filter of the program. @throws SyscallError EPIPE if it has ended */
export function sendFilter(supervisor: UnixSocket, { listener, disguised }: SupervisedFilter): void {
  send(supervisor, { disguised }, [listener]);
}

/** Waits for the tree; undefined if the starter has ended before. */
export function receiveTree(
  starter: UnixSocket,
): { readonly tree: SupervisedTree; readonly server: number; readonly fuse: number } | undefined {
  while (pollFor(starter.fd, PollEvent.IN, POLL_TIMEOUT_MS_MAX) === 0);
  const received = receive<SupervisedTree>(starter);
  const [server, fuse] = received?.fds ?? [];
  return received === undefined ? undefined : { tree: received.message, server: server!, fuse: fuse! };
}

/** Receives the filter; undefined if the starter has ended before. */
export function receiveFilter(starter: UnixSocket): SupervisedFilter | undefined {
  const received = receive<Pick<SupervisedFilter, 'disguised'>>(starter);
  return received === undefined ? undefined : { ...received.message, listener: received.fds[0]! };
}

function send(supervisor: UnixSocket, message: object, fds: readonly number[]): void {
  const sent = supervisor.sendmsg(encoder.encode(JSON.stringify(message)), fds);
  if (sent < 0) throw new SyscallError('sendmsg', -sent, 'the supervisor of the program');
}

function receive<T>(starter: UnixSocket): { readonly message: T; readonly fds: readonly number[] } | undefined {
  const [bytes, fds] = [new Uint8Array(MESSAGE_BYTES), [] as number[]];
  const count = starter.recvmsg(bytes, fds);
  return count <= 0 ? undefined : { message: JSON.parse(decoder.decode(bytes.subarray(0, count))), fds };
}
