/**
 * INFO ops that the driver passes to the firmware of the card. The emulated firmware has no keys: its attestation is empty except for the nonce.
 */

import { Errno } from '../../../sys/index.ts';
import {
  CPUCP_REPLACED_ROWS_BYTES,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_INFO_SEC_ATTEST,
  HL_INFO_SIGNED,
} from '../../../uapi/index.ts';
import { encode, type InfoOps, operational } from './info-op.ts';

const ARGS = HL_INFO_ARGS.words;
/** Number of HBM rows that are pending replacement: always 0, like the number of replaced rows. */
const PENDING_ROWS_BYTES = 4;

/** The ops. */
export const FIRMWARE_OPS: InfoOps = [
  [HL_INFO_OP.DRAM_REPLACED_ROWS, operational(() => new Uint8Array(CPUCP_REPLACED_ROWS_BYTES))],
  [HL_INFO_OP.DRAM_PENDING_ROWS, operational(() => new Uint8Array(PENDING_ROWS_BYTES))],
  [
    HL_INFO_OP.SECURED_ATTESTATION,
    operational(({ words }) => encode(HL_INFO_SEC_ATTEST, { nonce: words[ARGS.sec_attest_nonce]! })),
  ],
  [HL_INFO_OP.DEV_SIGNED, operational(({ words }) => encode(HL_INFO_SIGNED, { nonce: words[ARGS.sec_attest_nonce]! }))],
  // The emulated firmware has no generic requests.
  [HL_INFO_OP.FW_GENERIC_REQ, operational(() => Errno.EOPNOTSUPP)],
];
