/**
 * The INFO ioctl: its framing, the table of its ops, and those of the firmware. The others are in the info-*.ts files by topic.
 *
 * Source: drivers/accel/habanalabs/common/habanalabs_ioctl.c, Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  CPUCP_REPLACED_ROWS_BYTES,
  HL_DEVICE_STATUS,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_INFO_SEC_ATTEST,
  HL_INFO_SIGNED,
} from '../../../uapi/index.ts';
import type { CardPort } from '../base/card-port.ts';
import type { Notifier } from '../base/notifier.ts';
import { readNumber } from '../base/words.ts';
import type { UserMemory } from '../memory/user-memory.ts';
import type { Context } from './context.ts';
import { EVENT_OPS } from './info-events.ts';
import { HARDWARE_OPS } from './info-hardware.ts';
import { encode, type InfoOp, type InfoOps, operational, withoutData } from './info-op.ts';
import { STATE_OPS } from './info-state.ts';

const ARGS = HL_INFO_ARGS.words;
/** The only request of FW_GENERIC_REQ. */
const HL_PASSTHROUGH_VERSIONS = 0;
/** Ops that the control node rejects before anything else (hl_info_ioctl_control). */
const EVENT_FD_OPS: ReadonlySet<number> = new Set([
  HL_INFO_OP.REGISTER_EVENTFD,
  HL_INFO_OP.UNREGISTER_EVENTFD,
  HL_INFO_OP.GET_EVENTS,
]);
/** Number of HBM rows that are pending replacement: always 0, like the number of replaced rows. */
const PENDING_ROWS_BYTES = 4;

/** Ops that the driver passes to the firmware of the card. The emulated firmware has no keys: its attestation is empty except for the nonce. */
const FIRMWARE_OPS: InfoOps = [
  [HL_INFO_OP.DRAM_REPLACED_ROWS, operational(() => new Uint8Array(CPUCP_REPLACED_ROWS_BYTES))],
  [HL_INFO_OP.DRAM_PENDING_ROWS, operational(() => new Uint8Array(PENDING_ROWS_BYTES))],
  [
    HL_INFO_OP.SECURED_ATTESTATION,
    operational(({ words }) => encode(HL_INFO_SEC_ATTEST, { nonce: words[ARGS.sec_attest_nonce]! })),
  ],
  [HL_INFO_OP.DEV_SIGNED, operational(({ words }) => encode(HL_INFO_SIGNED, { nonce: words[ARGS.sec_attest_nonce]! }))],
  // The emulated firmware answers none of the requests that the driver passes to it.
  [
    HL_INFO_OP.FW_GENERIC_REQ,
    withoutData(false, ({ words }) =>
      words[ARGS.fw_sub_opcode] === HL_PASSTHROUGH_VERSIONS ? Errno.EOPNOTSUPP : Errno.EINVAL,
    ),
  ],
];

const OPS: ReadonlyMap<number, InfoOp> = new Map<number, InfoOp>([
  ...HARDWARE_OPS,
  ...STATE_OPS,
  ...EVENT_OPS,
  ...FIRMWARE_OPS,
]);

/**
 * The ioctl.
 * @param userMemory of the caller
 * @param context undefined on the control node, like the notifier
 */
export function infoIoctl(
  card: CardPort,
  userMemory: UserMemory,
  context: Context | undefined,
  notifier: Notifier | undefined,
  block: ArgumentBlock,
): number {
  const { words } = block;
  const number = words[ARGS.op]!;
  if (notifier === undefined && EVENT_FD_OPS.has(number)) return -Errno.EOPNOTSUPP;
  if (words[ARGS.pad] !== 0) return -Errno.EINVAL;
  const op = OPS.get(number);
  if (op?.always !== true && card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;
  if (op === undefined) return -Errno.EINVAL;
  const returnSize = words[ARGS.return_size]!;
  const returnPointer = readNumber(words, ARGS.return_pointer);
  if (op.returnsData && (returnSize === 0 || returnPointer === 0)) return -Errno.EINVAL;
  const answer = op.answer({ card, context, notifier, words, returnSize });
  if (typeof answer === 'number') return 0 - answer;
  const bytes = returnSize < answer.byteLength ? answer.subarray(0, returnSize) : answer;
  return userMemory.writeAnswer(block, returnPointer, bytes) ? 0 : -Errno.EFAULT;
}
