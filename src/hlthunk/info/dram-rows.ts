/** Rows of HBM that the firmware has replaced, and their decoder. */

import { CPUCP_REPLACED_ROWS_BYTES } from '../../uapi/index.ts';

const COUNT_BYTES = 8;
const ROW_BYTES = 8;
const ROWS_MAX: number = (CPUCP_REPLACED_ROWS_BYTES - COUNT_BYTES) / ROW_BYTES;

/** Why a row was replaced (enum cpucp_hbm_row_replace_cause). */
export const DramRowCause = {
  /** A double-bit error. */
  DOUBLE_ECC_ERR: 0,
  /** Several single-bit errors. */
  MULTI_SINGLE_ECC_ERR: 1,
} as const;

/** A replaced row (struct cpucp_hbm_row_info). */
export interface ReplacedDramRow {
  /** HBM stack. */
  readonly hbmIdx: number;
  /** Pseudo channel. */
  readonly pc: number;
  /** Stack id. */
  readonly sid: number;
  /** Bank. */
  readonly bankIdx: number;
  /** Row of the bank. */
  readonly rowAddr: number;
  /** One of {@link DramRowCause}; newer firmware may report other values. */
  readonly replacedRowCause: number;
}

/** Decodes the record of {@link CPUCP_REPLACED_ROWS_BYTES} bytes: at most 32 rows. */
export function decodeReplacedRows(record: Uint8Array): readonly ReplacedDramRow[] {
  const view = new DataView(record.buffer, record.byteOffset, record.byteLength);
  const count = Math.min(view.getUint16(0, true), ROWS_MAX);
  return Array.from({ length: count }, (_, index) => {
    const at = COUNT_BYTES + index * ROW_BYTES;
    return {
      hbmIdx: view.getUint8(at),
      pc: view.getUint8(at + 1),
      sid: view.getUint8(at + 2),
      bankIdx: view.getUint8(at + 3),
      rowAddr: view.getUint16(at + 4, true),
      replacedRowCause: view.getUint8(at + 6),
    };
  });
}
