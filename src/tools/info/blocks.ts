/** `info --blocks`: register blocks that the driver of a card maps for users, and the registers of one block, read only. */

import { cardsOf, openShownNode } from '../../assembly/open-node.ts';
import type { Program } from '../../assembly/program/program.ts';
import { cardLabel, open, type RegisterValue } from '../../hlthunk/index.ts';
import { type RegisterBlock, RegisterBlocks } from '../../uct/index.ts';
import { formatBytes, formatTable } from '../base/text-table.ts';
import { cardNamed } from '../node-access/card.ts';

/** The requested hardware blocks. */
export interface BlocksOptions {
  /** Name of a block; undefined for the list of all. */
  readonly block: string | undefined;
  /** Card by index, device node or bus id. */
  readonly card: string;
}

/** The data: the blocks of a card, or the registers of one of them. */
export interface BlocksReport {
  readonly index: number | undefined;
  readonly minor: number;
  readonly busId: string;
  readonly cardName: string;
  readonly emulated: boolean;
  readonly blocks?: readonly RegisterBlock[];
  readonly block?: string;
  readonly registers?: readonly RegisterValue[];
}

export function blocksOptions(blocks: string | true, card: string): BlocksOptions {
  return { block: typeof blocks === 'string' ? blocks : undefined, card };
}

/**
 * Reads the blocks. Opens the compute context of the card exclusively.
 * @throws UcxError ERR_GAUDI_DEVICE_BUSY; ERR_GAUDI_PERMISSION_DENIED if UCX_GAUDI_COPY_HW_BLOCK_ACCESS forbids it; ERR_INVALID_PARAM
 */
export function readBlocks(program: Program, { block, card: name }: BlocksOptions): BlocksReport {
  const node = openShownNode(program);
  try {
    const { index, busId } = cardNamed(cardsOf(node, program), 'card', name);
    using device = open(node, { busId }, { ...(index !== undefined && { index }), log: program.log.child('info') });
    const blocks = new RegisterBlocks(device, program.config);
    const { cardName } = device.info;
    const report = { index, minor: device.minor, busId, cardName, emulated: node.emulated };
    if (block === undefined) return { ...report, blocks: blocks.list() };
    return { ...report, block: block.toUpperCase(), registers: blocks.read(block) };
  } finally {
    node.close();
  }
}

/** Formats a report. @param all whether registers that are 0 are printed too */
export function blocksText(report: BlocksReport, all: boolean): string {
  const { cardName, emulated, blocks, block, registers = [] } = report;
  const source = emulated ? 'emulated' : 'habanalabs kernel driver';
  const title = `# ${cardLabel(report)}, ${source}: ${cardName}`;
  if (blocks !== undefined) return [title, '#', listOf(blocks)].join('\n');
  return [`${title}, block ${block}`, '#', registersOf(registers, all)].join('\n');
}

/** A row per family of blocks, such as `NIC<n>_UMR<n>_<n>`: blocks whose names differ only by numbers, with equal size and access. */
function listOf(blocks: readonly RegisterBlock[]): string {
  const families = new Map<
    string,
    { readonly first: RegisterBlock; readonly last: RegisterBlock; readonly count: number }
  >();
  for (const block of blocks) {
    const pattern = block.name.replace(/\d+/g, '<n>');
    const key = `${pattern} ${block.byteLength} ${block.refusal ?? ''}`;
    const { first = block, count = 0 } = families.get(key) ?? {};
    families.set(key, { first, last: block, count: count + 1 });
  }
  const rows = [...families.values()].map(({ first, last, count }) => {
    const { name, byteLength, registers, refusal } = first;
    const names = count === 1 ? name : `${name} .. ${last.name}`;
    const content = registers === 0 ? 'memory' : `${registers} registers`;
    return [`# ${names}`, String(count), byteLength === 0 ? '-' : formatBytes(byteLength), refusal ?? content];
  });
  return formatTable([['# blocks', 'number', 'size', 'content'], ...rows]);
}

function registersOf(values: readonly RegisterValue[], all: boolean): string {
  const shown = all ? values : values.filter(({ value }) => value !== 0);
  const hex = (value: number, digits: number): string => `0x${value.toString(16).padStart(digits, '0')}`;
  const rows = shown.map(({ offset, name, value }) => [`# ${hex(offset, 5)}`, name ?? '-', hex(value, 8)]);
  const hidden = values.length - shown.length;
  const rest = hidden === 0 ? [] : [`# ${hidden} of ${values.length} are 0 (-a shows them)`];
  return [formatTable([['# offset', 'register', 'value'], ...rows]), ...rest].join('\n');
}
