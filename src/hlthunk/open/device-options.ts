/** Options for opening a device, and their check. */

import type { Log } from '../../ucs/debug/log.ts';
import {
  checkInteger,
  checkLength,
  checkMethods,
  checkObject,
  checkWord32,
  invalidArgument,
} from '../base/gaudi-error.ts';
import type { DeviceDmaOptions } from '../dma/dma.ts';
import { DMA_PACKET_BYTES_MAX } from '../dma/queue.ts';

/** Maximum number of batches in flight of one queue: more than any driver accepts. */
const SLOTS_MAX = 1024;

/** Options of a device. All are optional. */
export interface DeviceOptions {
  /** Log of the device. Default: warnings to standard error. */
  readonly log?: Log | undefined;
  /** Options of its DMA. */
  readonly dma?: DeviceDmaOptions | undefined;
  /** Minimum size of an arena in bytes, rounded up to pages of the card. Default 512 MiB. */
  readonly arenaBytes?: number | undefined;
  /** Whether the node is closed with the device. If the device cannot be opened, the node stays open. Default false. */
  readonly ownsNode?: boolean | undefined;
  /** Logical index of the card in messages. Default: its position among all cards of the node, including removed ones, in the order of their bus ids. */
  readonly index?: number | undefined;
}

/**
 * Checks the options of a device.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS
 */
export function checkDeviceOptions(options: DeviceOptions): void {
  checkObject('options', options, ['log', 'dma', 'arenaBytes', 'ownsNode', 'index']);
  const { log, dma, arenaBytes, index } = options;
  if (log !== undefined) checkMethods('log', log, ['error', 'warn', 'diag', 'debug', 'child']);
  if (index !== undefined) checkWord32('index', index);
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
