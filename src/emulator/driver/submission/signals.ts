/**
 * The signals of one queue: two sync objects used in turn, their references and the value of the next signal.
 *
 * Source: struct hl_hw_sob, hl_cs_signal_sob_wraparound_handler and sync_stream_queue_init, drivers/accel/habanalabs/common, Linux 6.12.
 */

import {
  type AsicProfile,
  fenceCfg,
  MSG_LONG_BYTES,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  type QueueEntry,
  SHORT_PACKET_BYTES,
  type SyncManagerProfile,
  writeFence,
  writeMsgLong,
} from '../../../uapi/index.ts';
import { PhysicalMemory } from '../../device/memory/physical-memory.ts';

/** Values of a sync object are below this limit (HL_MAX_SOB_VAL). */
export const SOB_VALUE_END = 0x8000;

export class SignalObject {
  readonly id: number;
  /** Number of incomplete signals and waits that use it, and of unreleased reservations. */
  references = 0;

  constructor(id: number) {
    this.id = id;
  }
}

/** A signal to wait for: a value of a sync object. */
export interface Signal {
  readonly object: SignalObject;
  readonly value: number;
}

/** The signals of one queue. */
export class SignalQueue {
  readonly queue: QueueEntry;
  /** The monitor for waits of the queue. */
  readonly monitor: number;
  readonly #objects: readonly [SignalObject, SignalObject];
  #current: 0 | 1 = 0;
  #next = 1;

  constructor(queue: QueueEntry, firstObject: number, monitor: number) {
    this.queue = queue;
    this.monitor = monitor;
    this.#objects = [new SignalObject(firstObject), new SignalObject(firstObject + 1)];
  }

  /** The sync object of the next signal. */
  get current(): SignalObject {
    return this.#objects[this.#current];
  }

  /** The sync object for use after the values of the current one. */
  get other(): SignalObject {
    return this.#objects[this.#current === 0 ? 1 : 0];
  }

  /** Value of the sync object after the next signal. */
  get next(): number {
    return this.#next;
  }

  /** Whether `count` more signals need the other sync object. */
  wraps(count: number): boolean {
    return this.#next + count >= SOB_VALUE_END;
  }

  /** Whether the other sync object has no references any more: until then the driver does not switch to it. */
  get canSwitch(): boolean {
    return this.other.references === 0;
  }

  /** Takes the next signal, with a reference. After the last value of a sync object, the next signal uses the other one. */
  takeSignal(): Signal {
    const signal = { object: this.current, value: this.#next };
    signal.object.references += 1;
    if (this.wraps(1)) this.#switch();
    else this.#next += 1;
    return signal;
  }

  /** Takes `count` consecutive signals with one reference, from the other sync object if this one has too few values; returns the first. */
  takeSignals(count: number): Signal {
    if (this.wraps(count)) this.#switch();
    const first = { object: this.current, value: this.#next };
    first.object.references += 1;
    this.#next += count;
    return first;
  }

  /** Takes back signals of {@link takeSignals} if they are the last ones of the queue; returns whether they were. */
  giveBack({ object, value }: Signal, count: number): boolean {
    if (object !== this.current || value + count !== this.#next) return false;
    this.#next = value;
    object.references -= 1;
    return true;
  }

  #switch(): void {
    this.#current = this.#current === 0 ? 1 : 0;
    this.#next = 1;
  }
}

/** Value of a write that adds 1 to a sync object. */
const SOB_INCREMENT = 0x8000_0001;
/** The fence counter that the driver uses. */
const DRIVER_FENCE = 2;
const GROUP_SOBS = 8;
const ARM_TARGET_SHIFT = 17;
const CONFIG_MSB_SID_SHIFT = 16;

/**
 * Encodes the command buffers that the driver writes for signals and waits of one ASIC, with sync objects of the first sync manager. See sync-stream.ts for
 * their sequence.
 */
export class SignalPackets {
  readonly #profile: AsicProfile;

  constructor(profile: AsicProfile) {
    this.#profile = profile;
  }

  /** Offset of a sync object from CFG_BASE. */
  sobOffset(sob: number): number {
    return this.#manager.sobObj + sob * 4;
  }

  /** Whether the queue has a known fence register. */
  canWait(queue: QueueEntry): boolean {
    return this.#profile.fences.some(({ firstQueue }) => firstQueue === queue.firstOfQman);
  }

  /** Adds 1 to a sync object after all previous work of the queue. */
  signal(sob: number): PhysicalMemory {
    return this.#buffer([[this.sobOffset(sob), SOB_INCREMENT]], false);
  }

  /** Arms a monitor for "sync object is at least `value`", and waits for it on the fence of the queue. */
  wait(queue: QueueEntry, monitor: number, sob: number, value: number): PhysicalMemory {
    const manager = this.#manager;
    const { cfg, fences, fenceStrides } = this.#profile;
    const { fence0 } = fences.find(({ firstQueue }) => firstQueue === queue.firstOfQman)!;
    const fence = cfg.start + BigInt(fence0 + fenceStrides[DRIVER_FENCE]! + queue.stream * 4);
    const group = Math.floor(sob / GROUP_SOBS);
    const mask = 0xff & ~(1 << (sob % GROUP_SOBS));
    const arm = (value << ARM_TARGET_SHIFT) | (mask << 8) | (group & 0xff);
    const writes: [number, number][] = [
      [manager.monPayAddrL + monitor * 4, Number(fence & 0xffff_ffffn)],
      [manager.monPayAddrH + monitor * 4, Number(fence >> 32n)],
      [manager.monPayData + monitor * 4, 1],
    ];
    if (manager.monConfig !== 0) writes.push([manager.monConfig + monitor * 4, (group >>> 8) << CONFIG_MSB_SID_SHIFT]);
    writes.push([manager.monArm + monitor * 4, arm]);
    return this.#buffer(writes, true);
  }

  get #manager(): SyncManagerProfile {
    return this.#profile.sync.managers[0]!;
  }

  /** A buffer of register writes, followed by a fence if requested. */
  #buffer(writes: readonly (readonly [number, number])[], waits: boolean): PhysicalMemory {
    const byteLength = writes.length * MSG_LONG_BYTES + (waits ? SHORT_PACKET_BYTES : 0);
    const words = new Uint32Array(byteLength / 4);
    const ctl = msgLongCtl({ engBarrier: true, msgBarrier: true });
    let at = 0;
    for (const [offset, value] of writes) {
      const address = this.#profile.cfg.start + BigInt(offset);
      at = writeMsgLong(words, at, ctl, value, Number(address & 0xffff_ffffn), Number(address >> 32n));
    }
    if (waits) writeFence(words, at, packetCtl(PacketOpcode.FENCE), fenceCfg(DRIVER_FENCE, 1, 1));
    return new PhysicalMemory('driver command buffer', { address: 0, byteLength }, () => new Uint8Array(words.buffer));
  }
}
