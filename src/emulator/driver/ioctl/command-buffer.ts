/** The CB ioctl: allocation of command buffers by the driver. */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  HandleType,
  HL_CB_ARGS,
  HL_CB_FLAGS,
  HL_CB_OP,
  HL_DEVICE_STATUS,
  HL_MAX_CB_SIZE,
} from '../../../uapi/index.ts';
import { clearWords, writeU64 } from '../base/numbers.ts';
import { HOST_PAGE_BYTES } from '../memory/address-blocks.ts';
import type { Context } from './context.ts';

const IN = HL_CB_ARGS.in.words;
const OUT = HL_CB_ARGS.out.words;
const ARGS_WORDS: number = HL_CB_ARGS.size / 4;

/** CREATE clears the arguments, INFO its result if it has one, DESTROY nothing (hl_cb_ioctl, Linux 6.12). */
export function commandBufferIoctl(context: Context, block: ArgumentBlock): number {
  if (context.card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;
  switch (block.words[IN.op]) {
    case HL_CB_OP.CREATE:
      return create(context, block);
    case HL_CB_OP.DESTROY:
      return destroy(context, block);
    case HL_CB_OP.INFO:
      return info(context, block);
    default:
      return -Errno.EINVAL;
  }
}

function create(context: Context, { words }: ArgumentBlock): number {
  const byteLength = words[IN.cb_size]!;
  const wantsMap = (words[IN.flags]! & HL_CB_FLAGS.MAP) !== 0;
  clearWords(words, ARGS_WORDS);
  if (byteLength > HL_MAX_CB_SIZE) return -Errno.EINVAL;
  if (wantsMap && !context.card.profile.capabilities.mappedKernelCb) return -Errno.ENOMEM;
  const buffer = context.buffers.create(HandleType.CB, Math.max(byteLength, HOST_PAGE_BYTES));
  if (typeof buffer === 'number') return -buffer;
  if (wantsMap) {
    buffer.deviceAddress = context.commandBufferVa.map(buffer);
    if (buffer.deviceAddress === 0n) {
      context.buffers.destroy(buffer);
      return -Errno.ENOMEM;
    }
  }
  writeU64(words, OUT.cb_handle, buffer.handle);
  return 0;
}

function destroy(context: Context, { words }: ArgumentBlock): number {
  const buffer = context.buffers.findCommandBuffer(words[IN.cb_handle]!, words[IN.cb_handle + 1]!);
  if (buffer === undefined || buffer.destroyed) return -Errno.EINVAL;
  context.buffers.destroy(buffer);
  return 0;
}

/** The usage count is always 0: a submission copies a command buffer of the driver before the ioctl returns. */
function info(context: Context, { words }: ArgumentBlock): number {
  const buffer = context.buffers.findCommandBuffer(words[IN.cb_handle]!, words[IN.cb_handle + 1]!);
  const wantsAddress = (words[IN.flags]! & HL_CB_FLAGS.GET_DEVICE_VA) !== 0;
  if (buffer === undefined || (wantsAddress && buffer.deviceAddress === 0n)) return -Errno.EINVAL;
  writeU64(words, OUT.device_va, wantsAddress ? buffer.deviceAddress : 0n);
  return 0;
}
