/**
 * Open files of emulated cards: ioctl framing and dispatch. Each ioctl has a separate module. If the size in a request number is smaller than the struct of
 * the driver, the driver reads zeros for the missing bytes and does not write them back. Source: drm_ioctl, and _hl_ioctl of habanalabs_ioctl.c, Linux 6.12.
 */

import type { ArgumentBlock, DriverFile, DriverMapping, RegisterMapping } from '../../../driver/port.ts';
import { Errno, SyscallError } from '../../../sys/index.ts';
import {
  DRM_IOCTL_TYPE,
  DRM_IOCTLS,
  HABANALABS_IOCTLS,
  HL_CB_ARGS,
  HL_CS_ARGS,
  HL_DEBUG_ARGS,
  HL_INFO_ARGS,
  HL_MEM_ARGS,
  HL_WAIT_CS_ARGS,
  IoctlIndex,
  type IoctlNumbers,
  ioctlIndex,
  ioctlSize,
  ioctlType,
} from '../../../uapi/index.ts';
import type { IoctlTracer, TracedCall } from '../../trace/ioctl-tracer.ts';
import { givenWords } from '../base/ioctl-request.ts';
import { Notifier } from '../base/notifier.ts';
import type { CardState } from '../card-state.ts';
import type { SharedPages } from '../memory/mmap-file.ts';
import { UserMemory } from '../memory/user-memory.ts';
import { commandBufferIoctl } from './command-buffer.ts';
import type { Context } from './context.ts';
import { debugIoctl } from './debug.ts';
import { infoIoctl } from './info.ts';
import { memoryIoctl } from './memory.ts';
import { submitIoctl } from './submit.ts';
import { abortedWait, type Interruption, PolledWait, waitIoctl } from './wait.ts';

/**
 * Index of the ioctl in its family, or a negative errno for an unknown number.
 * @param unknownErrno for a number outside the DRM family, for which drm_ioctl and hl_ioctl_control return different errors
 */
function driverNumber(request: number, block: ArgumentBlock, unknownErrno: number): number {
  if (ioctlSize(request) > block.words.length * 4) return -Errno.EFAULT;
  const index = ioctlIndex(request);
  if (index >= 0) return index;
  return ioctlType(request) === DRM_IOCTL_TYPE ? -unknownErrno : -Errno.ENOTTY;
}

/** Returns the result of a call, and passes it to a callback once it is known: -EIO if the driver throws, because the callers return EIO. */
function whenKnown(call: () => number | Promise<number>, known: (result: number) => void): number | Promise<number> {
  let result: number | Promise<number> = -Errno.EIO;
  try {
    result = call();
  } finally {
    if (typeof result === 'number') known(result);
  }
  if (typeof result === 'number') return result;
  return result.then(
    (value) => {
      known(value);
      return value;
    },
    (error: unknown) => {
      known(-Errno.EIO);
      throw error;
    },
  );
}

/** The result of a call; -EIO if the driver throws, which is reported. */
export function resultOrEio(
  call: () => number | Promise<number>,
  report: (error: unknown) => void,
): number | Promise<number> {
  const fail = (error: unknown): number => {
    report(error);
    return -Errno.EIO;
  };
  try {
    const result = call();
    return typeof result === 'number' ? result : result.catch(fail);
  } catch (error) {
    return fail(error);
  }
}

/** Base class of primary and control files. */
export abstract class EmulatedFile implements DriverFile {
  readonly numbers: IoctlNumbers;
  /** Memory of the process that opened the file. */
  abstract readonly userMemory: UserMemory;
  protected readonly card: CardState;
  protected closed = false;
  /** Records the ioctls; undefined when tracing is off. */
  tracer: IoctlTracer | undefined;
  protected abstract readonly unknownErrno: number;

  constructor(card: CardState) {
    this.card = card;
    this.numbers = card.config.ioctlFamily === 'drm' ? DRM_IOCTLS : HABANALABS_IOCTLS;
  }

  ioctl(request: number, block: ArgumentBlock): number {
    const short = shortArguments(request, block);
    if (short === undefined) return this.#ioctl(request, block);
    const result = this.#ioctl(request, short);
    short.writeBack();
    return result;
  }

  #ioctl(request: number, block: ArgumentBlock): number {
    const { tracer } = this;
    if (tracer === undefined) return this.execute(request, block);
    const call = this.#begin(tracer, request, block);
    // Result if the driver throws: the callers return EIO.
    let result: number = -Errno.EIO;
    try {
      result = this.execute(request, block);
    } finally {
      tracer.end(call, block.words, result);
    }
    return result;
  }

  /**
   * Like {@link ioctl}, but a wait does not block the thread.
   * @param interruption ends the wait early, like a signal
   */
  async ioctlAsync(request: number, block: ArgumentBlock, interruption?: Interruption): Promise<number> {
    return this.ioctlOrWait(request, block, interruption);
  }

  /** Like {@link ioctlAsync}, but returns a result that is known at once, without a promise. */
  ioctlOrWait(request: number, block: ArgumentBlock, interruption?: Interruption): number | Promise<number> {
    const short = shortArguments(request, block);
    if (short === undefined) return this.#ioctlOrWait(request, block, interruption);
    return whenKnown(
      () => this.#ioctlOrWait(request, short, interruption),
      () => short.writeBack(),
    );
  }

  #ioctlOrWait(request: number, block: ArgumentBlock, interruption?: Interruption): number | Promise<number> {
    const { tracer } = this;
    if (tracer === undefined) return this.executeOrWait(request, block, interruption);
    const call = this.#begin(tracer, request, block);
    return whenKnown(
      () => this.executeOrWait(request, block, interruption),
      (result) => tracer.end(call, block.words, result),
    );
  }

  /** Records an ioctl that failed before it reached the driver in the trace. Returns `result`. */
  recordFailure(request: number, block: ArgumentBlock, result: number): number {
    const { tracer } = this;
    tracer?.end(this.#begin(tracer, request, block), block.words, result);
    return result;
  }

  #begin(tracer: IoctlTracer, request: number, { words }: ArgumentBlock): TracedCall {
    const { caller } = this.userMemory;
    return tracer.begin({ request, caller, card: this.card.place.minor, control: this.isControl }, words);
  }

  protected execute(request: number, block: ArgumentBlock): number {
    if (this.closed) return -Errno.EBADF;
    if (this.card.removed) return -Errno.ENODEV;
    const number = driverNumber(request, block, this.unknownErrno);
    if (number < 0) return number;
    const injected = this.card.faults.ioctlErrno(number);
    if (injected !== 0) return -injected;
    this.card.service();
    return this.dispatch(number, block);
  }

  protected abstract readonly isControl: boolean;
  protected abstract executeOrWait(
    request: number,
    block: ArgumentBlock,
    interruption?: Interruption,
  ): number | Promise<number>;
  abstract mmap(byteLength: number, offset: bigint): DriverMapping;
  abstract mapRegisters(byteLength: number, offset: bigint): RegisterMapping;
  /**
   * Returns the pages that {@link mmap} maps, for another process that maps them itself.
   * @throws SyscallError like mmap
   */
  abstract share(byteLength: number, offset: bigint): SharedPages;
  abstract close(): void;
  protected abstract dispatch(number: number, block: ArgumentBlock): number;
}

/** A primary node, with one compute context. */
export class PrimaryFile extends EmulatedFile {
  readonly context: Context;
  readonly userMemory: UserMemory;
  protected readonly isControl: boolean = false;
  protected readonly unknownErrno: number = Errno.EINVAL;
  readonly #notifier: Notifier = new Notifier();
  readonly #onClose: (file: PrimaryFile) => void;

  constructor(card: CardState, context: Context, onClose: (file: PrimaryFile) => void) {
    super(card);
    this.context = context;
    this.userMemory = context.userMemory;
    this.#onClose = onClose;
    card.notifiers.add(this.#notifier);
  }

  /**
   * WAIT_CS without blocking the thread: polls at once, then after every progress of the card, or, for a wait for an interrupt, after every such
   * interrupt, until the time-out.
   */
  protected executeOrWait(
    request: number,
    block: ArgumentBlock,
    interruption?: Interruption,
  ): number | Promise<number> {
    if (driverNumber(request, block, this.unknownErrno) !== IoctlIndex.WAIT_CS) return this.execute(request, block);
    const wait = new PolledWait(block, this.card.config.clock);
    wait.writePoll(block);
    const result = this.execute(request, block);
    return wait.isOver(result, block) ? result : this.#sleep(wait, block, interruption);
  }

  /** Waits after a poll. Nothing makes progress between the two. The wait continues even if the card is reset meanwhile. */
  async #sleep(wait: PolledWait, block: ArgumentBlock, interruption?: Interruption): Promise<number> {
    const { caller } = this.userMemory;
    if (wait.isMulti) this.card.multiWaits += 1;
    try {
      for (;;) {
        const ticket = this.card.waiters.take(wait.remainingNs, wait.interrupt);
        interruption?.attach(ticket);
        await ticket.progress;
        if (interruption?.raised === true) return wait.interrupted(block);
        // Other callers of the file may have run ioctls meanwhile.
        this.userMemory.caller = caller;
        wait.writePoll(block);
        const result = this.#poll(block);
        if (wait.isOver(result, block)) return result;
      }
    } finally {
      if (wait.isMulti) this.card.multiWaits -= 1;
    }
  }

  #poll(block: ArgumentBlock): number {
    if (this.context.closed) return abortedWait(block);
    this.card.service();
    return waitIoctl(this.context, block, true);
  }

  mmap(byteLength: number, offset: bigint): DriverMapping {
    this.#checkMmap();
    return this.context.buffers.mmap(byteLength, offset);
  }

  mapRegisters(byteLength: number, offset: bigint): RegisterMapping {
    this.#checkMmap();
    return this.context.buffers.mapRegisters(byteLength, offset);
  }

  share(byteLength: number, offset: bigint): SharedPages {
    this.#checkMmap();
    return this.context.buffers.share(byteLength, offset);
  }

  /** Checks a mapping of a device node that the kernel makes for the process `pid`. Throws SyscallError like {@link mmap}. */
  checkMmap(byteLength: number, offset: bigint, pid: number): void {
    this.#checkMmap();
    this.context.buffers.checkMmap(byteLength, offset, pid);
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.release();
  }

  /** Releases the context, even while the user has the file open. Idempotent. */
  release(): void {
    if (this.context.closed) return;
    this.card.notifiers.delete(this.#notifier);
    this.#notifier.close();
    this.#onClose(this);
  }

  #checkMmap(): void {
    if (this.closed) throw new SyscallError('mmap', Errno.EBADF, 'the file is closed');
    if (this.card.removed) throw new SyscallError('mmap', Errno.ENODEV, 'the device was removed');
  }

  protected dispatch(number: number, block: ArgumentBlock): number {
    switch (number) {
      case IoctlIndex.CS:
        return submitIoctl(this.context, block);
      case IoctlIndex.WAIT_CS:
        return waitIoctl(this.context, block);
      case IoctlIndex.MEMORY:
        return memoryIoctl(this.context, block);
      case IoctlIndex.CB:
        return commandBufferIoctl(this.context, block);
      case IoctlIndex.INFO:
        return infoIoctl(
          { card: this.card, userMemory: this.userMemory, context: this.context, notifier: this.#notifier },
          block,
        );
      default:
        return debugIoctl(this.context, block);
    }
  }
}

/** A control node: only INFO, without a context. */
export class ControlFile extends EmulatedFile {
  readonly userMemory: UserMemory;
  protected readonly isControl: boolean = true;
  protected readonly unknownErrno: number = Errno.ENOTTY;

  /** @param owner see {@link UserMemory.owner} */
  constructor(card: CardState, owner: number) {
    super(card);
    this.userMemory = new UserMemory(owner);
  }

  protected executeOrWait(request: number, block: ArgumentBlock): number {
    return this.execute(request, block);
  }

  mmap(): DriverMapping {
    throw new SyscallError('mmap', Errno.ENODEV, 'a control node cannot be mapped');
  }

  mapRegisters(): RegisterMapping {
    throw new SyscallError('mmap', Errno.ENODEV, 'a control node cannot be mapped');
  }

  share(): SharedPages {
    throw new SyscallError('mmap', Errno.ENODEV, 'a control node cannot be mapped');
  }

  close(): void {
    this.closed = true;
    this.userMemory.close();
  }

  protected dispatch(number: number, block: ArgumentBlock): number {
    if (number !== IoctlIndex.INFO) return -Errno.ENOTTY;
    const { card, userMemory } = this;
    return infoIoctl({ card, userMemory, context: undefined, notifier: undefined }, block);
  }
}

/** Words of the arguments by {@link IoctlIndex}. */
const STRUCT_WORDS: number[] = [];
STRUCT_WORDS[IoctlIndex.INFO] = HL_INFO_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.CB] = HL_CB_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.CS] = HL_CS_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.WAIT_CS] = HL_WAIT_CS_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.MEMORY] = HL_MEM_ARGS.size / 4;
STRUCT_WORDS[IoctlIndex.DEBUG] = HL_DEBUG_ARGS.size / 4;

/** A copy of a block that has all words of the arguments. */
export class ShortArguments implements ArgumentBlock {
  readonly address: number;
  readonly words: Uint32Array;
  readonly #block: ArgumentBlock;
  readonly #given: number;
  readonly #end: number;

  /** @param given number of argument words in the block @param end number of words of the driver's struct */
  constructor(block: ArgumentBlock, given: number, end: number) {
    this.address = block.address;
    this.words = new Uint32Array(Math.max(end, block.words.length));
    this.words.set(block.words);
    this.words.fill(0, given, end);
    this.#block = block;
    this.#given = given;
    this.#end = end;
  }

  /** Copies the result to the block. */
  writeBack(): void {
    const { words } = this.#block;
    words.set(this.words.subarray(0, this.#given));
    if (words.length > this.#end) words.set(this.words.subarray(this.#end, words.length), this.#end);
  }
}

/** The arguments of a request that has fewer than the driver; undefined for other requests, and if the size exceeds the block. */
function shortArguments(request: number, block: ArgumentBlock): ShortArguments | undefined {
  const end = STRUCT_WORDS[ioctlIndex(request)];
  const given = givenWords(request);
  if (end === undefined || given >= end || given > block.words.length) return undefined;
  return new ShortArguments(block, given, end);
}
