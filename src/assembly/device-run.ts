/**
 * Runs a program on the device nodes of an emulated node: this process becomes the program. The node server is another process: an existing one, or a
 * new one that ends with the last process that sees the device nodes. A third process supervises the program (device-nodes/supervisor.ts).
 */

import {
  DEVICE_FILTER,
  enterPrivateTree,
  isInPrivateTree,
  type RemoteNode,
  sendFilter,
  sendTree,
} from '../emulator/index.ts';
import {
  close as closeFd,
  Errno,
  execute,
  installSeccompFilter,
  isInitialUserNamespace,
  isSyscallError,
  type SyscallError,
  type UnixSocket,
} from '../sys/index.ts';
import { UcxError } from '../ucs/type/error.ts';
import { Status } from '../ucs/type/status.ts';

export { superviseProgram } from '../emulator/index.ts';

/** The processes that serve the program. */
interface RunLinks {
  readonly server: Pick<RemoteNode, 'serveDevices' | 'supervise' | 'close'>;
  readonly supervisor: UnixSocket;
}

/** The calls that change this process; tests replace them. */
interface RunSystem {
  readonly isInPrivateTree: typeof isInPrivateTree;
  readonly enterPrivateTree: typeof enterPrivateTree;
  readonly installSeccompFilter: typeof installSeccompFilter;
  readonly sendTree: typeof sendTree;
  readonly sendFilter: typeof sendFilter;
  readonly closeFd: typeof closeFd;
  readonly execute: typeof execute;
  readonly isInitialUserNamespace: typeof isInitialUserNamespace;
}

const SYSTEM: RunSystem = {
  isInPrivateTree,
  enterPrivateTree,
  installSeccompFilter,
  sendTree,
  sendFilter,
  closeFd,
  execute,
  isInitialUserNamespace,
};

/**
 * Executes a program in this process that sees the cards of a node server as device nodes. Exit code, signals, terminal and standard descriptors are those of
 * the program.
 * @param links connections to the node server and to a new supervisor, which the call closes
 * @param file a path, or a name that is looked up in PATH
 * @throws UcxError ERR_DEVICE_NODES if this process may not mount device nodes, or has them already; SyscallError ENOENT, EACCES and others of execve
 */
export function becomeProgram(
  { server, supervisor }: RunLinks,
  file: string,
  args: readonly string[],
  system: RunSystem = SYSTEM,
): never {
  if (system.isInPrivateTree()) throw alreadyMounted();
  try {
    const disguised = system.enterPrivateTree((fuse, device) => {
      server.serveDevices(fuse);
      const { connection, nodes } = server.supervise();
      system.sendTree(supervisor, { device, nodes }, [connection, fuse]);
      system.closeFd(connection);
    });
    const listener = system.installSeccompFilter(DEVICE_FILTER);
    system.sendFilter(supervisor, { listener, disguised });
    system.closeFd(listener);
  } catch (error) {
    throw isSyscallError(error) ? cannotMount(error, system.isInitialUserNamespace()) : error;
  }
  supervisor.close();
  server.close();
  return system.execute(file, args);
}

/** The error for a program that `run` has started. */
function alreadyMounted(): UcxError {
  return new UcxError({
    code: 'ERR_DEVICE_NODES',
    status: Status.UNSUPPORTED,
    message: 'this process already has device nodes of emulated cards: start the program without `gaudi-ucx run`',
    details: { reason: 'nested' },
  });
}

/** The error for device nodes that cannot be mounted, with their requirements. */
function cannotMount(cause: SyscallError, isInitialNamespace: boolean): UcxError {
  const needs =
    cause.errno === Errno.EPERM || cause.errno === Errno.EACCES || !isInitialNamespace
      ? 'requires CAP_SYS_ADMIN in the initial user namespace: run as root'
      : 'requires FUSE with passthrough (Linux 6.9), overlayfs and seccomp';
  return new UcxError({
    code: 'ERR_DEVICE_NODES',
    status: Status.UNSUPPORTED,
    message: `cannot mount device nodes of emulated cards: ${cause.message}; this ${needs}`,
    details: { errno: cause.errno },
    cause,
  });
}
