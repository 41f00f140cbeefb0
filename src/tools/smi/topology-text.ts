/** The output of `smi topo`: links between cards as a matrix, and the processors and memory near to each card. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { asError } from '../../ucs/type/error.ts';
import { formatTable } from '../base/text-table.ts';
import { indexText, UNKNOWN } from './queries.ts';
import type { SmiCard } from './smi-card.ts';

/** Columns of affinity to print. */
export interface TopologyColumns {
  readonly cpu: boolean;
  readonly numa: boolean;
}

/** Matrix of links between cards: number of links that are up, and number of all links. */
export function linkMatrix(cards: readonly SmiCard[]): string {
  const head = ['', ...cards.map((card) => `AIP${indexText(card)}`)];
  const rows = cards.map((card, row) => [
    `AIP${indexText(card)}`,
    ...cards.map((_, column) => {
      const link = card.links[column];
      if (column === row) return 'X';
      return link === undefined ? UNKNOWN : `${link.up}/${link.total}`;
    }),
  ]);
  return `${formatTable([head, ...rows])}\n\nLinks that are up, of all links of 100 GbE between two cards; X: the card itself`;
}

/** A row for each module, with the columns of hl-smi. @param sysRoot mount point of sysfs */
export function affinityTable(cards: readonly SmiCard[], { cpu, numa }: TopologyColumns, sysRoot: string): string {
  const titles = ['modID', ...(cpu ? ['CPU Affinity'] : []), ...(numa ? ['NUMA Affinity'] : [])];
  const rows = cards.map(({ moduleId, numaNode }) => [
    String(moduleId ?? UNKNOWN),
    ...(cpu ? [cpusOf(numaNode, sysRoot)] : []),
    ...(numa ? [String(numaNode ?? UNKNOWN)] : []),
  ]);
  return formatTable([titles, titles.map((title) => '-'.repeat(title.length)), ...rows]);
}

function cpusOf(numaNode: number | undefined, sysRoot: string): string {
  if (numaNode === undefined) return UNKNOWN;
  try {
    return readFileSync(join(sysRoot, `devices/system/node/node${numaNode}/cpulist`), 'utf8').trim() || UNKNOWN;
  } catch (error) {
    // A container may hide the processors of other nodes.
    if (asError(error).syscall === undefined) throw error;
    return UNKNOWN;
  }
}
