/**
 * The INFO ioctl: its framing and the table of its ops. The ops themselves are in the info-*.ts files by topic.
 *
 * Source: drivers/accel/habanalabs/common/habanalabs_ioctl.c, Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import { HL_DEVICE_STATUS, HL_INFO_ARGS } from '../../../uapi/index.ts';
import type { CardPort } from '../base/card-port.ts';
import type { Notifier } from '../base/notifier.ts';
import { readNumber } from '../base/words.ts';
import type { UserMemory } from '../memory/user-memory.ts';
import type { Context } from './context.ts';
import { EVENT_OPS } from './info-events.ts';
import { FIRMWARE_OPS } from './info-firmware.ts';
import { HARDWARE_OPS } from './info-hardware.ts';
import type { InfoOp } from './info-op.ts';
import { STATE_OPS } from './info-state.ts';

const ARGS = HL_INFO_ARGS.words;

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
  if (words[ARGS.pad] !== 0) return -Errno.EINVAL;
  const op = OPS.get(words[ARGS.op]!);
  if (op === undefined) return -Errno.EINVAL;
  if (!op.always && card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;
  const returnSize = words[ARGS.return_size]!;
  const returnPointer = readNumber(words, ARGS.return_pointer);
  if (op.returnsData && (returnSize === 0 || returnPointer === 0)) return -Errno.EINVAL;
  const answer = op.answer({ card, context, notifier, words, returnSize });
  if (typeof answer === 'number') return 0 - answer;
  const bytes = returnSize < answer.byteLength ? answer.subarray(0, returnSize) : answer;
  return userMemory.writeAnswer(block, returnPointer, bytes) ? 0 : -Errno.EFAULT;
}
