/**
 * Signals between queues: SIGNAL and WAIT submissions and reservations of signals (the sync stream of the driver).
 *
 * A signal is a job of the driver that adds 1 to a sync object of its queue; a wait is one that arms a monitor on that object and
 * blocks on a fence. Source: drivers/accel/habanalabs/common/command_submission.c and hw_queue.c, Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import { HL_CS_ARGS, HL_CS_CHUNK, HL_CS_FLAGS, type QueueEntry } from '../../../uapi/index.ts';
import type { PhysicalMemory } from '../../device/physical-memory.ts';
import { readNumber } from '../base/words.ts';
import type { ContextPort } from './context-port.ts';
import { accept, acceptNothing, refuse } from './cs-answer.ts';
import { timeoutSecondsOf } from './cs-timeout.ts';
import { type Submission, SubmissionState } from './submission.ts';
import { SignalPackets } from './sync-packets.ts';

const IN = HL_CS_ARGS.in.words;
const OUT = HL_CS_ARGS.out.words;
const CHUNK = HL_CS_CHUNK.words;
const CHUNK_WORDS: number = HL_CS_CHUNK.size / 4;

/** End of the count of a sync object (HL_MAX_SOB_VAL); then the queue switches to its other one. */
const SOB_VALUE_END = 0x8000;
/** Sync objects and monitors that the driver reserves before those of the sync streams. */
const DRIVER_SOBS = { gaudi: 128, gaudi2: 85 } as const;
const DRIVER_MONITORS = { gaudi: 64, gaudi2: 125 } as const;

/** The signals of one queue: two sync objects in turn. */
interface SignalQueue {
  readonly queue: QueueEntry;
  readonly sobs: readonly [number, number];
  readonly monitor: number;
  current: 0 | 1;
  /** Value of the current sync object after all signals submitted so far. */
  value: number;
  /** The last submission that signals the sync object that is not current. */
  otherLastSeq: number;
}

/** A reservation of signals. */
interface Reservation {
  readonly id: number;
  readonly queue: SignalQueue;
  readonly sob: number;
  readonly before: number;
  readonly count: number;
}

/** The signal of a submission. */
interface Signal {
  readonly sob: number;
  /** Value of the sync object after the submission. */
  readonly value: number;
  /** Signals of a reservation that the user raises one by one; 0 for a signal of the driver. */
  readonly encapsulated: number;
}

/** The sync streams of one context. */
export class SyncStream {
  readonly #context: ContextPort;
  readonly #queues: Map<number, SignalQueue> = new Map();
  readonly #signals: Map<number, Signal> = new Map();
  readonly #reservations: Map<number, Reservation> = new Map();
  readonly #packets: SignalPackets;
  #nextReservation = 1;

  constructor(context: ContextPort) {
    this.#context = context;
    this.#packets = new SignalPackets(context.card.profile);
  }

  /** A CS ioctl of a sync-stream type. */
  submitIoctl(block: ArgumentBlock, flags: number): number {
    if ((flags & HL_CS_FLAGS.RESERVE_SIGNALS_ONLY) !== 0) return this.#reserve(block);
    if ((flags & HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY) !== 0) return this.#unreserve(block);
    // Collective wait needs network ports, which the upstream driver does not enable.
    if ((flags & HL_CS_FLAGS.COLLECTIVE_WAIT) !== 0) return refuse(block, Errno.EINVAL);
    const { words } = block;
    const { userMemory } = this.#context;
    const [low, high] = [words[IN.chunks_execute]!, words[IN.chunks_execute + 1]!];
    if (!userMemory.readWords(block, low, high, CHUNK_WORDS)) return refuse(block, Errno.EFAULT);
    const chunk = userMemory.words.slice(userMemory.index, userMemory.index + CHUNK_WORDS);
    const queue = this.#signalQueue(chunk[CHUNK.queue_index]!);
    if (queue === undefined) return refuse(block, Errno.EINVAL);
    const timeoutSeconds = timeoutSecondsOf(this.#context.card.config, words, flags);
    return (flags & HL_CS_FLAGS.SIGNAL) !== 0
      ? this.#signal(block, queue, flags, timeoutSeconds)
      : this.#wait(block, queue, chunk, flags, timeoutSeconds);
  }

  /** Whether a default submission may raise the signals of a reservation (ENCAP_SIGNALS). */
  isReserved(handleId: number): boolean {
    return this.#reservations.has(handleId);
  }

  /** Binds a reservation to a default submission that will raise its signals: WAIT submissions may name it. The reservation is consumed. */
  bind(handleId: number, submission: Submission): void {
    const reservation = this.#reservations.get(handleId);
    if (reservation === undefined) return;
    this.#reservations.delete(handleId);
    const { sob, before, count } = reservation;
    submission.signal = true;
    this.#rememberSignal(submission.seq, { sob, value: before + count, encapsulated: count });
  }

  #signal(block: ArgumentBlock, queue: SignalQueue, flags: number, timeoutSeconds: number): number {
    const advanced = this.#advance(queue, 1);
    if (advanced === undefined) return refuse(block, Errno.EINVAL);
    const submission = this.#open(flags, timeoutSeconds);
    if (submission === undefined) {
      queue.value -= 1;
      return -Errno.EAGAIN;
    }
    submission.signal = true;
    const sob = queue.sobs[queue.current];
    this.#rememberSignal(submission.seq, { sob, value: queue.value, encapsulated: 0 });
    this.#start(submission, queue.queue, this.#packets.signal(sob));
    accept(block, submission.seq);
    block.words[OUT.sob_base_addr_offset] = this.#packets.sobOffset(sob);
    block.words[OUT.sob_count_before_submission] = advanced;
    return 0;
  }

  #wait(block: ArgumentBlock, queue: SignalQueue, chunk: Uint32Array, flags: number, timeoutSeconds: number): number {
    const { userMemory, submissions } = this.#context;
    const isEncapsulated = (flags & HL_CS_FLAGS.ENCAP_SIGNALS) !== 0;
    let seq = readNumber(chunk, CHUNK.encaps_signal_seq);
    if (!isEncapsulated) {
      if (chunk[CHUNK.num_signal_seq_arr] !== 1) return refuse(block, Errno.EINVAL);
      const [low, high] = [chunk[CHUNK.signal_seq_arr]!, chunk[CHUNK.signal_seq_arr + 1]!];
      if (!userMemory.readWords(block, low, high, 2)) return refuse(block, Errno.EFAULT);
      seq = readNumber(userMemory.words, userMemory.index);
    }
    if (seq >= submissions.nextSeq) return refuse(block, Errno.EINVAL);
    const signalling = submissions.find(seq);
    if (signalling === undefined) return acceptNothing(block);
    const signal = this.#signals.get(seq);
    if (!signalling.signal || signal === undefined) return refuse(block, Errno.EINVAL);
    const later = isEncapsulated ? signal.encapsulated - chunk[CHUNK.encaps_signal_offset]! : 0;
    if (isEncapsulated !== signal.encapsulated > 0 || later < 0) return refuse(block, Errno.EINVAL);
    if (submissions.poll(signalling) !== SubmissionState.PENDING) return acceptNothing(block);
    const submission = this.#open(flags, timeoutSeconds);
    if (submission === undefined) return -Errno.EAGAIN;
    this.#start(
      submission,
      queue.queue,
      this.#packets.wait(queue.queue, queue.monitor, signal.sob, signal.value - later),
    );
    return accept(block, submission.seq);
  }

  #reserve(block: ArgumentBlock): number {
    const { words } = block;
    const count = words[IN.encaps_signals_count]!;
    const queue = this.#signalQueue(words[IN.encaps_signals_q_idx]!);
    if (count === 0 || count >= SOB_VALUE_END || queue === undefined) return refuse(block, Errno.EINVAL);
    const before = this.#advance(queue, count);
    if (before === undefined) return refuse(block, Errno.EINVAL);
    const id = this.#nextReservation++;
    const sob = queue.sobs[queue.current];
    this.#reservations.set(id, { id, queue, sob, before, count });
    accept(block, 0);
    block.words[OUT.handle_id] = id;
    block.words[OUT.count] = queue.value;
    block.words[OUT.sob_base_addr_offset] = this.#packets.sobOffset(sob);
    return 0;
  }

  /** Only the last reservation of a queue can be cancelled, while no signal follows it. */
  #unreserve(block: ArgumentBlock): number {
    const reservation = this.#reservations.get(block.words[IN.encaps_sig_handle_id]!);
    if (reservation === undefined) return refuse(block, Errno.EINVAL);
    const { queue, sob, before, count } = reservation;
    if (queue.sobs[queue.current] !== sob || queue.value !== before + count) return refuse(block, Errno.EINVAL);
    queue.value = before;
    this.#reservations.delete(reservation.id);
    return accept(block, 0);
  }

  /** Adds `count` signals; returns the value before them, or undefined if both sync objects of the queue are in use. */
  #advance(queue: SignalQueue, count: number): number | undefined {
    if (queue.value + count >= SOB_VALUE_END) {
      const { submissions } = this.#context;
      const other = submissions.find(queue.otherLastSeq);
      if (other !== undefined && submissions.poll(other) === SubmissionState.PENDING) return undefined;
      queue.current = queue.current === 0 ? 1 : 0;
      queue.otherLastSeq = submissions.nextSeq - 1;
      queue.value = 0;
      this.#context.device.registers.writeRegister(this.#packets.sobOffset(queue.sobs[queue.current]), 0);
    }
    const before = queue.value;
    queue.value += count;
    return before;
  }

  #open(flags: number, timeoutSeconds: number): Submission | undefined {
    const { submissions, counters, card } = this.#context;
    submissions.retire();
    const submission = submissions.open(flags, timeoutSeconds);
    if (submission === undefined) counters.maxCsInFlight += 1;
    else card.faults.strike(submission);
    return submission;
  }

  #start(submission: Submission, queue: QueueEntry, packets: PhysicalMemory): void {
    const { device, submissions, card } = this.#context;
    const stream = device.stream(queue.id);
    const job = submission.addJob(stream);
    if ((submission.flags & HL_CS_FLAGS.TIMESTAMP) !== 0) job.stampAddress = submissions.stampAddress(submission);
    stream.outstanding += 1;
    submission.multiWait = stream.streamMaster;
    device.processor.execute(stream, job, packets, 0, 0, packets.byteLength);
    if (submissions.poll(submission) === SubmissionState.PENDING) card.watchTimeout();
  }

  /** The signals of a queue; undefined for a queue without any. */
  #signalQueue(queueId: number): SignalQueue | undefined {
    const known = this.#queues.get(queueId);
    if (known !== undefined) return known;
    const { profile } = this.#context.card;
    const queue = profile.queues[queueId];
    if (queue === undefined || !supportsSignals(queue) || !this.#packets.canWait(queue)) return undefined;
    const index = profile.queues.filter((other) => other.id < queueId && supportsSignals(other)).length;
    const asic = profile.name === 'gaudi' ? 'gaudi' : 'gaudi2';
    const firstSob = DRIVER_SOBS[asic] + 2 * index;
    const opened: SignalQueue = {
      queue,
      sobs: [firstSob, firstSob + 1],
      monitor: DRIVER_MONITORS[asic] + index,
      current: 0,
      value: 0,
      otherLastSeq: 0,
    };
    this.#queues.set(queueId, opened);
    return opened;
  }

  /** Stores the signal of a submission while it can be waited for. */
  #rememberSignal(seq: number, signal: Signal): void {
    this.#signals.set(seq, signal);
    for (const old of this.#signals.keys()) {
      if (this.#context.submissions.find(old) !== undefined) return;
      this.#signals.delete(old);
    }
  }
}

/** External queues of gaudi; every queue of gaudi2 except those of the network and of the driver. */
function supportsSignals({ kind, engine }: QueueEntry): boolean {
  return kind === 'external' || (kind === 'hw' && engine !== 'nic');
}
