/** Arenas of each card as a strip: its shapes, and a description in words. */

import type { ArenaUse, WebModel } from '../../../model/web-model.ts';
import { bytesText } from './format.ts';

/** The coordinates of a strip: its arenas side by side, as wide as they are long. */
export const STRIP: { readonly width: number; readonly height: number } = { width: 1000, height: 24 };

/** A strip. */
export interface Strip {
  readonly label: string;
  /** SVG path of the bytes in blocks: a bar for each cell, as high as the part of it that is used. */
  readonly used: string;
  /** SVG path of the borders of the arenas. */
  readonly borders: string;
  /** The strip in words. */
  readonly text: string;
}

/** A strip for each card with arenas, for all processes together. */
export function arenaStrips({ top, processes }: WebModel): Strip[] {
  return top.cards.flatMap(({ index }) => {
    const uses = processes.flatMap(({ arenas }) => arenas).filter(({ card }) => card === index);
    return uses.length === 0 || index === undefined ? [] : [stripOf(index, uses)];
  });
}

function stripOf(card: number, uses: readonly ArenaUse[]): Strip {
  const maps = uses.flatMap((use) => use.maps);
  const total = maps.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const { width, height } = STRIP;
  let used = '';
  let borders = '';
  let x = 0;
  for (const { byteLength, usedPercent } of maps) {
    const arenaWidth = (width * byteLength) / total;
    borders += `M${rounded(x)} 0h${rounded(arenaWidth)}v${height}h-${rounded(arenaWidth)}z`;
    const cellWidth = arenaWidth / usedPercent.length;
    for (const [cell, percent] of usedPercent.entries()) {
      if (percent === 0) continue;
      const barHeight = (height * percent) / 100;
      used += `M${rounded(x + cell * cellWidth)} ${height}v-${rounded(barHeight)}h${rounded(cellWidth)}v${rounded(barHeight)}z`;
    }
    x += arenaWidth;
  }
  return { label: `card ${card}`, used, borders, text: textOf(card, uses) };
}

function textOf(card: number, uses: readonly ArenaUse[]): string {
  const sum = (partOf: (use: ArenaUse) => number): number => uses.reduce((total, use) => total + partOf(use), 0);
  const [arenas, arenaBytes] = [sum((use) => use.arenas), sum((use) => use.arenaBytes)];
  const shown = sum(({ maps }) => maps.length);
  const largestFree = Math.max(...uses.map(({ largestFreeBytes }) => largestFreeBytes));
  return [
    `card ${card}: ${arenas} arenas of ${bytesText(arenaBytes)} together`,
    ...(shown < arenas ? [`${shown} of them drawn`] : []),
    `${sum((use) => use.blocks)} blocks of ${bytesText(sum((use) => use.blockBytes))}`,
    `largest free range ${bytesText(largestFree)}`,
  ].join(', ');
}

function rounded(value: number): string {
  return String(Math.round(value * 100) / 100);
}
