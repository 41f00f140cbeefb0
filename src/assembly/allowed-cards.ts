/** The cards of a node: their names for all tools, and those that the configuration allows a program to use. It opens none: only opening a card shows whether it is free. */

import { type NamedCard, namedCards } from '../driver/card-names.ts';
import type { CardEntry, DriverNode } from '../driver/port.ts';
import { UCP_CONFIG_TABLE } from '../ucp/resources/config.ts';
import { ResourceFilter } from '../ucp/resources/resource-filter.ts';
import { DeviceType } from '../uct/api/iface.ts';
import { cardChoiceOf, cardName, chosenCards } from '../uct/gaudi/base/cards.ts';
import type { MappedCard } from '../uct/gaudi/base/mapping-table.ts';
import type { Program } from './program/program.ts';

export { cardLabel } from '../driver/card-names.ts';
export { BUSY_ADVICE, cardLines } from '../uct/gaudi/base/cards.ts';

/** A card that may be used. */
export interface AllowedCard {
  /** Name of its device, such as `gaudi0`. */
  readonly name: string;
  /** Logical index. */
  readonly index: number;
  readonly card: CardEntry;
}

/**
 * Returns the cards, in the order of their logical indices.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE, ERR_INVALID_PARAM
 */
export function allowedCards(program: Program, node: DriverNode): AllowedCard[] {
  return admittedCards(program, node).flatMap(({ index, entry }) =>
    entry === undefined ? [] : [{ name: cardName(index), index, card: entry }],
  );
}

/** Settings of a program that needs one card, and uses no other. */
export function cardSettings({
  name,
  index,
  card: { busId, moduleId },
}: AllowedCard): Readonly<Record<string, string>> {
  const entry = { index, ...(moduleId === undefined ? {} : { module_id: moduleId }), bus_id: busId };
  return { UCX_ACC_DEVICES: name, GAUDI_MAPPING_TABLE: JSON.stringify([entry]) };
}

/** The cards that a program could use if they were not removed. Throws like {@link allowedCards}. */
export function removedCards(program: Program, node: DriverNode): NamedCard[] {
  return admittedCards(program, node).filter(({ absence }) => absence !== undefined);
}

function admittedCards({ config, env }: Program, node: DriverNode): MappedCard[] {
  const { admitsDevice } = new ResourceFilter(config.get(UCP_CONFIG_TABLE));
  return chosenCards(cardChoiceOf(env), node).filter(({ index }) => admitsDevice(DeviceType.ACC, cardName(index)));
}

/**
 * All cards of a node, also removed ones, under the indices that a program has for them: those of GAUDI_MAPPING_TABLE, else the order of their bus ids.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE
 */
export function cardsOf(node: DriverNode, { env }: Pick<Program, 'env'>): NamedCard[] {
  const { mappingTable } = cardChoiceOf(env);
  const all = namedCards(node);
  if (mappingTable === undefined) return all;
  const mapped = chosenCards({ mappingTable }, node);
  const others = all.filter(({ busId }) => mapped.every((card) => card.busId !== busId));
  return [...mapped, ...others.map((card) => ({ ...card, index: undefined }))];
}
