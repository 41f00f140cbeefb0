/** Numbers and names as text. */

import type { TopCard } from '../../../model/top-model.ts';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `92.1 MiB`. */
export function bytesText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Bytes per second as GB/s with two decimal places; a dash if unknown. */
export function rateText(bytesPerSecond: number | undefined): string {
  if (bytesPerSecond === undefined) return '-';
  return (bytesPerSecond / 1e9).toFixed(2);
}

/** `12.3 ms`. */
export function millisecondsText(ms: number): string {
  if (ms < 1) return `${(ms * 1000).toFixed(0)} us`;
  return ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** `card 0`; the bus id of a card without an index. */
export function cardText({ index, busId }: Pick<TopCard, 'index' | 'busId'>): string {
  return index === undefined ? busId : `card ${index}`;
}

/** The name of the card with a minor. */
export function cardOfMinor(cards: readonly TopCard[], minor: number): string {
  const card = cards.find((each) => each.minor === minor);
  return card === undefined ? `accel${minor}` : cardText(card);
}
