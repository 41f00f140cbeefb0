/** Cards in the arguments of commands: by logical index, device node or bus id. */

import { cardLabel, type NamedCard } from '../../hlthunk/index.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/**
 * The card that an argument names: `0`, `accel2` or `0000:33:00.0`.
 * @param argument its name in the message
 * @throws UcxError ERR_INVALID_PARAM that names the cards there are
 */
export function cardNamed(cards: readonly NamedCard[], argument: string, text: string): NamedCard {
  const found = cards.find(({ index, minor, busId }) => {
    const names = [index, minor === undefined ? undefined : `accel${minor}`, busId, busId.replace(/^0000:/, '')];
    return names.some((name) => String(name) === text.toLowerCase());
  });
  if (found !== undefined) return found;
  const known = cards.map(cardLabel).join(', ') || 'none';
  throw invalidParam(
    argument,
    `must be the index, the device node or the bus id of a card of this node: ${known}`,
    text,
  );
}

/** The name of the card with a minor. */
export function labelOfMinor(cards: readonly NamedCard[], minor: number): string {
  const found = cards.find((card) => card.minor === minor);
  return found === undefined ? `accel${minor}` : cardLabel(found);
}
