/**
 * Selection of the cards of a program by variables of the environment. The first of these that is set decides:
 *
 * | Variable | Meaning |
 * |---|---|
 * | GAUDI_MAPPING_TABLE | The card of each logical index: see mapping-table.ts |
 * | HABANA_VISIBLE_MODULES | OCP module ids, separated by commas, as for the frameworks of the vendor |
 * | HABANA_VISIBLE_DEVICES | Logical indices, separated by commas, or `all`, as for the container runtime of the vendor |
 *
 * The last two do not change the logical indices: they only select cards. UCX_ACC_DEVICES then selects among these by name.
 */

import { type DriverNode, namedCards } from '../../../../hlthunk/index.ts';
import { invalidParam } from '../../../../ucs/type/error.ts';
import { type MappedCard, parseMappingTable } from './mapping-table.ts';

/** The values of the variables; undefined if not set. */
export interface CardChoice {
  /** Value of GAUDI_MAPPING_TABLE. */
  readonly mappingTable: string | undefined;
  /** Value of HABANA_VISIBLE_MODULES. */
  readonly visibleModules?: string | undefined;
  /** Value of HABANA_VISIBLE_DEVICES. */
  readonly visibleDevices?: string | undefined;
}

/** The node of the cards. */
type Cards = Pick<DriverNode, 'cards' | 'absentCards'>;

const NUMBERS = /^\d{1,3}(,\d{1,3})*$/;

/** Reads the selection from an environment. */
export function cardChoiceOf(env: Readonly<Record<string, string | undefined>>): CardChoice {
  return {
    mappingTable: env['GAUDI_MAPPING_TABLE'],
    visibleModules: env['HABANA_VISIBLE_MODULES'],
    visibleDevices: env['HABANA_VISIBLE_DEVICES'],
  };
}

/**
 * Checks the types of a selection that a program passes.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkCardChoice(choice: CardChoice): void {
  for (const name of ['mappingTable', 'visibleModules', 'visibleDevices'] as const) {
    const value: unknown = choice[name];
    if (value !== undefined && typeof value !== 'string') throw invalidParam(name, 'must be a string', value);
  }
}

/**
 * The selected cards by logical index, also removed ones.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE; ERR_INVALID_PARAM for an invalid list
 */
export function chosenCards(choice: CardChoice, node: Cards): MappedCard[] {
  const { mappingTable, visibleModules, visibleDevices } = choice;
  if (mappingTable !== undefined) return parseMappingTable(mappingTable, namedCards(node));
  const all = namedCards(node);
  const modules = listOf('HABANA_VISIBLE_MODULES', visibleModules);
  if (modules !== undefined) {
    return all.filter(({ entry }) => entry?.moduleId !== undefined && modules.has(entry.moduleId));
  }
  const indices = listOf('HABANA_VISIBLE_DEVICES', visibleDevices);
  return indices === undefined ? all : all.filter(({ index }) => indices.has(index));
}

/**
 * What the selection names and this machine does not have, as a sentence for users; undefined if there is nothing. A mapping table is refused for that.
 * @throws UcxError as {@link chosenCards}
 */
export function missingCards(choice: CardChoice, node: Cards): string | undefined {
  const all = namedCards(node);
  if (choice.mappingTable !== undefined || all.length === 0) return undefined;
  const modules = listOf('HABANA_VISIBLE_MODULES', choice.visibleModules);
  const name = modules === undefined ? 'HABANA_VISIBLE_DEVICES' : 'HABANA_VISIBLE_MODULES';
  const numbers = modules ?? listOf(name, choice.visibleDevices) ?? new Set();
  const known = modules === undefined ? all.map(({ index }) => index) : moduleIds(all);
  const missing = [...numbers].filter((number) => !known.includes(number));
  if (missing.length === 0) return undefined;
  const kind = modules === undefined ? 'indices' : 'modules';
  return `${name}=${[...numbers].join(',')} names cards that do not exist: ${missing.join(', ')}; the ${kind} of this machine are ${known.join(', ')}`;
}

function moduleIds(cards: readonly MappedCard[]): number[] {
  return cards.flatMap(({ entry }) => entry?.moduleId ?? []).sort((one, other) => one - other);
}

/** The numbers of a list; undefined if it selects all. */
function listOf(name: string, value: string | undefined): ReadonlySet<number> | undefined {
  const text = value?.replaceAll(' ', '');
  if (text === undefined || text === '' || text.toLowerCase() === 'all') return undefined;
  if (!NUMBERS.test(text)) throw invalidParam(name, 'must be numbers with commas between them, or all', value);
  return new Set(text.split(',').map(Number));
}
