/**
 * Signals between queues: SIGNAL and WAIT submissions, and reservations of signals (the sync stream of the driver).
 *
 * A signal is a job of the driver that adds 1 to a sync object of its queue; a wait is a job that arms a monitor on that object and blocks on a fence.
 * Source: drivers/accel/habanalabs/common/command_submission.c and hw_queue.c, Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import { HL_CS_ARGS, HL_CS_CHUNK, HL_CS_FLAGS, type QueueEntry } from '../../../uapi/index.ts';
import type { PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { readNumber } from '../base/numbers.ts';
import { HandleIds } from '../memory/address-blocks.ts';
import {
  accept,
  acceptNothing,
  type ContextPort,
  latchedFlags,
  reject,
  rejectReservation,
  timeoutSecondsOf,
} from './answers.ts';
import { type Signal, SignalPackets, SignalQueue, SOB_VALUE_END } from './signals.ts';
import { type Submission, SubmissionState } from './submission.ts';

const IN = HL_CS_ARGS.in.words;
const OUT = HL_CS_ARGS.out.words;
const CHUNK = HL_CS_CHUNK.words;
const CHUNK_WORDS: number = HL_CS_CHUNK.size / 4;

/** Number of sync objects and monitors that the driver reserves before those of the sync streams. */
const DRIVER_SOBS = { gaudi: 128, gaudi2: 85 } as const;
const DRIVER_MONITORS = { gaudi: 64, gaudi2: 125 } as const;

/** Limit of reservations per context; the driver is limited only by its memory. */
const RESERVATIONS_MAX = 65536;

/** A reservation of signals (struct hl_cs_encaps_sig_handle), until it is released and no submission refers to it. */
interface Reservation {
  readonly id: number;
  readonly queue: SignalQueue;
  /** The first of its signals. */
  readonly first: Signal;
  readonly count: number;
  /** The first member of the staged submission that raises the signals; 0 if not bound yet. */
  seq: number;
  /** Number of incomplete submissions that refer to it. */
  references: number;
}

/** Flags of a submission, and its time-out. */
interface SubmitOptions {
  readonly flags: number;
  readonly timeoutSeconds: number;
}

export class SyncStream {
  readonly #context: ContextPort;
  readonly #queues: Map<number, SignalQueue> = new Map();
  /** The signals of incomplete SIGNAL submissions, by sequence number. */
  readonly #signals: Map<number, Signal> = new Map();
  readonly #reservations: Map<number, Reservation> = new Map();
  readonly #ids: HandleIds = new HandleIds();
  readonly #packets: SignalPackets;

  constructor(context: ContextPort) {
    this.#context = context;
    this.#packets = new SignalPackets(context.card.profile);
  }

  /** Executes a CS ioctl of a sync-stream type. */
  submitIoctl(block: ArgumentBlock, flags: number): number {
    if ((flags & HL_CS_FLAGS.RESERVE_SIGNALS_ONLY) !== 0) return this.#reserve(block);
    if ((flags & HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY) !== 0) return this.#unreserve(block);
    const { words } = block;
    const { userMemory } = this.#context;
    const [low, high] = [words[IN.chunks_execute]!, words[IN.chunks_execute + 1]!];
    if (!userMemory.readWords(block, low, high, CHUNK_WORDS)) return this.#invalid(block, Errno.EFAULT);
    const chunk = userMemory.words.slice(userMemory.index, userMemory.index + CHUNK_WORDS);
    const queue = this.#signalQueue(chunk[CHUNK.queue_index]!);
    // Collective wait needs network ports, which the upstream driver does not enable.
    const isCollective = (flags & HL_CS_FLAGS.COLLECTIVE_WAIT) !== 0;
    if (queue === undefined || isCollective) return this.#invalid(block, Errno.EINVAL);
    const timeoutSeconds = timeoutSecondsOf(this.#context.card, words, flags);
    return (flags & HL_CS_FLAGS.SIGNAL) !== 0
      ? this.#signal(block, queue, { flags, timeoutSeconds })
      : this.#wait(block, queue, chunk, { flags, timeoutSeconds });
  }

  /** Whether the handle of a reservation exists, so that a staged submission may raise its signals (ENCAP_SIGNALS). */
  isReserved(handleId: number): boolean {
    return this.#reservations.get(handleId)?.seq === 0;
  }

  /** Binds a reservation to the first member of a staged submission that will raise its signals, so that WAIT submissions may refer to it. */
  bind(handleId: number, submission: Submission): void {
    const reservation = this.#reservations.get(handleId)!;
    reservation.seq = submission.seq;
    reservation.references += 1;
    submission.onEnd = () => {
      reservation.first.object.references -= 1;
      this.#release(reservation);
    };
  }

  #signal(block: ArgumentBlock, queue: SignalQueue, options: SubmitOptions): number {
    const submission = this.#open(options);
    if (submission === undefined || !this.#hasFreeEntry(queue)) return -Errno.EAGAIN;
    if (queue.wraps(1) && !this.#prepareSwitch(queue)) return reject(block, Errno.EINVAL);
    const signal = queue.takeSignal();
    submission.signal = true;
    this.#signals.set(submission.seq, signal);
    const { seq } = submission;
    submission.onEnd = () => {
      signal.object.references -= 1;
      this.#signals.delete(seq);
    };
    this.#start(submission, queue.queue, this.#packets.signal(signal.object.id));
    accept(block, seq);
    // Both results are read after the signal: after the last value of a sync object, they are those of the other sync object.
    block.words[OUT.sob_base_addr_offset] = this.#packets.sobOffset(queue.current.id);
    block.words[OUT.sob_count_before_submission] = queue.next - 1;
    return 0;
  }

  /** A WAIT submission for one signal. If the signal has completed, nothing is submitted. */
  #wait(block: ArgumentBlock, queue: SignalQueue, chunk: Uint32Array, options: SubmitOptions): number {
    if ((options.flags & HL_CS_FLAGS.ENCAP_SIGNALS) !== 0) return this.#waitReserved(block, queue, chunk, options);
    const { userMemory, submissions } = this.#context;
    if (chunk[CHUNK.num_signal_seq_arr] !== 1) return this.#invalid(block, Errno.EINVAL);
    const [low, high] = [chunk[CHUNK.signal_seq_arr]!, chunk[CHUNK.signal_seq_arr + 1]!];
    if (!userMemory.readWords(block, low, high, 2)) return this.#invalid(block, Errno.EFAULT);
    const seq = readNumber(userMemory.words, userMemory.index);
    if (seq >= submissions.nextSeq) return this.#invalid(block, Errno.EINVAL);
    const signalling = submissions.find(seq);
    if (signalling === undefined) return acceptNothing(block);
    if (!signalling.signal) return this.#invalid(block, Errno.EINVAL);
    if (submissions.poll(signalling) !== SubmissionState.PENDING) return acceptNothing(block);
    const signal = this.#signals.get(seq)!;
    return this.#submitWait(block, queue, signal, options);
  }

  /** A WAIT submission for signals that a staged submission raises. If their reservation no longer exists, nothing is submitted. */
  #waitReserved(block: ArgumentBlock, queue: SignalQueue, chunk: Uint32Array, options: SubmitOptions): number {
    const { submissions } = this.#context;
    const seq = readNumber(chunk, CHUNK.encaps_signal_seq);
    const reservation = [...this.#reservations.values()].find((each) => each.seq !== 0 && each.seq === seq);
    if (reservation === undefined) return acceptNothing(block);
    const offset = chunk[CHUNK.encaps_signal_offset]!;
    if (offset > reservation.count) return reject(block, Errno.EINVAL);
    const signalling = submissions.find(seq);
    if (signalling === undefined || submissions.poll(signalling) !== SubmissionState.PENDING)
      return acceptNothing(block);
    const { object, value } = reservation.first;
    // Offsets 0 and 1 both mean the first signal.
    const signal = { object, value: value + Math.max(0, offset - 1) };
    return this.#submitWait(block, queue, signal, { ...options, reservation });
  }

  #submitWait(
    block: ArgumentBlock,
    queue: SignalQueue,
    { object, value }: Signal,
    options: SubmitOptions & { readonly reservation?: Reservation },
  ): number {
    const submission = this.#open(options);
    if (submission === undefined) return -Errno.EAGAIN;
    // If the queue is full, the driver reports success for a signal that has completed meanwhile.
    if (!this.#hasFreeEntry(queue)) return acceptNothing(block);
    const { reservation } = options;
    object.references += 1;
    if (reservation !== undefined) reservation.references += 1;
    submission.onEnd = () => {
      object.references -= 1;
      if (reservation !== undefined) this.#release(reservation);
    };
    this.#start(submission, queue.queue, this.#packets.wait(queue.queue, queue.monitor, object.id, value));
    return accept(block, submission.seq);
  }

  #reserve(block: ArgumentBlock): number {
    const { words } = block;
    const count = words[IN.encaps_signals_count]!;
    const queue = this.#signalQueue(words[IN.encaps_signals_q_idx]!);
    if (count >= SOB_VALUE_END || queue === undefined) return rejectReservation(block, Errno.EINVAL);
    if (this.#reservations.size >= RESERVATIONS_MAX) return rejectReservation(block, Errno.EINVAL);
    this.#context.submissions.pollAll();
    if (queue.wraps(count) && !this.#prepareSwitch(queue)) return rejectReservation(block, Errno.EINVAL);
    const first = queue.takeSignals(count);
    const id = this.#ids.take();
    this.#reservations.set(id, { id, queue, first, count, seq: 0, references: 0 });
    accept(block, 0);
    block.words[OUT.handle_id] = id;
    block.words[OUT.count] = queue.next;
    block.words[OUT.sob_base_addr_offset] = this.#packets.sobOffset(first.object.id);
    return 0;
  }

  /** Cancels a reservation: only the last one of a queue, if no signal follows it and no submission raises its signals. */
  #unreserve(block: ArgumentBlock): number {
    const reservation = this.#reservations.get(block.words[IN.encaps_sig_handle_id]!);
    if (reservation === undefined || reservation.seq !== 0) return reject(block, Errno.EINVAL);
    if (!reservation.queue.giveBack(reservation.first, reservation.count)) return reject(block, Errno.EINVAL);
    this.#forget(reservation);
    return acceptNothing(block);
  }

  /** Drops the reference of a submission that has ended: the last reference removes the reservation. */
  #release(reservation: Reservation): void {
    reservation.references -= 1;
    if (reservation.references === 0) this.#forget(reservation);
  }

  #forget({ id }: Reservation): void {
    this.#reservations.delete(id);
    this.#ids.free(id);
  }

  /** Clears the other sync object of a queue before a switch to it; returns false while it has references. */
  #prepareSwitch(queue: SignalQueue): boolean {
    if (!queue.canSwitch) return false;
    this.#context.device.registers.writeRegister(this.#packets.sobOffset(queue.other.id), 0);
    return true;
  }

  /** Opens a submission, which keeps its sequence number if it is rejected; undefined while the one max_pending_cs before it is pending. */
  #open({ flags, timeoutSeconds }: SubmitOptions): Submission | undefined {
    const { submissions, counters, card } = this.#context;
    submissions.pollAll();
    if (!submissions.hasFreeSlot) {
      counters.maxCsInFlight += 1;
      return undefined;
    }
    return submissions.open(latchedFlags(card, flags), timeoutSeconds);
  }

  /** Whether the queue has a free entry; if not, counts the rejected submission. */
  #hasFreeEntry({ queue }: SignalQueue): boolean {
    const { counters, device } = this.#context;
    const stream = device.stream(queue.id);
    if (stream.outstanding < stream.length) return true;
    counters.queueFull += 1;
    return false;
  }

  /** Counts and rejects an invalid submission. */
  #invalid(block: ArgumentBlock, errno: number): number {
    this.#context.counters.validation += 1;
    return reject(block, errno);
  }

  #start(submission: Submission, queue: QueueEntry, packets: PhysicalMemory): void {
    const { device, submissions, card } = this.#context;
    card.faults.strike(submission);
    const stream = device.stream(queue.id);
    const job = submission.addJob(stream);
    if ((submission.flags & HL_CS_FLAGS.TIMESTAMP) !== 0) job.stampAddress = submissions.stampAddress(submission);
    stream.outstanding += 1;
    submission.multiWait = stream.streamMaster;
    device.processor.execute(stream, job, { memory: packets, high: 0, low: 0, byteLength: packets.byteLength });
    if (submissions.poll(submission) === SubmissionState.PENDING) card.watchTimeout();
  }

  /** The signals of a queue; undefined for a queue without sync streams. */
  #signalQueue(queueId: number): SignalQueue | undefined {
    const known = this.#queues.get(queueId);
    if (known !== undefined) return known;
    const { profile } = this.#context.card;
    const queue = profile.queues[queueId];
    if (queue === undefined || !supportsSignals(queue) || !this.#packets.canWait(queue)) return undefined;
    const index = profile.queues.filter((other) => other.id < queueId && supportsSignals(other)).length;
    const asic = profile.name === 'gaudi' ? 'gaudi' : 'gaudi2';
    const opened = new SignalQueue(queue, DRIVER_SOBS[asic] + 2 * index, DRIVER_MONITORS[asic] + index);
    this.#queues.set(queueId, opened);
    return opened;
  }
}

/** External queues of gaudi; all queues of gaudi2 except network queues and those of the driver. */
function supportsSignals({ kind, engine }: QueueEntry): boolean {
  return kind === 'external' || (kind === 'hw' && engine !== 'nic');
}
