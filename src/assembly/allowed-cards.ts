/** The cards that the configuration lets a program use, by name. It opens none: whether one is free, opening it shows. */

import type { DriverNode } from '../driver/port.ts';
import { UCP_CONFIG_TABLE } from '../ucp/resources/config.ts';
import { ResourceFilter } from '../ucp/resources/resource-filter.ts';
import { DeviceType } from '../uct/api/iface.ts';
import { cardChoiceOf, chosenCards } from '../uct/gaudi/base/card-choice.ts';
import { cardName } from '../uct/gaudi/base/gaudi-cards.ts';
import type { Program } from './program.ts';

/**
 * The names, such as `gaudi0`, in the order of their logical indices.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE, ERR_INVALID_PARAM
 */
export function allowedCards({ config, env }: Program, node: DriverNode): string[] {
  const { admitsDevice } = new ResourceFilter(config.get(UCP_CONFIG_TABLE));
  const names = chosenCards(cardChoiceOf(env), node.cards()).map(({ index }) => cardName(index));
  return names.filter((name) => admitsDevice(DeviceType.ACC, name));
}
