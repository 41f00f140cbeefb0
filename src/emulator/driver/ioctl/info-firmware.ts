/**
 * INFO ops that the driver passes to the firmware of the card. The emulated firmware has no keys: its attestation is empty except for the nonce.
 */

import { Errno } from '../../../sys/index.ts';
import { HL_INFO_ARGS, HL_INFO_OP, HL_INFO_SEC_ATTEST, HL_INFO_SIGNED } from '../../../uapi/index.ts';
import { encode, type InfoOps, operational } from './info-op.ts';

const ARGS = HL_INFO_ARGS.words;
/** Replaced and pending rows of HBM: there are none (struct cpucp_hbm_row_replaced_rows_info, and a number). */
const REPLACED_ROWS_BYTES = 264;
const PENDING_ROWS_BYTES = 4;

/** The ops. */
export const FIRMWARE_OPS: InfoOps = [
  [HL_INFO_OP.DRAM_REPLACED_ROWS, operational(() => new Uint8Array(REPLACED_ROWS_BYTES))],
  [HL_INFO_OP.DRAM_PENDING_ROWS, operational(() => new Uint8Array(PENDING_ROWS_BYTES))],
  [
    HL_INFO_OP.SECURED_ATTESTATION,
    operational(({ words }) => encode(HL_INFO_SEC_ATTEST, { nonce: words[ARGS.sec_attest_nonce]! })),
  ],
  [HL_INFO_OP.DEV_SIGNED, operational(({ words }) => encode(HL_INFO_SIGNED, { nonce: words[ARGS.sec_attest_nonce]! }))],
  // The emulated firmware has no generic requests.
  [HL_INFO_OP.FW_GENERIC_REQ, operational(() => Errno.EOPNOTSUPP)],
];
