/**
 * Commands to engines and their cores, and the flush of PCI writes: submissions without packets. Gaudi2; gaudi supports the flush only.
 *
 * Source: cs_ioctl_engine_cores, cs_ioctl_engines and cs_ioctl_flush_pci_hbw_writes of Linux 6.12.
 */

import { allocateScratch } from '../../sys/index.ts';
import { HL_CS_ARGS, HL_CS_FLAGS, HL_ENGINE_COMMAND, type HlEngineCommand } from '../../uapi/index.ts';
import { type CardTarget, cardOf } from '../base/card-file.ts';
import { checkWord32, GaudiErrorCode, gaudiError, invalidArgument } from '../base/gaudi-error.ts';
import { submit } from './command-submission.ts';

/** Maximum number of list entries: more than any card has engines or cores. */
const LIST_MAX = 1024;

const CORE_COMMANDS: readonly number[] = [HL_ENGINE_COMMAND.CORE_HALT, HL_ENGINE_COMMAND.CORE_RUN];
const COMMANDS: readonly number[] = Object.values(HL_ENGINE_COMMAND);

/**
 * Halts or runs cores (ENGINE_CORE_COMMAND), and waits for completion. Ids of cores that the card does not have are ignored.
 * @param coreIds CPU ids of the cores: 0 to 68 of gaudi2
 * @param mode CORE_HALT or CORE_RUN of HL_ENGINE_COMMAND
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS; ERR_GAUDI_PERMISSION_DENIED on gaudi; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function engineCoresSetMode(target: CardTarget, coreIds: readonly number[], mode: HlEngineCommand): void {
  if (!CORE_COMMANDS.includes(mode)) throw invalidArgument('mode', 'must be CORE_HALT or CORE_RUN', mode);
  run(target, HL_CS_FLAGS.ENGINE_CORE_COMMAND, 'engineCoresSetMode', { ids: list('coreIds', coreIds), command: mode });
}

/**
 * Stalls or resumes engines (ENGINES_COMMAND); with CORE_HALT and CORE_RUN the ids are those of cores. Work that an engine has started continues after a stall;
 * closing the device resumes all engines. If the driver rejects one of several engines, the command has already taken effect on those before it.
 * @param engineIds of enum gaudi2_engine_id: TPC 0 to 5, MME and EDMA of each dcore
 * @param command one of HL_ENGINE_COMMAND; Linux 6.1 supports none of them
 * @throws UcxError like {@link engineCoresSetMode}
 */
export function enginesCommand(target: CardTarget, engineIds: readonly number[], command: HlEngineCommand): void {
  if (!COMMANDS.includes(command)) throw invalidArgument('command', 'must be one of HL_ENGINE_COMMAND', command);
  run(target, HL_CS_FLAGS.ENGINES_COMMAND, 'enginesCommand', { ids: list('engineIds', engineIds), command });
}

/**
 * Waits until all writes of the card to host memory over PCI are visible (FLUSH_PCI_HBW_WRITES). Since Linux 6.2.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS if the driver does not support it; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function csFlushPciHbwWrites(target: CardTarget): void {
  run(target, HL_CS_FLAGS.FLUSH_PCI_HBW_WRITES, 'csFlushPciHbwWrites');
}

function list(argument: string, ids: readonly number[]): readonly number[] {
  if (!Array.isArray(ids)) throw invalidArgument(argument, 'must be an array', ids);
  if (ids.length < 1 || ids.length > LIST_MAX) {
    throw invalidArgument(argument, `must have 1 to ${LIST_MAX} entries`, ids.length);
  }
  for (const id of ids) checkWord32(argument, id);
  return ids;
}

interface EngineCommand {
  readonly ids: readonly number[];
  readonly command: number;
}

const NO_ENGINES: EngineCommand = { ids: [], command: 0 };

/** Runs CS with a list after its arguments. */
function run(target: CardTarget, flags: number, what: string, { ids, command }: EngineCommand = NO_ENGINES): void {
  const card = cardOf(target);
  card.checkOpen();
  const block = allocateScratch(HL_CS_ARGS.size + ids.length * 4);
  try {
    const named = {
      engines: BigInt(block.address + HL_CS_ARGS.size),
      num_engines: ids.length,
      engine_command: command,
    };
    HL_CS_ARGS.in.encode({ ...(ids.length === 0 ? {} : named), cs_flags: flags }, block.view);
    for (const [index, id] of ids.entries()) block.words[HL_CS_ARGS.size / 4 + index] = id;
    if (submit(card, block, what)) return;
    const reason =
      'the driver has no resources for another submission (EAGAIN): repeat the call after earlier ones have ended';
    throw gaudiError(GaudiErrorCode.DEVICE_BUSY, `${what} of ${card.name}: ${reason}`);
  } finally {
    block.free();
  }
}
