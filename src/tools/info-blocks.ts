/** `info --blocks`: the register blocks that the driver of a card hands to users, and the registers of one of them. Read only. */

import { openNode } from '../assembly/open-node.ts';
import type { Program } from '../assembly/program.ts';
import { open, type RegisterValue } from '../hlthunk/index.ts';
import { invalidParam } from '../ucs/type/error.ts';
import { type RegisterBlock, RegisterBlocks } from '../uct/index.ts';
import { formatBytes, formatTable } from './text-table.ts';

/** What is to be shown. */
export interface BlocksOptions {
  /** Name of a block; undefined for the list of all. */
  readonly block: string | undefined;
  /** Card by minor. */
  readonly minor: number;
  /** Also registers that are 0. */
  readonly all: boolean;
}

/** The options of `info` that are about blocks, as they are typed. */
export interface BlocksArguments {
  readonly blocks?: string | true;
  readonly card: string;
  readonly all: boolean;
}

/** Throws ERR_INVALID_PARAM for a card that is no number. */
export function blocksOptions({ blocks, card, all }: BlocksArguments): BlocksOptions {
  if (!/^\d{1,3}$/.test(card)) throw invalidParam('card', 'must be a card by minor', card);
  return { block: typeof blocks === 'string' ? blocks : undefined, minor: Number(card), all };
}

/**
 * The text. Opens the compute context of the card, so nobody else may have it.
 * @throws UcxError ERR_GAUDI_DEVICE_BUSY; ERR_GAUDI_PERMISSION_DENIED where UCX_GAUDI_COPY_HW_BLOCK_ACCESS forbids it; ERR_INVALID_PARAM
 */
export function describeBlocks(program: Program, { block, minor, all }: BlocksOptions): string {
  const node = openNode(program);
  try {
    const card = node.cards().find((entry) => entry.minor === minor);
    if (card === undefined) throw invalidParam('card', 'must be a card of this node by minor', minor);
    using device = open(node, { busId: card.busId }, { log: program.log.child(`card${minor}`) });
    const blocks = new RegisterBlocks(device, program.config);
    const source = node.kind === 'emulator' ? 'emulated' : 'habanalabs kernel driver';
    const title = `# card ${minor} (${source}): ${device.info.cardName} at ${card.busId}`;
    if (block === undefined) return [title, '#', listOf(blocks.list())].join('\n');
    return [`${title}, block ${block.toUpperCase()}`, '#', registersOf(blocks.read(block), all)].join('\n');
  } finally {
    node.close();
  }
}

/** A row per family of blocks, such as `NIC<n>_UMR<n>_<n>`: blocks that differ by number only, in size and refusal not. */
function listOf(blocks: readonly RegisterBlock[]): string {
  const families = new Map<string, RegisterBlock[]>();
  for (const block of blocks) {
    const pattern = block.name.replace(/\d+/g, '<n>');
    const key = `${pattern} ${block.byteLength} ${block.refusal ?? ''}`;
    families.set(key, [...(families.get(key) ?? []), block]);
  }
  const rows = [...families.values()].map((family) => {
    const { name, byteLength, registers, refusal } = family[0]!;
    const last = family.at(-1)!.name;
    const names = family.length === 1 ? name : `${name} .. ${last}`;
    const content = registers === 0 ? 'memory' : `${registers} registers`;
    return [`# ${names}`, String(family.length), byteLength === 0 ? '-' : formatBytes(byteLength), refusal ?? content];
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
