/**
 * Replaces the program of this process (execve). Starting other processes is in node:child_process.
 */

import { errno, execvp, signalCall } from '../base/libc.ts';
import { allocateScratch } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { setCloexec } from '../file/file.ts';

const SIGPIPE = 13;
const SIG_DFL = 0;
const POINTER_BYTES = 8;
const STANDARD_FDS = [0, 1, 2] as const;

/**
 * Runs another program in this process, with its standard descriptors, its environment and its working directory. Call it in the main thread, whose mount
 * namespace and filters the program keeps. Returns only by an exception.
 * @param file a path, or a name that is looked up in PATH
 * @param args the arguments without the name of the program
 * @throws SyscallError ENOENT, EACCES, ENOEXEC, E2BIG, ENOMEM
 */
export function execute(file: string, args: readonly string[]): never {
  const texts = [file, ...args].map((text) => Buffer.from(`${text}\0`));
  const tableBytes = (texts.length + 1) * POINTER_BYTES;
  using block = allocateScratch(tableBytes + texts.reduce((sum, text) => sum + text.byteLength, 0));
  let at = tableBytes;
  for (const [index, text] of texts.entries()) {
    block.view.setBigUint64(index * POINTER_BYTES, BigInt(block.address + at), true);
    block.u8.set(text, at);
    at += text.byteLength;
  }
  // Node.js marks these close-on-exec and ignores SIGPIPE, which a program would inherit.
  for (const fd of STANDARD_FDS) setCloexec(fd, false);
  signalCall(SIGPIPE, SIG_DFL);
  execvp(file, block.address);
  throw new SyscallError('execve', errno(), file);
}
