/**
 * Processes and threads: identity, life and death, scheduling. Starting them is in worker-thread.ts and node:child_process.
 */

import { readFileSync } from 'node:fs';
import { invalidParam } from '../ucs/type/error.ts';
import { joinWords } from '../ucs/type/int64.ts';
import { Errno } from './errno.ts';
import { errnoOf } from './file.ts';
import {
  clockGettime,
  errno,
  gettidCall,
  kill,
  pidfdOpenCall,
  prctl,
  schedGetaffinityCall,
  schedSetaffinityCall,
  schedYieldCall,
} from './libc.ts';
import { allocateScratch, type ScratchBlock } from './scratch.ts';
import { isSyscallError, SyscallError } from './syscall-error.ts';
import { noteDescriptor } from './thread-descriptors.ts';

const PR_SET_PDEATHSIG = 1;
const PR_SET_PTRACER = 0x59616d61;
const SIGKILL = 9;
const SYS_PIDFD_OPEN = 434;
const CLOCK_MONOTONIC_RAW = 4;
const CPU_MASK_BYTES = 128;
const CPU_COUNT_MAX = CPU_MASK_BYTES * 8;

/**
 * Asks the kernel to kill this process when the thread that started it ends: the first thing to do in a child that spins, which
 * never notices otherwise. Has no effect when the parent is dead already: compare process.ppid afterwards.
 * @param signal SIGKILL by default; 0 takes the wish back
 */
export function setParentDeathSignal(signal: number = SIGKILL): void {
  if (prctl(PR_SET_PDEATHSIG, signal) !== 0) throw new SyscallError('prctl', errno(), `PR_SET_PDEATHSIG ${signal}`);
}

/**
 * Lets another process of the same user read and write the memory of this one, where the system allows that to ancestors only (Yama,
 * ptrace_scope 1). Replaces the wish before; without Yama nothing is needed and nothing happens.
 * @param pid 0 takes the wish back
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

/** The thread id of the caller; that of the main thread is the process id. */
export function gettid(): number {
  return gettidCall();
}

/** Lets other threads that are ready run on this CPU. */
export function schedYield(): void {
  schedYieldCall();
}

/**
 * Restricts a thread to CPUs.
 * @param tid 0 for the calling thread
 * @param cpus indices of at least one CPU, below 1024
 * @throws UcxError ERR_INVALID_PARAM; SyscallError EINVAL (no such CPU is usable), ESRCH, EPERM
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

/** True when there is such a process, also one that has ended and was not waited for, or one of another user. */
export function processExists(pid: number): boolean {
  return kill(pid, 0) === 0 || errno() === Errno.EPERM;
}

/**
 * When a process was started, in clock ticks (10 ms) since boot: with the pid, an identity that is not reused.
 * @returns undefined when there is no such process
 * @throws SyscallError EMFILE, ENFILE, EACCES: nothing is known about it
 */
export function processStartTime(pid: number): number | undefined {
  const start = statField(pid, 22);
  return start === undefined ? undefined : Number(start);
}

/**
 * True while a process runs: it exists, has not ended, and is still the same when its start time is given. Where /proc cannot be read, as without
 * descriptors, true for every process that exists.
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

/**
 * A descriptor of a process: readable once it has ended, whichever process gets its pid afterwards. Close-on-exec.
 * @returns the fd, which the caller owns
 * @throws SyscallError ESRCH; ENOSYS before Linux 5.3; EMFILE
 */
export function pidfdOpen(pid: number): number {
  const fd = noteDescriptor(pidfdOpenCall(SYS_PIDFD_OPEN, pid, 0));
  if (fd < 0) throw new SyscallError('pidfd_open', errno(), `pid ${pid}`);
  return fd;
}

let timespec: ScratchBlock | undefined;

/**
 * The clock that is never adjusted (CLOCK_MONOTONIC_RAW), in ns since boot; equal in all processes. Exact for 104 days, then to 2 ns. 40 ns.
 */
export function clockMonotonicRawNs(): number {
  timespec ??= allocateScratch(16);
  clockGettime(CLOCK_MONOTONIC_RAW, timespec.address);
  return joinWords(timespec.words[0]!, timespec.words[1]!) * 1e9 + timespec.words[2]!;
}

/**
 * The command line of a process, its words with blanks between them, cut after `lengthMax` characters; undefined for a process that has ended or that the
 * caller may not look at.
 */
export function processCommand(pid: number, lengthMax: number): string | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    // ENOENT, ESRCH and EACCES mean the same to the reader: the process cannot be named.
    return undefined;
  }
  const line = text.replace(/\0$/, '').replaceAll('\0', ' ');
  if (line === '') return undefined;
  return line.length <= lengthMax ? line : `${line.slice(0, lengthMax - 1)}…`;
}

/** A field of /proc/<pid>/stat, numbered from 1 as in proc(5), 3 and above; undefined when the process has ended. */
function statField(pid: number, field: number): string | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch (error) {
    const code = errnoOf(error);
    if (code === Errno.ENOENT || code === Errno.ESRCH) return undefined;
    throw new SyscallError('open', code, `/proc/${pid}/stat`, error);
  }
  // The second field is the name in parentheses and may contain both blanks and parentheses.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return fields[field - 3];
}
