/**
 * Determines the ioctl family of a card's file by requesting the card's status. Changes nothing on the card.
 *
 * Linux 6.6 and older number the ioctls with 'H', newer ones with the 'd' of DRM; the kernel version does not determine it, because the driver
 * is also built out of tree. A driver returns ENOTTY or EINVAL for a number of the other family.
 */

import { allocateScratch, Errno, SyscallError } from '../../sys/index.ts';
import {
  DRM_IOCTLS,
  HABANALABS_IOCTLS,
  HL_INFO_ARGS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  type IoctlNumbers,
} from '../../uapi/index.ts';
import { RetryBudget } from './retry-budget.ts';
import type { SystemCalls } from './system-calls.ts';

/** Not a valid device status: if the answer still contains it after the call, the driver has not written a result. */
const UNANSWERED = 0xffffffff;

/**
 * Returns the ioctl numbers that the file accepts.
 * @param accel try the DRM family first; the other one is tried as well
 * @param path of the file, for messages
 * @throws SyscallError ENOTTY if the file accepts neither family: not a habanalabs device; other errnos from the driver
 */
export function probeIoctlFamily(calls: SystemCalls, fd: number, accel: boolean, path: string): IoctlNumbers {
  for (const numbers of accel ? [DRM_IOCTLS, HABANALABS_IOCTLS] : [HABANALABS_IOCTLS, DRM_IOCTLS]) {
    const result = askStatus(calls, fd, numbers);
    if (result === 0) return numbers;
    if (result !== -Errno.ENOTTY && result !== -Errno.EINVAL) {
      throw new SyscallError('ioctl', -result, `INFO DEVICE_STATUS of ${path}`);
    }
  }
  throw new SyscallError(
    'ioctl',
    Errno.ENOTTY,
    `${path} is not a habanalabs device: it answers INFO in neither family`,
  );
}

/** Returns 0, or -errno; -ENOTTY also for a driver that accepted the number without writing a result. */
function askStatus(calls: SystemCalls, fd: number, numbers: IoctlNumbers): number {
  using block = allocateScratch(HL_INFO_ARGS.size);
  using answer = allocateScratch(HL_INFO_DEVICE_STATUS.size);
  const budget = new RetryBudget();
  let result: number;
  do {
    answer.words.fill(UNANSWERED);
    HL_INFO_ARGS.encode(
      { return_pointer: BigInt(answer.address), return_size: answer.byteLength, op: HL_INFO_OP.DEVICE_STATUS },
      block.view,
    );
    result = calls.ioctl(fd, numbers.INFO, block.address);
  } while (budget.allows(result));
  if (result < 0) return result;
  return answer.words[HL_INFO_DEVICE_STATUS.words.status] === UNANSWERED ? -Errno.ENOTTY : 0;
}
