/** What requester and responder of an emulated queue pair share: its attributes, and the device as they see it. Types only. */

import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import type { WcStatus } from '../../../verbs/abi.ts';
import type { RegionTable } from '../memory/dma-memory.ts';
import type { EmulatedCq } from './completion-queue.ts';
import type { Packet } from './packet.ts';
import type { ReceiveRing } from './receive-queue.ts';

/** The device. */
export interface QpDevice {
  readonly clock: Clock;
  readonly timers: {
    /** Calls `onDue` once, after this time. */
    set(delayNs: number, onDue: () => void): Pick<Timer, 'cancel'>;
  };
  readonly regions: RegionTable;
  /** The packet that {@link send} sends. */
  readonly packet: Packet;
  /** Whether the wire to a port accepts another packet now. If not, the device calls the queue pairs again when it does. */
  canSend(gid: Uint8Array): boolean;
  /** Sends {@link packet}; it may be lost. */
  send(gid: Uint8Array): void;
  /** Raises an asynchronous event. */
  raise(type: number, element: number): void;
}

/** The queue pair. */
export interface QpContext {
  readonly device: QpDevice;
  readonly qpNum: number;
  readonly pd: object;
  readonly sendCq: EmulatedCq;
  readonly receiveCq: EmulatedCq;
  readonly receives: ReceiveRing;
  /** Protection domain of the receives: that of the shared queue, if it uses one. */
  readonly receivePd: object;
  /** Attributes of the current connection. */
  readonly mtu: number;
  readonly destGid: Uint8Array;
  readonly destQpNum: number;
  readonly accessFlags: number;
  readonly maxRdAtomic: number;
  readonly maxDestRdAtomic: number;
  readonly timeout: number;
  readonly retryCount: number;
  readonly rnrRetry: number;
  readonly minRnrTimer: number;
  /** Whether the queue pair may send requests (state RTS). */
  readonly canRequest: boolean;
  /** Moves it to the error state: everything posted is flushed. */
  fail(): void;
  /** Completes a receive. */
  received(wqe: { readonly idLow: number; readonly idHigh: number }, result: ReceiveResult): void;
}

/** How a receive ended. */
export interface ReceiveResult {
  readonly status: WcStatus;
  readonly opcode: number;
  readonly byteLength: number;
  readonly sourceQp: number;
  readonly flags: number;
  readonly immediate: number;
}
