/** Tables of the page as rows of cells: cards with their HBM, the matrix of rates, and processes. */

import type { TopModel } from '../../../model/top-model.ts';
import type { ArenaUse, WebModel, WebProcess } from '../../../model/web-model.ts';
import { isDown } from './figures.ts';
import { bytesText, cardText, millisecondsText, rateText } from './format.ts';

/** A cell of a table. */
export interface Cell {
  readonly text: string;
  /** Class of the cell. */
  readonly kind?: string;
  readonly title?: string;
  readonly isHead?: boolean;
}

const OPERATIONAL = 'operational';

/** A row for each card. */
export function cardRows({ top, processes }: WebModel): Cell[][] {
  const head = [
    'card',
    'device',
    'bus id',
    'status',
    'process id',
    'HBM used',
    'HBM total',
    'arenas',
    'blocks',
    'bytes in blocks',
    'free bytes fragmented',
    'engines busy',
    'GB/s to card',
    'GB/s from card',
    'faults',
  ];
  const rows = top.cards.map((card): Cell[] => {
    const use = sumOf(processes.flatMap(({ arenas }) => arenas).filter((each) => each.card === card.index));
    return [
      { text: cardText(card), isHead: true },
      { text: card.minor === undefined ? '-' : `accel${card.minor}` },
      { text: card.busId },
      { text: card.status, kind: card.status === OPERATIONAL ? '' : 'down' },
      { text: card.pid === undefined ? '-' : String(card.pid), title: card.command ?? '' },
      { text: bytesText(card.hbmUsedBytes) },
      { text: bytesText(card.hbmBytes) },
      { text: use === undefined ? '-' : `${use.arenas} of ${bytesText(use.arenaBytes)}` },
      { text: use === undefined ? '-' : String(use.blocks) },
      { text: use === undefined ? '-' : bytesText(use.blockBytes) },
      { text: use === undefined ? '-' : `${fragmentation(use).toFixed(0)} %` },
      { text: `${card.busyPercent.toFixed(0)} %`, kind: card.busyPercent > 0 ? 'busy' : '' },
      { text: rateText(card.hostToDevice) },
      { text: rateText(card.deviceToHost) },
      { text: card.faults.join(', ') || '-', kind: card.faults.length > 0 ? 'down text' : 'text' },
    ];
  });
  return [head.map((text) => ({ text })), ...rows];
}

/** Percentage of the free bytes of arenas that are outside of the largest free range. */
export function fragmentation({ arenaBytes, blockBytes, largestFreeBytes }: ArenaUse): number {
  const free = arenaBytes - blockBytes;
  return free <= 0 ? 0 : (100 * Math.max(0, free - largestFreeBytes)) / free;
}

function sumOf(uses: readonly ArenaUse[]): ArenaUse | undefined {
  if (uses.length === 0) return undefined;
  return uses.reduce((one, other) => ({
    card: one.card,
    arenas: one.arenas + other.arenas,
    arenaBytes: one.arenaBytes + other.arenaBytes,
    blocks: one.blocks + other.blocks,
    blockBytes: one.blockBytes + other.blockBytes,
    largestFreeBytes: Math.max(one.largestFreeBytes, other.largestFreeBytes),
    maps: [...one.maps, ...other.maps],
  }));
}

/** The matrix: from each card to every other card. */
export function linkRows({ cards, links }: TopModel): Cell[][] {
  const head: Cell[] = [{ text: 'from \\ to' }, ...cards.map((card) => ({ text: cardText(card) }))];
  const rows = cards.map((from): Cell[] => [
    { text: cardText(from), isHead: true },
    ...cards.map((to): Cell => {
      const link = links.find((each) => each.from === from.minor && each.to === to.minor);
      if (link === undefined) return { text: from === to ? '·' : '-' };
      const title = `${cardText(from)} to ${cardText(to)}: ${link.up} of ${link.total} links up`;
      if (isDown(link)) return { text: 'down', kind: 'down', title };
      if (link.up < link.total)
        return { text: `${rateText(link.bytesPerSecond ?? 0)} (${link.up}/${link.total})`, kind: 'down', title };
      const rate = link.bytesPerSecond ?? 0;
      return { text: link.bytesPerSecond === undefined ? '?' : rateText(rate), kind: rate > 0 ? 'busy' : '', title };
    }),
  ]);
  return [head, ...rows];
}

/** A command line without the folders of its program and its script: `node train.js --rank 3`. */
export function programText(command: string): string {
  const [program = '', script = '', ...rest] = command.split(' ');
  const name = (path: string): string => (path.startsWith('/') ? path.slice(path.lastIndexOf('/') + 1) : path);
  return [name(program), name(script), ...rest].join(' ').trim();
}

/** A row for each process. */
export function processRows(processes: readonly WebProcess[]): Cell[][] {
  const head: Cell[] = [
    ...['process id', 'workers', 'endpoints', 'pending requests', 'oldest request'].map((text) => ({ text })),
    { text: 'waits for', kind: 'text' },
    { text: 'command', kind: 'text' },
  ];
  const rows = processes.map((each): Cell[] => {
    const { pid, workers, endpoints, pending, groups, command, failure } = each;
    const waits = groups.map(({ protocol, reason, count }) => `${count} ${protocol}: ${reason}`).join('; ');
    return [
      { text: String(pid), isHead: true },
      { text: String(workers) },
      { text: String(endpoints) },
      { text: String(pending), kind: pending > 0 ? 'busy' : '' },
      { text: groups[0] === undefined ? '-' : millisecondsText(groups[0].oldestMs) },
      { text: failure ?? (waits === '' ? '-' : waits), kind: failure === undefined ? 'text' : 'text down' },
      { text: programText(command), kind: 'text command', title: command },
    ];
  });
  return [head, ...rows];
}
