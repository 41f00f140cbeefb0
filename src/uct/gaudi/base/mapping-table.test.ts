import { describe, expect, it } from 'vitest';
import { namedCards } from '../../../hlthunk/index.ts';
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { LOGICAL_INDEX_MAX, parseMappingTable } from './mapping-table.ts';

function card(minor: number, busId: string, moduleId: number | undefined) {
  return { minor, busId, moduleId, numaNode: 0, path: `/dev/accel/accel${minor}` };
}

const CARDS = [card(0, '0000:b3:00.0', 6), card(1, '0000:19:00.0', 3), card(2, '0001:19:00.0', undefined)];

function parse(table: unknown): string[] {
  const json = typeof table === 'string' ? table : JSON.stringify(table);
  return parseMappingTable(json, namedCards({ cards: () => CARDS })).map(({ index, minor }) => `${index}:${minor}`);
}

function refusal(table: unknown): UcxError {
  try {
    parse(table);
  } catch (error) {
    if (isUcxError(error)) return error;
    throw error;
  }
  throw new Error('the table was accepted');
}

describe('parseMappingTable', () => {
  it('accepts the output of hl-smi in any order, and sorts it by index', () => {
    expect(
      parse([
        { index: 1, module_id: 6, bus_id: '0000:b3:00.0' },
        { index: 0, module_id: 3, bus_id: '0000:19:00.0' },
      ]),
    ).toEqual(['0:1', '1:0']);
  });

  it('accepts a subset of the cards, with any indices', () => {
    expect(parse([{ index: 7, bus_id: '0000:b3:00.0' }])).toEqual(['7:0']);
    expect(parse([{ index: LOGICAL_INDEX_MAX, bus_id: '0000:b3:00.0' }])).toEqual([`${LOGICAL_INDEX_MAX}:0`]);
  });

  it('accepts integers as strings, short bus ids, capitals, white space and unknown fields', () => {
    expect(parse([{ index: '0', module_id: '6', bus_id: 'b3:00.0' }])).toEqual(['0:0']);
    expect(parse([{ index: 0, bus_id: 'B3:00.0' }])).toEqual(['0:0']);
    expect(parse(' \n[ {"index" : 0, "bus_id" : "0000:B3:00.0", "name": "HL-225"} ]\n')).toEqual(['0:0']);
  });

  it('accepts any module id for a card whose driver does not report it', () => {
    expect(parse([{ index: 0, module_id: 5, bus_id: '0001:19:00.0' }])).toEqual(['0:2']);
  });

  const good = { index: 0, module_id: 6, bus_id: '0000:b3:00.0' };
  const other = { index: 1, module_id: 3, bus_id: '0000:19:00.0' };
  it.each<readonly [string, unknown, RegExp]>([
    ['nothing', '', /JSON/],
    ['bad JSON', '[{"index":0,]', /JSON/],
    ['an object', good, /array/],
    ['a string', '"0000:b3:00.0"', /array/],
    ['null', 'null', /array/],
    ['an empty array', [], /at least one/],
    ['an entry that is a number', [good, 5], /entry 1/],
    ['an entry that is null', [null], /entry 0/],
    ['an entry that is an array', [[0, 6, 'b3:00.0']], /entry 0/],
    ['an unknown bus id', [good, { ...other, bus_id: '0000:ff:00.0' }], /entry 1 .*0000:ff:00\.0.*0000:19:00\.0/],
    ['no bus id', [{ index: 0 }], /entry 0 .*bus_id/],
    ['a bus id that is a number', [{ index: 0, bus_id: 33 }], /entry 0 .*bus_id/],
    ['no index', [other, { bus_id: '0000:b3:00.0' }], /entry 1 .*index/],
    ['a duplicate index', [good, { ...other, index: 0 }], /entry 1 .*index 0.*entry 0/],
    ['a duplicate index as a string', [good, { ...other, index: '0' }], /entry 1 .*index 0.*entry 0/],
    ['a duplicate card', [good, { index: 1, bus_id: 'b3:00.0' }], /entry 1 .*0000:b3:00\.0.*entry 0/],
    ['a wrong module id', [{ ...good, module_id: 2 }], /entry 0 .*module_id 2.*6/],
    ['a negative index', [{ ...good, index: -1 }], /entry 0 .*index/],
    ['a fraction', [{ ...good, index: 0.5 }], /entry 0 .*index/],
    ['a word for an index', [{ ...good, index: 'zero' }], /entry 0 .*index/],
    ['an empty index', [{ ...good, index: '' }], /entry 0 .*index/],
    ['a hexadecimal index', [{ ...good, index: '0x1' }], /entry 0 .*index/],
    ['an index above the bound', [{ ...good, index: LOGICAL_INDEX_MAX + 1 }], /entry 0 .*256/],
    ['a module id that is null', [{ ...good, module_id: null }], /entry 0 .*module_id/],
    ['a module id that is an object', [{ ...good, module_id: {} }], /entry 0 .*module_id/],
  ])('rejects %s and names the entry', (_what, table, message) => {
    const error = refusal(table);
    expect(error).toMatchObject({ code: 'ERR_GAUDI_MAPPING_TABLE', status: Status.INVALID_PARAM });
    expect(error.message).toContain('GAUDI_MAPPING_TABLE');
    expect(error.message).toMatch(message);
  });

  it('lists the cards of the machine in its error, also if there are none', () => {
    expect(() => parseMappingTable(JSON.stringify([good]), [])).toThrow(/none/);
  });
});
