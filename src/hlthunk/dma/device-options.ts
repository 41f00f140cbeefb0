/** What a device may be told when it is opened, and the check of that. Which card it is, is in open.ts. */

import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { checkInteger, checkLength, checkMethods, checkObject, invalidArgument } from '../base/argument-error.ts';
import { DMA_PACKET_BYTES_MAX } from './queue.ts';

/** Batches in flight of one queue at most: more than any driver takes. */
const SLOTS_MAX = 1024;

/** How the DMA of a device works; tests make it small. */
export interface DeviceDmaOptions {
  /** Batches in flight of each queue, a power of two up to 1024. Default 32. */
  readonly slots?: number;
  /** Largest transfer of one packet in bytes. Default and most: just below 4 GiB. */
  readonly packetBytesMax?: number;
  /** Submissions that are not taken, of the driver's bound of 64 on gaudi2. Default 8. */
  readonly submissionsReserved?: number;
  /** Measures the time of {@link DeviceDma.wait}. Default: that of the system. */
  readonly clock?: Clock;
}

/** Options of a device; every one has a default. */
export interface DeviceOptions {
  /** Default: warnings to standard error. */
  readonly log?: Log;
  /** How its DMA works. */
  readonly dma?: DeviceDmaOptions;
  /** Least bytes of an arena, rounded up to pages of the card. Default 512 MiB. */
  readonly arenaBytes?: number;
  /** The node is closed with the device. A device that cannot be opened leaves it open. Default false. */
  readonly ownsNode?: boolean;
}

/**
 * Checks the options of a device.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS
 */
export function checkDeviceOptions(options: DeviceOptions): void {
  checkObject('options', options, ['log', 'dma', 'arenaBytes', 'ownsNode']);
  const { log, dma, arenaBytes } = options;
  if (log !== undefined) checkMethods('log', log, ['error', 'warn', 'diag', 'debug', 'child']);
  if (arenaBytes !== undefined) checkLength('arenaBytes', arenaBytes);
  if (dma !== undefined) checkDmaOptions(dma);
}

function checkDmaOptions(options: DeviceDmaOptions): void {
  checkObject('dma', options, ['slots', 'packetBytesMax', 'submissionsReserved', 'clock']);
  const { slots, packetBytesMax, submissionsReserved, clock } = options;
  if (clock !== undefined) checkMethods('clock', clock, ['nowNs', 'setTimer']);
  if (submissionsReserved !== undefined) checkInteger('submissionsReserved', submissionsReserved);
  if (
    slots !== undefined &&
    !(Number.isInteger(slots) && slots >= 1 && slots <= SLOTS_MAX && (slots & (slots - 1)) === 0)
  ) {
    throw invalidArgument('slots', `must be a power of two up to ${SLOTS_MAX}`, slots);
  }
  if (packetBytesMax === undefined) return;
  checkLength('packetBytesMax', packetBytesMax);
  if (packetBytesMax > DMA_PACKET_BYTES_MAX) {
    throw invalidArgument('packetBytesMax', `must be at most ${DMA_PACKET_BYTES_MAX}`, packetBytesMax);
  }
}
