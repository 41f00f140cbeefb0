/**
 * CS with ENGINE_CORE_COMMAND or ENGINES_COMMAND: halting and running the cores beside the engines, stalling and resuming engines of gaudi2.
 *
 * No core runs a program here, so halting one is checked and has no effect. A stalled EDMA starts no transfer, a stalled MME has its queue
 * manager stopped; TPCs have no kernels to stall. Source: drivers/accel/habanalabs/common/command_submission.c (cs_ioctl_engine_cores,
 * cs_ioctl_engines) and gaudi2/gaudi2.c (gaudi2_set_engines), Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  engineIdOf,
  GAUDI2_ENGINE_CORES,
  GAUDI2_ENGINES,
  HL_CS_ARGS,
  HL_CS_FLAGS,
  HL_ENGINE_COMMAND,
  type QueueEntry,
} from '../../../uapi/index.ts';
import { Stall } from '../../device/queue/stream.ts';
import { acceptNothing, refuse } from '../submission/cs-answer.ts';
import type { Context } from './context.ts';

const IN = HL_CS_ARGS.in.words;
/** The seventh TPC of dcore 0 cannot be named. */
const NAMED_TPCS = 6;

/** The ioctl. */
export function engineCommandIoctl(context: Context, block: ArgumentBlock, flags: number): number {
  const errno = runCommand(context, block, (flags & HL_CS_FLAGS.ENGINE_CORE_COMMAND) !== 0);
  return errno === 0 ? acceptNothing(block) : refuse(block, errno);
}

/** @returns 0; or an errno, after the command has taken effect on the engines before the rejected one */
function runCommand(context: Context, block: ArgumentBlock, isOfCores: boolean): number {
  const { words } = block;
  const { userMemory, card } = context;
  if (!card.profile.capabilities.engineCommands) return Errno.EPERM;
  const count = words[IN.num_engines]!;
  const command = words[IN.engine_command]!;
  const isCoreCommand = command === HL_ENGINE_COMMAND.CORE_HALT || command === HL_ENGINE_COMMAND.CORE_RUN;
  if (count === 0 || count > (isOfCores || isCoreCommand ? GAUDI2_ENGINE_CORES : GAUDI2_ENGINES)) return Errno.EINVAL;
  const isEngineCommand = command === HL_ENGINE_COMMAND.STALL || command === HL_ENGINE_COMMAND.RESUME;
  if (!isCoreCommand && (isOfCores || !isEngineCommand)) return Errno.EINVAL;
  if (!userMemory.readWords(block, words[IN.engines]!, words[IN.engines + 1]!, count)) return Errno.EFAULT;
  if (isCoreCommand) return 0;
  const ids = userMemory.words.slice(userMemory.index, userMemory.index + count);
  return setModes(context, ids, command === HL_ENGINE_COMMAND.STALL);
}

function setModes({ card, device }: Context, ids: Uint32Array, stalls: boolean): number {
  const { queues, name } = card.profile;
  for (const id of ids) {
    const ofEngine = queues.filter((queue) => isStallable(queue) && engineIdOf(name, queue) === id);
    if (ofEngine.length === 0) return Errno.EINVAL;
    for (const queue of ofEngine) device.stall(queue.id, stalls ? stallOf(queue) : Stall.NONE);
  }
  if (!stalls) {
    card.service();
    card.waiters.wake();
  }
  return 0;
}

function isStallable({ engine, engineIndex }: QueueEntry): boolean {
  return engine === 'edma' || engine === 'mme' || (engine === 'tpc' && engineIndex < NAMED_TPCS);
}

function stallOf({ engine }: QueueEntry): Stall {
  if (engine === 'mme') return Stall.PACKETS;
  return engine === 'edma' ? Stall.TRANSFERS : Stall.NONE;
}
