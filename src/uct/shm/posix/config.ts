/** The configuration of posix: `UCX_POSIX_*`. */

import { isAbsolute } from 'node:path';
import type { ConfigTable } from '../../../ucs/config/config.ts';
import {
  bandwidthType,
  boolType,
  type ConfigType,
  memorySizeType,
  restricted,
  stringType,
  timeType,
  uintType,
} from '../../../ucs/config/value.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { SegmentOptions } from '../../base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../base/key/segment-name.ts';
import { type RingGeometry, ringBytes } from './layout.ts';

/** The values of the table. */
export interface PosixConfig {
  readonly DIR: string;
  readonly USE_PROC_LINK: boolean;
  readonly FIFO_SIZE: number;
  readonly FIFO_ELEM_SIZE: number;
  readonly SEG_SIZE: number;
  readonly SEG_COUNT: number;
  readonly BW: number;
  readonly LATENCY: number;
  readonly OVERHEAD: number;
}

function powerOfTwo(min: number, max: number): ConfigType<number> {
  const isGood = (value: number): boolean => value >= min && value <= max && Number.isInteger(Math.log2(value));
  return restricted(uintType, `a power of two, ${min} to ${max}`, isGood);
}

/** A length in whole cache lines, at most `max` bytes. */
function lines(max: number): ConfigType<number> {
  const isGood = (value: number): boolean => value >= 64 && value <= max && value % 64 === 0;
  return restricted(memorySizeType, `a size that is a multiple of 64, 64 to ${max}`, isGood);
}

/** `UCX_POSIX_*`. */
export const POSIX_CONFIG_TABLE: ConfigTable<PosixConfig> = {
  prefix: 'POSIX_',
  fields: [
    {
      name: 'DIR',
      type: restricted(stringType, 'an absolute path', isAbsolute),
      default: SEGMENT_FOLDER,
      doc: 'Folder of the files of shared memory, preferably of a file system in memory. Processes must use the same folder to reach each other.',
    },
    {
      name: 'USE_PROC_LINK',
      type: boolType,
      default: 'y',
      doc: 'Open shared memory of peers by the descriptor of its owner (/proc/PID/fd/N): the kernel then releases it however the owner ends. n: by its path in UCX_POSIX_DIR, which processes in different pid namespaces (containers) need; killed processes then leave files, which the next process removes. Must be the same at both ends.',
    },
    {
      name: 'SEG_COUNT',
      type: powerOfTwo(1, 65_536),
      default: '64',
      doc: 'Number of segments for longer messages from one sender to one receiver: a power of two, 1 to FIFO_SIZE.',
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
  // As in UCX: UCX_MM_X < UCX_POSIX_X, and UCX_SM_BW below both.
  subTables: [
    {
      prefix: 'MM_',
      fields: [
        {
          name: 'FIFO_SIZE',
          type: powerOfTwo(2, 65_536),
          default: '256',
          doc: 'Maximum number of messages in flight from one sender to one receiver: a power of two, 2 to 65536.',
        },
        {
          name: 'FIFO_ELEM_SIZE',
          type: lines(4096),
          default: '128',
          doc: 'Size of a ring element, 16 bytes of which are its header; a longer message uses a segment. A multiple of 64, 64 to 4096.',
        },
        {
          name: 'SEG_SIZE',
          type: lines(2 ** 20),
          default: '8256',
          doc: 'Bytes of a segment: a multiple of 64, 64 to 1048576. A message may take up to an eighth of the segments, but at least one; a message that needs more goes by rendezvous.',
        },
      ],
      subTables: [
        {
          prefix: 'SM_',
          fields: [
            {
              name: 'BW',
              type: bandwidthType,
              default: '12179MBs',
              doc: 'Estimated bandwidth of a copy, for the choice of protocols.',
            },
          ],
        },
      ],
    },
  ],
};

/**
 * The configured geometry of rings.
 * @throws UcxError ERR_CONFIG_VALUE for inconsistent fields
 */
export function ringGeometry(config: PosixConfig): RingGeometry {
  const { FIFO_SIZE, FIFO_ELEM_SIZE, SEG_SIZE, SEG_COUNT } = config;
  if (SEG_COUNT > FIFO_SIZE) {
    const rule = `at most UCX_POSIX_FIFO_SIZE, which is ${FIFO_SIZE}`;
    throw new UcxError({
      code: 'ERR_CONFIG_VALUE',
      status: Status.INVALID_PARAM,
      message: `UCX_POSIX_SEG_COUNT must be ${rule}, got ${SEG_COUNT}`,
      details: { variable: 'UCX_POSIX_SEG_COUNT', rule, value: SEG_COUNT },
    });
  }
  return { elements: FIFO_SIZE, elementBytes: FIFO_ELEM_SIZE, segmentBytes: SEG_SIZE, segments: SEG_COUNT };
}

/** How segments of long life are created; rings have a path until their receiver has attached them. */
export function segmentOptions({ DIR, USE_PROC_LINK }: PosixConfig): Required<SegmentOptions> {
  return { folder: DIR, keepsPath: !USE_PROC_LINK };
}

/** Bytes that a connection within the machine uses in the folder: a ring in each direction. Throws like {@link ringGeometry}. */
export function connectionBytes(config: PosixConfig): number {
  return 2 * ringBytes(ringGeometry(config));
}
