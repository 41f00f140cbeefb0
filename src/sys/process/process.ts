/**
 * Processes and threads: identity, end, scheduling, start of another program (execve), signals of faults, and the environment of C libraries. At a fault signal
 * such as SIGSEGV a process can wait for a debugger instead of ending. In a worker thread, process.env is a copy that C never sees; in the main thread both are
 * the same.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { invalidParam } from '../../ucs/type/error.ts';
import { clip } from '../../ucs/type/inspect.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import { Errno } from '../base/errno.ts';
import {
  clockGettime,
  dlsym,
  errno,
  execvp,
  getenv,
  gettidCall,
  kill,
  pidfdGetfdCall,
  pidfdOpenCall,
  prctl,
  schedGetaffinityCall,
  schedSetaffinityCall,
  schedYieldCall,
  setenv,
  signalCall,
  unsetenv,
} from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { isSyscallError, SyscallError } from '../base/syscall-error.ts';
import { noteDescriptor } from '../base/thread-resources.ts';
import { close, errnoOf, lockFile, OpenFlag, open, setBlocking, setCloexec } from '../file/file.ts';

const PR_SET_PDEATHSIG = 1;
const PR_SET_PTRACER = 0x59616d61;
const SIGKILL = 9;
const SYS_PIDFD_OPEN = 434;
const SYS_PIDFD_GETFD = 438;
const CLOCK_MONOTONIC_RAW = 4;
/** Above OOM_SCORE_ADJ_MIN, -1000, with which a process is never chosen: include/uapi/linux/oom.h. */
const OOM_SCORE_LOW = '-900';
const CPU_MASK_BYTES = 128;
const CPU_COUNT_MAX = CPU_MASK_BYTES * 8;

/**
 * Makes the kernel kill this process when the thread that started it ends. Call it first in a child that spins, which would not notice the end otherwise. Has
 * no effect if the parent has already ended: compare process.ppid afterwards.
 * @param signal SIGKILL by default; 0 cancels it
 */
export function setParentDeathSignal(signal: number = SIGKILL): void {
  if (prctl(PR_SET_PDEATHSIG, signal) !== 0) throw new SyscallError('prctl', errno(), `PR_SET_PDEATHSIG ${signal}`);
}

/**
 * Allows another process of the same user to read and write the memory of this one, on systems where only ancestors may do so (Yama, ptrace_scope 1). Replaces
 * the previous permission; has no effect without Yama, where it is not needed.
 * @param pid 0 revokes the permission
 */
export function allowMemoryAccess(pid: number): void {
  if (prctl(PR_SET_PTRACER, pid) === 0) return;
  const code = errno();
  if (code !== Errno.EINVAL) throw new SyscallError('prctl', code, `PR_SET_PTRACER ${pid}`);
}

/** The process id of the caller. */
export function getpid(): number {
  return process.pid;
}

/** The thread id of the caller; for the main thread it equals the process id. */
export function gettid(): number {
  return gettidCall();
}

/** Yields this CPU to other runnable threads. */
export function schedYield(): void {
  schedYieldCall();
}

/**
 * Restricts a thread to CPUs.
 * @param tid 0 for the calling thread
 * @param cpus indices of at least one CPU, below 1024
 * @throws UcxError ERR_INVALID_PARAM; SyscallError EINVAL (none of the CPUs is usable), ESRCH, EPERM
 */
export function schedSetAffinity(tid: number, cpus: readonly number[]): void {
  const mask = allocateScratch(CPU_MASK_BYTES);
  try {
    for (const cpu of cpus) {
      if (!Number.isInteger(cpu) || cpu < 0 || cpu >= CPU_COUNT_MAX) {
        throw invalidParam('cpus', `must have indices from 0 to ${CPU_COUNT_MAX - 1}`, cpu);
      }
      mask.words[cpu >>> 5]! |= 1 << (cpu & 31);
    }
    if (schedSetaffinityCall(tid, CPU_MASK_BYTES, mask.address) !== 0) {
      throw new SyscallError('sched_setaffinity', errno(), `thread ${tid} to CPUs ${cpus.join(',')}`);
    }
  } finally {
    mask.free();
  }
}

/**
 * The CPUs that a thread may run on, ascending.
 * @param tid 0 for the calling thread
 * @throws SyscallError ESRCH, EPERM
 */
export function schedGetAffinity(tid: number): number[] {
  const mask = allocateScratch(CPU_MASK_BYTES);
  try {
    if (schedGetaffinityCall(tid, CPU_MASK_BYTES, mask.address) < 0) {
      throw new SyscallError('sched_getaffinity', errno(), `thread ${tid}`);
    }
    const cpus: number[] = [];
    for (let cpu = 0; cpu < CPU_COUNT_MAX; cpu++) {
      if ((mask.words[cpu >>> 5]! & (1 << (cpu & 31))) !== 0) cpus.push(cpu);
    }
    return cpus;
  } finally {
    mask.free();
  }
}

/**
 * Makes the kernel choose this process last when memory runs out (`oom_score_adj`). Processes that it starts inherit that.
 * @returns false if the user may not do that
 */
export function avoidOomKiller(): boolean {
  try {
    writeFileSync('/proc/self/oom_score_adj', OOM_SCORE_LOW);
    return true;
  } catch (error) {
    if (errnoOf(error) === Errno.EACCES || errnoOf(error) === Errno.EROFS) return false;
    throw new SyscallError('write', errnoOf(error), '/proc/self/oom_score_adj', { cause: error });
  }
}

/** True if the process exists, even as a zombie or as a process of another user. */
export function processExists(pid: number): boolean {
  return kill(pid, 0) === 0 || errno() === Errno.EPERM;
}

/**
 * Start time of a process, in clock ticks (10 ms) since boot: together with the pid, an identity that is not reused.
 * @returns undefined if the process does not exist
 * @throws SyscallError EMFILE, ENFILE, EACCES: the start time cannot be determined
 */
export function processStartTime(pid: number): number | undefined {
  const start = statField(pid, 22);
  return start === undefined ? undefined : Number(start);
}

/**
 * True while a process runs: it exists, has not ended, and has the given start time, if any. If /proc cannot be read, for example without free descriptors,
 * true for every existing process.
 * @param startTime of {@link processStartTime}
 */
export function isProcessAlive(pid: number, startTime?: number): boolean {
  try {
    const state = statField(pid, 3);
    if (state === undefined || state === 'Z' || state === 'X') return false;
    return startTime === undefined || processStartTime(pid) === startTime;
  } catch (error) {
    if (isSyscallError(error)) return processExists(pid);
    throw error;
  }
}

/** True while a process is stopped by a signal (SIGSTOP, SIGTSTP); false if that cannot be determined. */
export function isProcessStopped(pid: number): boolean {
  return isInState(pid, 'T');
}

/** True while a debugger stops a process (ptrace), also during each call that a tracer such as strace reports; false if that cannot be determined. */
export function isProcessTraced(pid: number): boolean {
  return isInState(pid, 't');
}

function isInState(pid: number, state: string): boolean {
  try {
    return statField(pid, 3) === state;
  } catch (error) {
    if (isSyscallError(error)) return false;
    throw error;
  }
}

/**
 * A descriptor of a process, readable after the process has ended, even if its pid is reused. Close-on-exec.
 * @returns the fd, which the caller owns
 * @throws SyscallError ESRCH; EINVAL or, on newer kernels, ENOENT for the id of a thread that is not the first of its process; ENOSYS before Linux 5.3; EMFILE
 */
export function pidfdOpen(pid: number): number {
  const fd = noteDescriptor(pidfdOpenCall(SYS_PIDFD_OPEN, pid, 0));
  if (fd < 0) throw new SyscallError('pidfd_open', errno(), `pid ${pid}`);
  return fd;
}

/**
 * A duplicate of a descriptor of another process, close-on-exec.
 * @param pidfd of {@link pidfdOpen}
 * @returns the fd, which the caller owns
 * @throws SyscallError EBADF for a descriptor that the process does not have, EPERM without the right to trace the process, ESRCH, EMFILE
 */
export function pidfdGetfd(pidfd: number, fd: number): number {
  const own = noteDescriptor(pidfdGetfdCall(SYS_PIDFD_GETFD, pidfd, fd, 0));
  if (own < 0) throw new SyscallError('pidfd_getfd', errno(), `fd ${fd}`);
  return own;
}

/** The process that a thread belongs to; undefined for a thread that has ended. */
export function processOfThread(tid: number): number | undefined {
  try {
    return Number(/^Tgid:\s+(\d+)$/m.exec(readFileSync(`/proc/${tid}/status`, 'latin1'))?.[1]);
  } catch (error) {
    const code = errnoOf(error);
    if (code === Errno.ENOENT || code === Errno.ESRCH) return undefined;
    throw new SyscallError('open', code, `/proc/${tid}/status`, { cause: error });
  }
}

let timespec: ScratchBlock | undefined;

/** CLOCK_MONOTONIC_RAW, which is never adjusted, in ns since boot; equal in all processes. Exact for 104 days, then in steps of 2 ns. Takes 40 ns. */
export function clockMonotonicRawNs(): number {
  timespec ??= allocateScratch(16);
  clockGettime(CLOCK_MONOTONIC_RAW, timespec.address);
  return joinWords(timespec.words[0]!, timespec.words[1]!) * 1e9 + timespec.words[2]!;
}

/**
 * The command line of a process, words separated by blanks, truncated to `lengthMax` characters; undefined for a process that has ended or that the caller may
 * not inspect.
 */
export function processCommand(pid: number, lengthMax: number): string | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    // ENOENT, ESRCH and EACCES mean the same to the caller: the command line is not available.
    return undefined;
  }
  const line = text.replace(/\0$/, '').replaceAll('\0', ' ');
  if (line === '') return undefined;
  return clip(line, lengthMax);
}

/** A field of /proc/<pid>/stat, numbered from 1 as in proc(5), 3 and above; undefined if the process has ended. */
function statField(pid: number, field: number): string | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch (error) {
    const code = errnoOf(error);
    if (code === Errno.ENOENT || code === Errno.ESRCH) return undefined;
    throw new SyscallError('open', code, `/proc/${pid}/stat`, { cause: error });
  }
  // The second field is the name in parentheses and may itself contain blanks and parentheses.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return fields[field - 3];
}

const SIGPIPE = 13;
const SIG_DFL = 0;
const POINTER_BYTES = 8;
const STANDARD_FDS = [0, 1, 2] as const;

/**
 * Runs another program in this process, with its standard descriptors, its environment and its working directory. Call it in the main thread: the program
 * inherits the mount namespace and the seccomp filters of the thread. Returns only by an exception.
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
  // Node.js marks the standard descriptors close-on-exec, makes pipes non-blocking, so that a program which writes much would lose output, and ignores SIGPIPE.
  for (const fd of STANDARD_FDS) {
    setCloexec(fd, false);
    setBlocking(fd);
  }
  signalCall(SIGPIPE, SIG_DFL);
  execvp(file, block.address);
  throw new SyscallError('execve', errno(), file);
}

/**
 * Makes the thread that causes or receives one of these signals wait in pause(2). A handler must be a C function, because JavaScript cannot run in one. pause
 * returns only after another handler has run; the faulty instruction then faults again.
 */
export function waitAtSignals(signals: readonly number[]): void {
  const pause = dlsym(0, 'pause');
  for (const signal of signals) signalCall(signal, pause);
}

/** A file that differs for each process. */
const LOCK_PATH = '/proc/self/status';
/** Nesting depth of {@link withEnvironmentLock} in this thread. */
let depth = 0;

/**
 * Runs code that temporarily changes or reads the C environment; only one thread of the process at a time. The lock is a kernel lock, which ends with its
 * thread.
 * @throws SyscallError without /proc or without free descriptors
 */
export function withEnvironmentLock<T>(run: () => T): T {
  const fd = depth === 0 ? lockEnvironment() : undefined;
  depth += 1;
  try {
    return run();
  } finally {
    depth -= 1;
    if (fd !== undefined) close(fd);
  }
}

function lockEnvironment(): number {
  const fd = open(LOCK_PATH, OpenFlag.RDONLY);
  try {
    lockFile(fd);
    return fd;
  } catch (error) {
    close(fd);
    throw error;
  }
}

/** The value of an environment variable; undefined if it is not set. */
export function getEnvironment(name: string): string | undefined {
  return getenv(name) ?? undefined;
}

/**
 * Sets an environment variable, or removes it (undefined). In the main thread, Node.js blocks its other threads meanwhile, because a starting thread copies the
 * environment and could read freed memory. A call in a worker thread does not block them, and C threads are never blocked: call it only while they do not read
 * the environment.
 * @throws UcxError ERR_INVALID_PARAM for a name that is empty or contains `=` or a zero byte, or a value with a zero byte; SyscallError ENOMEM
 */
export function setEnvironment(name: string, value: string | undefined): void {
  if (name === '' || name.includes('=') || name.includes('\0')) {
    throw invalidParam('name', 'must not be empty, and must not contain = or a zero byte', name);
  }
  if (value?.includes('\0')) throw invalidParam('value', 'must not contain a zero byte', value);
  if (isMainThread) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
    return;
  }
  const result = value === undefined ? unsetenv(name) : setenv(name, value, 1);
  if (result !== 0) throw new SyscallError(value === undefined ? 'unsetenv' : 'setenv', errno(), name);
}
