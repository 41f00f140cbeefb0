/** The CS ioctl: checks a submission in the order of the driver, opens it and starts its jobs. */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  engineIdOf,
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_CS_CHUNK_FLAGS,
  HL_CS_FLAGS,
  HL_DEVICE_STATUS,
  HL_ENGINE_COMMAND,
  HL_MAX_JOBS_PER_CS,
  type QueueEntry,
} from '../../../uapi/index.ts';
import { Stall, type Stream } from '../../device/queue/stream.ts';
import { readNumber } from '../base/numbers.ts';
import { OWN_PROCESS } from '../memory/user-memory.ts';
import { accept, acceptNothing, latchedFlags, reject, timeoutSecondsOf } from '../submission/answers.ts';
import { parseExternalBuffer } from '../submission/command-buffer-check.ts';
import {
  type CheckedChunk,
  type ChunkList,
  type CsCounters,
  type Submission,
  SubmissionState,
} from '../submission/submission.ts';
import type { Context } from './context.ts';

const NS_PER_S = 1e9;
/**
 * Time limit of the restore phase for another process, because it blocks the driver for all processes. After it, the submission ends with ENOEXEC, as
 * after a time-out.
 */
const FOREIGN_RESTORE_NS_MAX = 20e6;
const IN = HL_CS_ARGS.in.words;
const CHUNK = HL_CS_CHUNK.words;
const CHUNK_WORDS: number = HL_CS_CHUNK.size / 4;
/** Minimum size of a command buffer in a chunk: one packet. */
const CB_BYTES_MIN = 8;

/** The argument words that describe the chunks of a phase. */
interface Phase {
  readonly pointer: number;
  readonly count: number;
}

const RESTORE: Phase = { pointer: IN.chunks_restore, count: IN.num_chunks_restore };
const EXECUTE: Phase = { pointer: IN.chunks_execute, count: IN.num_chunks_execute };

const STAGED = HL_CS_FLAGS.STAGED_SUBMISSION;
const SYNC_TYPES: number =
  HL_CS_FLAGS.SIGNAL |
  HL_CS_FLAGS.WAIT |
  HL_CS_FLAGS.COLLECTIVE_WAIT |
  HL_CS_FLAGS.RESERVE_SIGNALS_ONLY |
  HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY;
const COMMAND_TYPES: number = HL_CS_FLAGS.ENGINE_CORE_COMMAND | HL_CS_FLAGS.ENGINES_COMMAND;
const TYPE_FLAGS: number = SYNC_TYPES | COMMAND_TYPES | HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES;

/** Never blocks, except for the restore phase of FORCE_RESTORE. */
export function submitIoctl(context: Context, block: ArgumentBlock): number {
  const { words } = block;
  const flags = words[IN.cs_flags]!;
  if (words[IN.pad] !== 0) return reject(block, Errno.EINVAL);
  const refused = checkType(context, flags, words[IN.num_chunks_execute]!);
  if (refused !== 0) return reject(block, refused);
  if ((flags & SYNC_TYPES) !== 0) return context.syncStream.submitIoctl(block, flags);
  if ((flags & COMMAND_TYPES) !== 0) return engineCommandIoctl(context, block, flags);
  // The driver reads a register over PCI to flush posted writes to memory; the emulator posts none.
  if ((flags & HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES) !== 0) return acceptNothing(block);
  if ((flags & HL_CS_FLAGS.FORCE_RESTORE) !== 0 && words[IN.num_chunks_restore] !== 0) {
    const failed = restore(context, block);
    if (failed !== 0) return failed === Errno.EAGAIN ? -failed : reject(block, failed);
  }
  return submitDefault(context, block, flags);
}

/** Checks that do not depend on chunks; returns 0 or an errno. */
function checkType(context: Context, flags: number, chunks: number): number {
  const { card } = context;
  const { capabilities } = card.profile;
  if (card.status !== HL_DEVICE_STATUS.OPERATIONAL) return Errno.EBUSY;
  if ((flags & STAGED) !== 0 && !capabilities.staged) return Errno.EPERM;
  const type = flags & TYPE_FLAGS;
  if ((type & (type - 1)) !== 0) return Errno.EINVAL;
  if ((type & SYNC_TYPES) !== 0 && !capabilities.syncStream) return Errno.EINVAL;
  if (type === 0 && chunks === 0) return Errno.EINVAL;
  const needsOneChunk = (type & (HL_CS_FLAGS.SIGNAL | HL_CS_FLAGS.WAIT | HL_CS_FLAGS.COLLECTIVE_WAIT)) !== 0;
  if (needsOneChunk && chunks !== 1) return Errno.EINVAL;
  return 0;
}

function submitDefault(context: Context, block: ArgumentBlock, flags: number): number {
  const submission = submitPhase(context, block, EXECUTE, flags);
  if (typeof submission === 'number') return submission === Errno.EAGAIN ? -submission : reject(block, submission);
  return accept(block, submission.staged?.firstSeq ?? submission.seq);
}

/**
 * Checks and starts the submission of a phase, or returns an errno. The sequence number is assigned before the checks of the chunks: a rejected submission
 * keeps it, and counts as complete (cs_ioctl_default and cs_do_release, Linux 6.12).
 */
function submitPhase(context: Context, block: ArgumentBlock, phase: Phase, flags: number): Submission | number {
  const { submissions, counters, card, chunks } = context;
  const { words } = block;
  const copied = copyChunks(context, block, phase);
  if (copied !== 0) return copied;
  submissions.retire();
  if (!submissions.hasFreeSlot) {
    counters.maxCsInFlight += 1;
    return Errno.EAGAIN;
  }
  const submission = submissions.open(latchedFlags(card, flags), timeoutSecondsOf(card, words, flags));
  const refused =
    checkChunks(context, words[phase.count]!, needsCompletion(flags)) || schedule(context, submission, words);
  if (refused !== 0) return refused;
  card.faults.strike(submission);
  startJobs(context, submission, chunks);
  return submission;
}

/**
 * The last checks of a submission: free queue entries, its reservation, and its staged submission, which it joins. Returns 0 or an errno
 * (hl_hw_queue_schedule_cs).
 */
function schedule(context: Context, submission: Submission, words: Uint32Array): number {
  const { submissions, counters, chunks, syncStream } = context;
  const { flags } = submission;
  if (!hasFreeEntries(chunks)) {
    counters.queueFull += 1;
    return hasOverlongInternal(chunks) ? Errno.ENOMEM : Errno.EAGAIN;
  }
  if ((flags & STAGED) === 0) return 0;
  const isFirst = (flags & HL_CS_FLAGS.STAGED_SUBMISSION_FIRST) !== 0;
  const encapsulates = isFirst && (flags & HL_CS_FLAGS.ENCAP_SIGNALS) !== 0;
  const reservation = words[IN.encaps_sig_handle_id]!;
  if (encapsulates && !syncStream.isReserved(reservation)) return Errno.EINVAL;
  const group = isFirst ? submissions.openStaged(submission) : submissions.findStaged(readNumber(words, IN.seq));
  if (group === undefined) return Errno.EINVAL;
  submission.staged = group;
  group.members.push(submission);
  group.closed = (flags & HL_CS_FLAGS.STAGED_SUBMISSION_LAST) !== 0;
  if (encapsulates) syncStream.bind(reservation, submission);
  return 0;
}

/** Whether every queue has enough free entries for its chunks of the submission. */
function hasFreeEntries(chunks: ChunkList): boolean {
  for (let i = 0; i < chunks.length; i++) {
    const { stream } = chunks.items[i]!;
    if (stream.outstanding + chunks.length <= stream.length) continue;
    if (stream.outstanding + countOn(chunks, stream) > stream.length) return false;
  }
  return true;
}

function hasOverlongInternal(chunks: ChunkList): boolean {
  return chunks.items.slice(0, chunks.length).some(({ stream }) => {
    return !stream.tracked && countOn(chunks, stream) > stream.length;
  });
}

function countOn(chunks: ChunkList, stream: Stream): number {
  let count = 0;
  for (let i = 0; i < chunks.length; i++) if (chunks.items[i]!.stream === stream) count += 1;
  return count;
}

/** A separate function, so that other submissions do not allocate its closure. */
function hangsAs(submission: Submission): () => boolean {
  return () => submission.hung;
}

/** Adds the jobs to their queues, in the order of the chunks. */
function startJobs(context: Context, submission: Submission, chunks: ChunkList): void {
  const { device, submissions } = context;
  const stamp = (submission.flags & HL_CS_FLAGS.TIMESTAMP) === 0 ? 0 : submissions.stampAddress(submission);
  const isHeld = submission.hung ? hangsAs(submission) : undefined;
  // A multi-wait refers to a staged submission by its first member.
  const first = submission.staged?.members[0] ?? submission;
  for (let i = 0; i < chunks.length; i++) {
    const chunk = chunks.items[i]!;
    const { stream } = chunk;
    const job = submission.addJob(stream);
    // Untracked jobs may end after the submission.
    job.stampAddress = stream.tracked ? stamp : 0;
    stream.outstanding += 1;
    first.multiWait ||= stream.streamMaster;
    device.processor.execute(stream, job, chunk, isHeld);
  }
  const { card } = context;
  if (submissions.poll(submission) === SubmissionState.PENDING) card.watchTimeout();
  // A submission that completes at once as the last member of a staged one may end a wait.
  else if (card.waiters.any) card.waiters.wake();
}

/** The restore phase: a separate submission that must complete before the next one starts. */
function restore(context: Context, block: ArgumentBlock): number {
  const timeoutSeconds = timeoutSecondsOf(context.card, block.words, 0);
  const submission = submitPhase(context, block, RESTORE, 0);
  if (typeof submission === 'number') return submission;
  const { submissions } = context;
  const isForeign = context.userMemory.owner !== OWN_PROCESS;
  const waitNs = Math.min(timeoutSeconds * NS_PER_S, isForeign ? FOREIGN_RESTORE_NS_MAX : Number.POSITIVE_INFINITY);
  context.card.waiters.block(waitNs, () => submissions.poll(submission) !== SubmissionState.PENDING);
  return submissions.poll(submission) === SubmissionState.COMPLETED ? 0 : Errno.ENOEXEC;
}

/** Whether the driver tracks the completion of a submission: not for staged ones other than the last member (cs_needs_completion, Linux 6.12). */
function needsCompletion(flags: number): boolean {
  return (flags & STAGED) === 0 || (flags & HL_CS_FLAGS.STAGED_SUBMISSION_LAST) !== 0;
}

/** Copies the chunks of a phase from the memory of the user (hl_cs_copy_chunk_array); returns 0 or an errno. */
function copyChunks({ counters, userMemory }: Context, block: ArgumentBlock, phase: Phase): number {
  const { words } = block;
  const count = words[phase.count]!;
  const low = words[phase.pointer]! | 0;
  const high = words[phase.pointer + 1]! | 0;
  const isCopied = count <= HL_MAX_JOBS_PER_CS && userMemory.readWords(block, low, high, count * CHUNK_WORDS);
  if (isCopied) return 0;
  counters.validation += 1;
  return count > HL_MAX_JOBS_PER_CS ? Errno.EINVAL : Errno.EFAULT;
}

/**
 * Checks the copied chunks and adds them to the list; returns 0 or an errno.
 * @param completes whether one of them must use a queue that signals completion
 */
function checkChunks(context: Context, count: number, completes: boolean): number {
  const { chunks, counters, userMemory } = context;
  chunks.length = 0;
  let tracked = false;
  for (let i = 0; i < count; i++) {
    const errno = checkChunk(context, userMemory.words, userMemory.index + i * CHUNK_WORDS);
    if (errno !== 0) return errno;
    tracked ||= chunks.items[i]!.stream.tracked;
  }
  return tracked || !completes ? 0 : invalid(counters);
}

/** Counts an invalid submission; returns EINVAL. */
function invalid(counters: CsCounters): number {
  counters.validation += 1;
  return Errno.EINVAL;
}

/** Checks one chunk and adds it to the list; returns 0 or an errno. Parsing its command buffer detects a disabled queue (cs_parser of the ASIC, Linux 6.12). */
function checkChunk(context: Context, words: Uint32Array, at: number): number {
  const { card, counters } = context;
  const queue = card.profile.queues[words[at + CHUNK.queue_index]!];
  if (queue === undefined || queue.kind === 'cpu') return invalid(counters);
  const userCb = (words[at + CHUNK.cs_chunk_flags]! & HL_CS_CHUNK_FLAGS.USER_ALLOC_CB) !== 0;
  if (queue.kind === 'hw' && !userCb) return invalid(counters);
  if (!queue.userUsable) {
    counters.parsing += 1;
    return Errno.EINVAL;
  }
  const chunk = context.chunks.next(context.device.stream(queue.id));
  chunk.byteLength = words[at + CHUNK.cb_size]!;
  const low = words[at + CHUNK.cb_handle]! | 0;
  const high = words[at + CHUNK.cb_handle + 1]! | 0;
  return queue.kind === 'external'
    ? resolveKernelBuffer(context, chunk, low, high)
    : resolveUserBuffer(context, chunk, low, high);
}

/** Resolves the handle of a driver command buffer, and parses its packets. */
function resolveKernelBuffer(context: Context, chunk: CheckedChunk, low: number, high: number): number {
  const buffer = context.buffers.findCommandBuffer(low >>> 0, high >>> 0);
  if (buffer === undefined || chunk.byteLength < CB_BYTES_MIN || chunk.byteLength > buffer.byteLength) {
    return invalid(context.counters);
  }
  chunk.memory = buffer.memory;
  const errno = parseExternalBuffer(buffer.memory, chunk.byteLength);
  if (errno !== 0) context.counters.parsing += 1;
  return errno;
}

/** Resolves a command buffer in user memory. Only its range is checked: unmapped pages fault when the card fetches it. */
function resolveUserBuffer(context: Context, chunk: CheckedChunk, low: number, high: number): number {
  if (!context.userCbRanges.contain(high, low, chunk.byteLength)) {
    context.counters.parsing += 1;
    return Errno.EFAULT;
  }
  chunk.memory = undefined;
  chunk.high = high;
  chunk.low = low;
  return 0;
}

/** Engine ids exist for six TPCs of dcore 0, not for the seventh. */
const NAMED_TPCS = 6;

/**
 * CS with ENGINE_CORE_COMMAND or ENGINES_COMMAND: halts and runs the cores of the engines; stalls and resumes engines.
 *
 * No core runs a program here, so halting one is checked but has no effect. A stalled EDMA starts no transfers, a stalled MME has its queue manager
 * stopped; TPCs have no kernels to stall. Source: drivers/accel/habanalabs/common/command_submission.c (cs_ioctl_engine_cores, cs_ioctl_engines) and
 * gaudi2/gaudi2.c (gaudi2_set_engines), Linux 6.12.
 */
function engineCommandIoctl(context: Context, block: ArgumentBlock, flags: number): number {
  const errno = runCommand(context, block, (flags & HL_CS_FLAGS.ENGINE_CORE_COMMAND) !== 0);
  return errno === 0 ? acceptNothing(block) : reject(block, errno);
}

/** @returns 0, or an errno; engines before the rejected one have been changed */
function runCommand(context: Context, block: ArgumentBlock, isOfCores: boolean): number {
  const { words } = block;
  const { userMemory, card } = context;
  if (!card.profile.capabilities.engineCommands) return Errno.EPERM;
  const count = words[IN.num_engines]!;
  const command = words[IN.engine_command]!;
  const isCoreCommand = command === HL_ENGINE_COMMAND.CORE_HALT || command === HL_ENGINE_COMMAND.CORE_RUN;
  const { coreCount, idCount } = card.profile.engines;
  if (count === 0 || count > (isOfCores || isCoreCommand ? coreCount : idCount)) return Errno.EINVAL;
  const isEngineCommand = command === HL_ENGINE_COMMAND.STALL || command === HL_ENGINE_COMMAND.RESUME;
  if (!isCoreCommand && (isOfCores || !isEngineCommand)) return Errno.EINVAL;
  if (!userMemory.readWords(block, words[IN.engines]!, words[IN.engines + 1]!, count)) return Errno.EFAULT;
  if (isCoreCommand) return 0;
  const ids = userMemory.words.slice(userMemory.index, userMemory.index + count);
  return setModes(context, ids, command === HL_ENGINE_COMMAND.STALL);
}

function setModes({ card, device }: Context, ids: Uint32Array, stalls: boolean): number {
  const { queues, name, engines } = card.profile;
  // Engines without queues run nothing here.
  const hasNoQueue = (id: number): boolean =>
    engines.stallable.some(({ first, count }) => id >= first && id < first + count);
  for (const id of ids) {
    const ofEngine = queues.filter((queue) => isStallable(queue) && engineIdOf(name, queue) === id);
    if (ofEngine.length === 0 && !hasNoQueue(id)) return Errno.EINVAL;
    for (const queue of ofEngine) device.stall(queue.id, stalls ? stallOf(queue) : Stall.NONE);
  }
  if (!stalls) {
    card.service();
    card.waiters.wake();
  }
  return 0;
}

function isStallable({ engine, engineIndex }: QueueEntry): boolean {
  return engine === 'edma' || engine === 'mme' || (engine === 'tpc' && engineIndex < NAMED_TPCS);
}

function stallOf({ engine }: QueueEntry): Stall {
  if (engine === 'mme') return Stall.PACKETS;
  return engine === 'edma' ? Stall.TRANSFERS : Stall.NONE;
}
