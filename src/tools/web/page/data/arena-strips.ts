/** Arenas of each card as a strip: its shapes, and a description in words. */

import type { ArenaUse, WebModel } from '../../../model/web-model.ts';
import { bytesText, cardText } from './format.ts';

/** The coordinates of a strip: its arenas side by side, as wide as they are long. */
export const STRIP: { readonly width: number; readonly height: number } = { width: 1000, height: 24 };

/** A strip. */
export interface Strip {
  readonly label: string;
  /** SVG path of the bytes in blocks: a bar for each cell, whose height is the used fraction. */
  readonly used: string;
  /** SVG path of the borders of the arenas. */
  readonly borders: string;
  /** Bytes in its blocks, and in its arenas. */
  readonly size: string;
  /** Description of the strip in words. */
  readonly text: string;
}

/** Strips with the same scale. */
export interface Strips {
  readonly strips: readonly Strip[];
  /** Bytes at the left end, the middle and the right end. */
  readonly ticks: readonly string[];
}

/** A strip for each card, for all processes together: also for cards without arenas, so that the layout stays when a program starts. */
export function arenaStrips({ top, processes }: WebModel): Strips {
  const all = processes.flatMap(({ arenas }) => arenas);
  const cards = top.cards.map((card) => ({ card, uses: all.filter((use) => use.card === card.index) }));
  const longest = Math.max(0, ...cards.map(({ uses }) => drawnBytes(uses)));
  return {
    strips: cards.map(({ card, uses }) => stripOf(cardText(card), uses, longest)),
    ticks: longest === 0 ? [] : [0, longest / 2, longest].map(bytesText),
  };
}

function drawnBytes(uses: readonly ArenaUse[]): number {
  return sumOf(uses.flatMap(({ maps }) => maps).map(({ byteLength }) => byteLength));
}

/** @param longest bytes for the full width */
function stripOf(label: string, uses: readonly ArenaUse[], longest: number): Strip {
  const { width, height } = STRIP;
  let used = '';
  let borders = '';
  let x = 0;
  for (const { byteLength, usedPercent } of uses.flatMap((use) => use.maps)) {
    const arenaWidth = (width * byteLength) / longest;
    borders += `M${rounded(x)} 0h${rounded(arenaWidth)}v${height}h-${rounded(arenaWidth)}z`;
    const cellWidth = arenaWidth / usedPercent.length;
    for (const [cell, percent] of usedPercent.entries()) {
      if (percent === 0) continue;
      const barHeight = (height * percent) / 100;
      used += `M${rounded(x + cell * cellWidth)} ${height}v-${rounded(barHeight)}h${rounded(cellWidth)}v${rounded(barHeight)}z`;
    }
    x += arenaWidth;
  }
  const inBlocks = sumOf(uses.map(({ blockBytes }) => blockBytes));
  const inArenas = sumOf(uses.map(({ arenaBytes }) => arenaBytes));
  const size = uses.length === 0 ? 'no arenas' : `${bytesText(inBlocks)} of ${bytesText(inArenas)}`;
  return { label, used, borders, size, text: uses.length === 0 ? `${label}: no arenas` : textOf(label, uses) };
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

function textOf(label: string, uses: readonly ArenaUse[]): string {
  const sum = (partOf: (use: ArenaUse) => number): number => uses.reduce((total, use) => total + partOf(use), 0);
  const [arenas, arenaBytes] = [sum((use) => use.arenas), sum((use) => use.arenaBytes)];
  const shown = sum(({ maps }) => maps.length);
  const largestFree = Math.max(...uses.map(({ largestFreeBytes }) => largestFreeBytes));
  return [
    `${label}: ${arenas} arenas with ${bytesText(arenaBytes)} in total`,
    ...(shown < arenas ? [`${shown} of them drawn`] : []),
    `${sum((use) => use.blocks)} blocks of ${bytesText(sum((use) => use.blockBytes))}`,
    `largest free range ${bytesText(largestFree)}`,
  ].join(', ');
}

function rounded(value: number): string {
  return String(Math.round(value * 100) / 100);
}
