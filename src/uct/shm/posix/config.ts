/** The configuration of posix: `UCX_POSIX_*`. */

import type { ConfigTable } from '../../../ucs/config.ts';
import { bandwidthType, memorySizeType, timeType, uintType } from '../../../ucs/config-value.ts';
import { UcxError } from '../../../ucs/error.ts';
import { Status } from '../../../ucs/status.ts';
import type { RingGeometry } from './ring-layout.ts';

/** The values of the table. */
export interface PosixConfig {
  readonly FIFO_SIZE: number;
  readonly FIFO_ELEM_SIZE: number;
  readonly SEG_SIZE: number;
  readonly SEG_COUNT: number;
  readonly BW: number;
  readonly LATENCY: number;
  readonly OVERHEAD: number;
}

/** `UCX_POSIX_*`. */
export const POSIX_CONFIG_TABLE: ConfigTable<PosixConfig> = {
  prefix: 'POSIX_',
  fields: [
    {
      name: 'FIFO_SIZE',
      type: uintType,
      default: '256',
      doc: 'Messages that one sender may have on their way to one receiver: a power of two, 2 to 65536.',
    },
    {
      name: 'FIFO_ELEM_SIZE',
      type: memorySizeType,
      default: '128',
      doc: 'Bytes of a place for one message, 16 of them for itself; a longer message takes a segment. A multiple of 64, 64 to 4096.',
    },
    {
      name: 'SEG_SIZE',
      type: memorySizeType,
      default: '8256',
      doc: 'Longest message in bytes: a multiple of 64, 64 to 1048576.',
    },
    {
      name: 'SEG_COUNT',
      type: uintType,
      default: '64',
      doc: 'Segments for longer messages of one sender to one receiver: a power of two, 1 to FIFO_SIZE.',
    },
    {
      name: 'BW',
      type: bandwidthType,
      default: '12179MBs',
      doc: 'Estimated bandwidth of a copy, for the choice of protocols.',
    },
    {
      name: 'LATENCY',
      type: timeType,
      default: '80ns',
      doc: 'Estimated latency of a message.',
    },
    {
      name: 'OVERHEAD',
      type: timeType,
      default: '10ns',
      doc: 'Estimated time of starting an operation.',
    },
  ],
};

/**
 * The shape of the rings that the configuration asks for.
 * @throws UcxError ERR_CONFIG_VALUE that names the field and its rule
 */
export function ringGeometry(config: PosixConfig): RingGeometry {
  const { FIFO_SIZE, FIFO_ELEM_SIZE, SEG_SIZE, SEG_COUNT } = config;
  check('FIFO_SIZE', FIFO_SIZE, isPowerOfTwo(FIFO_SIZE, 2, 65_536), 'a power of two, 2 to 65536');
  check('FIFO_ELEM_SIZE', FIFO_ELEM_SIZE, isLines(FIFO_ELEM_SIZE, 4096), 'a multiple of 64, 64 to 4096');
  check('SEG_SIZE', SEG_SIZE, isLines(SEG_SIZE, 2 ** 20), 'a multiple of 64, 64 to 1048576');
  check('SEG_COUNT', SEG_COUNT, isPowerOfTwo(SEG_COUNT, 1, FIFO_SIZE), 'a power of two, 1 to FIFO_SIZE');
  return { elements: FIFO_SIZE, elementBytes: FIFO_ELEM_SIZE, segmentBytes: SEG_SIZE, segments: SEG_COUNT };
}

function isPowerOfTwo(value: number, min: number, max: number): boolean {
  return value >= min && value <= max && Number.isInteger(Math.log2(value));
}

function isLines(value: number, max: number): boolean {
  return value >= 64 && value <= max && value % 64 === 0;
}

function check(field: string, value: number, isGood: boolean, rule: string): void {
  if (isGood) return;
  throw new UcxError({
    code: 'ERR_CONFIG_VALUE',
    status: Status.INVALID_PARAM,
    message: `UCX_POSIX_${field} must be ${rule}, got ${value}`,
    details: { field: `UCX_POSIX_${field}`, value },
  });
}
