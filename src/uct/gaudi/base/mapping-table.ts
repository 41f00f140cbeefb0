/**
 * GAUDI_MAPPING_TABLE: the card of each logical index. The value is JSON, converted from the output of `hl-smi -Q index,module_id,bus_id`:
 * `[{"index":0,"module_id":2,"bus_id":"0000:33:00.0"}, ...]`.
 */

import type { NamedCard } from '../../../hlthunk/index.ts';
import { asError, isUcxError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

/** A card and its logical index. */
export interface MappedCard extends NamedCard {
  readonly index: number;
}

/** Logical indices are at most this number, because hl-thunk checks this number of minors. */
export const LOGICAL_INDEX_MAX = 255;

/**
 * Reads the table.
 * @param json value of the variable
 * @param cards the cards of this machine, including removed ones
 * @returns the mapped cards by index
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE (INVALID_PARAM) with the entry: invalid JSON, a missing or wrong field, an unknown bus id, a module id of another
 *   card, an index or a card that occurs twice
 */
export function parseMappingTable(json: string, cards: readonly NamedCard[]): MappedCard[] {
  const entries = parseArray(json);
  const mapped = entries.map((entry, position) => mapEntry(entry, position, cards));
  for (const [position, { index, busId }] of mapped.entries()) {
    const sameIndex = mapped.findIndex((other) => other.index === index);
    if (sameIndex !== position) throw tableError(position, `index ${index} is already used by entry ${sameIndex}`);
    const sameCard = mapped.findIndex((other) => other.busId === busId);
    if (sameCard !== position) throw tableError(position, `bus_id ${busId} is already used by entry ${sameCard}`);
  }
  return mapped.sort((left, right) => left.index - right.index);
}

/** The cards in the table, for an emulated node that is configured from it; empty if the table is invalid, which {@link parseMappingTable} reports. */
export function cardsInTable(json: string): { readonly busId: string; readonly moduleId: number | undefined }[] {
  try {
    return parseArray(json).map((entry, position) => {
      const { busId, moduleId } = fieldsOf(entry, position);
      return { busId, moduleId };
    });
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return [];
  }
}

function parseArray(json: string): readonly unknown[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(json);
  } catch (cause) {
    throw tableError(undefined, `is not JSON: ${asError(cause).message}`, cause);
  }
  if (!Array.isArray(parsed)) throw tableError(undefined, 'must be an array of {"index", "module_id", "bus_id"}');
  if (parsed.length === 0) throw tableError(undefined, 'must have at least one entry');
  return parsed;
}

/** The fields of an entry, checked independently of other entries. */
function fieldsOf(
  entry: unknown,
  position: number,
): { readonly index: number; readonly busId: string; readonly moduleId: number | undefined } {
  if (typeof entry !== 'object' || entry === null) throw tableError(position, 'must be an object');
  const fields: Readonly<Record<string, unknown>> = { ...entry };
  const index = integerField(fields, 'index', position);
  if (index === undefined) throw tableError(position, 'has no index');
  if (index > LOGICAL_INDEX_MAX) throw tableError(position, `index ${index} is above ${LOGICAL_INDEX_MAX}`);
  const moduleId = integerField(fields, 'module_id', position);
  const busId = fields['bus_id'];
  if (typeof busId !== 'string') throw tableError(position, 'has no bus_id, a string such as "0000:33:00.0"');
  return { index, busId: fullBusId(busId), moduleId };
}

function mapEntry(entry: unknown, position: number, cards: readonly NamedCard[]): MappedCard {
  const { index, busId, moduleId } = fieldsOf(entry, position);
  const card = cards.find((candidate) => candidate.busId === busId);
  if (card === undefined) {
    const known = cards.map((candidate) => candidate.busId).join(', ') || 'none';
    throw tableError(position, `bus_id ${busId} is not a card of this machine (it has: ${known})`);
  }
  const known = card.entry?.moduleId;
  if (moduleId !== undefined && known !== undefined && known !== moduleId) {
    throw tableError(position, `module_id ${moduleId} does not match ${busId}, whose module id is ${known}`);
  }
  return { ...card, index };
}

/** An integer, which may be a string, as in the output of some scripts; undefined if the field is missing. */
function integerField(fields: Readonly<Record<string, unknown>>, name: string, position: number): number | undefined {
  const value = fields[name];
  if (value === undefined) return undefined;
  const number = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isInteger(number) && number >= 0) return number;
  throw tableError(position, `${name} must be an integer of 0 or more, got ${JSON.stringify(value)}`);
}

/** Completes `33:00.0` to `0000:33:00.0`, as hl-thunk does. */
function fullBusId(busId: string): string {
  const lower = busId.toLowerCase();
  return lower.length === 7 ? `0000:${lower}` : lower;
}

function tableError(entry: number | undefined, rule: string, cause?: unknown): UcxError {
  const subject = entry === undefined ? 'GAUDI_MAPPING_TABLE' : `GAUDI_MAPPING_TABLE entry ${entry}`;
  return new UcxError({
    code: 'ERR_GAUDI_MAPPING_TABLE',
    status: Status.INVALID_PARAM,
    message: `${subject} ${rule}`,
    details: { entry, rule },
    cause,
  });
}
