/**
 * Fault records of the driver: the first of each kind since the card was opened. Reading does not clear a record.
 *
 * Every function returns undefined if nothing is recorded or the kernel does not have the record. Timestamps are nanoseconds of the
 * kernel's real-time clock. Source: drm/habanalabs_accel.h, Linux 6.12; razwi also in the layout of 6.1.
 */

import { allocateScratch, Errno, type ScratchBlock } from '../../sys/index.ts';
import {
  HL_INFO_CS_TIMEOUT_EVENT,
  HL_INFO_ENGINE_ERR_EVENT,
  HL_INFO_FW_ERR_EVENT,
  HL_INFO_HW_ERR_EVENT,
  HL_INFO_LAST_ERR_OPEN_DEV_TIME,
  HL_INFO_OP,
  HL_INFO_RAZWI_EVENT,
  HL_INFO_RAZWI_EVENT_6_1,
  HL_INFO_UNDEFINED_OPCODE_EVENT,
  HL_PAGE_FAULT_INFO,
  HL_RAZWI_NA_ENG_ID,
  HL_USER_MAPPING,
  type HlInfoOp,
  type Struct,
  type StructFields,
  type StructValues,
} from '../../uapi/index.ts';
import { type CamelRecord, type CardTarget, camelRecord, cardOf } from '../base/card-file.ts';
import { invalidArgument, isOpAbsent } from '../base/gaudi-error.ts';

/** Fills result buffers before a call, to recognise bytes that the driver has not written. */
const UNWRITTEN = 0xa5;
/** Maximum number of mappings in one request: more than a card has pages of memory, and still small. */
const USER_MAPPINGS_MAX = 2 ** 20;

type Decoded<S extends { decode(...args: never[]): unknown }> = ReturnType<S['decode']>;

/** An access of the card to an unmapped address. */
export type PageFaultInfo = CamelRecord<Decoded<typeof HL_PAGE_FAULT_INFO>>;
/** A submission that timed out. */
export type CsTimeoutInfo = CamelRecord<Decoded<typeof HL_INFO_CS_TIMEOUT_EVENT>>;
/** A packet with an undefined opcode. */
export type UndefinedOpcodeInfo = CamelRecord<Decoded<typeof HL_INFO_UNDEFINED_OPCODE_EVENT>>;
/** The recorded hardware error (HL_INFO_HW_ERR_EVENT). */
export type HwErrInfo = CamelRecord<Decoded<typeof HL_INFO_HW_ERR_EVENT>>;
/** The recorded firmware error (HL_INFO_FW_ERR_EVENT). */
export type FwErrInfo = CamelRecord<Decoded<typeof HL_INFO_FW_ERR_EVENT>>;
/** The recorded engine error (HL_INFO_ENGINE_ERR_EVENT). */
export type EngineErrInfo = CamelRecord<Decoded<typeof HL_INFO_ENGINE_ERR_EVENT>>;
/** A mapping at the time of a page fault. */
export type UserMapping = CamelRecord<Decoded<typeof HL_USER_MAPPING>>;

/** An access of the card to an illegal address. */
export interface RazwiInfo {
  /** Time of the access in nanoseconds, by the clock of the kernel. */
  readonly timestamp: bigint;
  /** Address of the access. */
  readonly addr: bigint;
  /** Engines that may have made the access. */
  readonly engineIds: readonly number[];
  /** Bits of HL_RAZWI; 0 in Linux 6.1, which has a different record. */
  readonly flags: number;
}

/** The page fault (Linux 6.12). */
export function getPageFaultInfo(target: CardTarget): PageFaultInfo | undefined {
  return record(target, HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO, 'getPageFaultInfo');
}

/** The submission that timed out. */
export function getCsTimeoutInfo(target: CardTarget): CsTimeoutInfo | undefined {
  return record(target, HL_INFO_OP.CS_TIMEOUT_EVENT, HL_INFO_CS_TIMEOUT_EVENT, 'getCsTimeoutInfo');
}

/** The undefined opcode. */
export function getUndefinedOpcodeInfo(target: CardTarget): UndefinedOpcodeInfo | undefined {
  const op = HL_INFO_OP.UNDEFINED_OPCODE_EVENT;
  return record(target, op, HL_INFO_UNDEFINED_OPCODE_EVENT, 'getUndefinedOpcodeInfo');
}

/** The hardware error (Linux 6.12). */
export function getHwErrInfo(target: CardTarget): HwErrInfo | undefined {
  return record(target, HL_INFO_OP.HW_ERR_EVENT, HL_INFO_HW_ERR_EVENT, 'getHwErrInfo');
}

/** The firmware error (Linux 6.12). */
export function getFwErrInfo(target: CardTarget): FwErrInfo | undefined {
  return record(target, HL_INFO_OP.FW_ERR_EVENT, HL_INFO_FW_ERR_EVENT, 'getFwErrInfo');
}

/** The engine error (Linux 6.12). */
export function getEngineErrInfo(target: CardTarget): EngineErrInfo | undefined {
  return record(target, HL_INFO_OP.USER_ENGINE_ERR_EVENT, HL_INFO_ENGINE_ERR_EVENT, 'getEngineErrInfo');
}

/**
 * Time of the last successful open of the primary node, despite the name of the op (last_err_open_dev_info, Linux 6.12); undefined if the driver does not have
 * the op.
 */
export function getLastErrOpenDevTime(target: CardTarget): bigint | undefined {
  const op = HL_INFO_OP.LAST_ERR_OPEN_DEV_TIME;
  return record(target, op, HL_INFO_LAST_ERR_OPEN_DEV_TIME, 'getLastErrOpenDevTime')?.timestamp;
}

/** The access to an illegal address, in the layout that the kernel wrote. */
export function getRazwiInfo(target: CardTarget): RazwiInfo | undefined {
  return withRecord(
    target,
    { op: HL_INFO_OP.RAZWI_EVENT, what: 'getRazwiInfo' },
    HL_INFO_RAZWI_EVENT.size,
    (answer) => {
      if (answer.u8[HL_INFO_RAZWI_EVENT_6_1.size] === UNWRITTEN && answer.u8.at(-1) === UNWRITTEN) {
        const old = HL_INFO_RAZWI_EVENT_6_1.decode(answer.view);
        const engineIds = [old.engine_id_1, old.engine_id_2].filter((id) => id !== HL_RAZWI_NA_ENG_ID);
        return { timestamp: old.timestamp, addr: old.addr, engineIds, flags: 0 };
      }
      const razwi = HL_INFO_RAZWI_EVENT.decode(answer.view);
      const engineIds = razwi.engine_id.slice(0, razwi.num_of_possible_engines);
      return { timestamp: razwi.timestamp, addr: razwi.addr, engineIds, flags: razwi.flags };
    },
  );
}

/**
 * The mappings at the time of the page fault (Linux 6.12).
 * @param countMax size of the buffer in mappings; the driver fails if not all of them fit
 */
export function getUserMappings(target: CardTarget, countMax = 4096): readonly UserMapping[] {
  const card = cardOf(target);
  if (!Number.isInteger(countMax) || countMax < 1 || countMax > USER_MAPPINGS_MAX) {
    throw invalidArgument('countMax', `must be an integer from 1 to ${USER_MAPPINGS_MAX}`, countMax);
  }
  const answer = allocateScratch(countMax * HL_USER_MAPPING.size);
  try {
    const result = card.tryInfo(HL_INFO_OP.USER_MAPPINGS, answer);
    const needed = card.infoArguments().array_size;
    if (result === -Errno.ENOMEM && needed > countMax) return getUserMappings(target, needed);
    if (isOpAbsent(result)) return [];
    if (result < 0) throw card.error(result, 'getUserMappings');
    return Array.from({ length: Math.min(needed, countMax) }, (_, index) =>
      camelRecord(HL_USER_MAPPING.decode(answer.view, index * HL_USER_MAPPING.size)),
    );
  } finally {
    answer.free();
  }
}

function record<F extends StructFields>(
  target: CardTarget,
  op: HlInfoOp,
  struct: Struct<F>,
  what: string,
): CamelRecord<StructValues<F>> | undefined {
  return withRecord(target, { op, what }, struct.size, (answer) => camelRecord(struct.decode(answer.view)));
}

/** An op, and the name of its function for errors. */
interface Query {
  readonly op: HlInfoOp;
  readonly what: string;
}

/** Reads a record that begins with its timestamp. */
function withRecord<T>(
  target: CardTarget,
  { op, what }: Query,
  byteLength: number,
  read: (answer: ScratchBlock) => T,
): T | undefined {
  const card = cardOf(target);
  const answer = allocateScratch(byteLength);
  answer.u8.fill(UNWRITTEN);
  try {
    const result = card.tryInfo(op, answer);
    if (isOpAbsent(result)) return undefined;
    if (result < 0) throw card.error(result, what);
    const timestamp = answer.u8.subarray(0, 8);
    if (timestamp.every((byte) => byte === UNWRITTEN) || timestamp.every((byte) => byte === 0)) return undefined;
    return read(answer);
  } finally {
    answer.free();
  }
}
