import { describe, expect, it } from 'vitest';
import type { CardEntry } from '../../../hlthunk/index.ts';
import { type CardChoice, cardChoiceOf, checkCardChoice, chosenCards } from './cards.ts';

/** Three cards with descending module ids. */
const CARDS: readonly CardEntry[] = [0, 1, 2].map((minor) => ({
  minor,
  busId: `0000:${minor}9:00.0`,
  moduleId: 7 - minor,
  numaNode: -1,
  path: `/dev/accel/accel${minor}`,
}));

const indices = (choice: Partial<CardChoice>): number[] =>
  chosenCards({ mappingTable: undefined, ...choice }, { cards: () => CARDS }).map(({ index }) => index);

describe('the cards of a program', () => {
  it.each([
    [{}, [0, 1, 2]],
    [{ visibleDevices: 'all' }, [0, 1, 2]],
    [{ visibleDevices: '' }, [0, 1, 2]],
    [{ visibleDevices: '2, 0' }, [0, 2]],
    [{ visibleDevices: '9' }, []],
    [{ visibleModules: '7,6' }, [0, 1]],
    [{ visibleModules: '5', visibleDevices: '0' }, [2]],
    [{ visibleModules: 'all', visibleDevices: '0' }, [0]],
    [{ mappingTable: '[{"index":4,"bus_id":"0000:19:00.0"}]', visibleModules: '5' }, [4]],
  ])('by %o are %o', (choice, expected) => {
    expect(indices(choice)).toEqual(expected);
  });

  it.each(['0-3', 'none', '1,,2', '-1', '0x1'])('cannot be chosen by %j', (text) => {
    for (const [name, choice] of [
      ['HABANA_VISIBLE_DEVICES', { visibleDevices: text }],
      ['HABANA_VISIBLE_MODULES', { visibleModules: text }],
    ] as const) {
      expect(() => indices(choice)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument: name }) }),
      );
    }
  });

  it('are those of the environment', () => {
    expect(cardChoiceOf({ GAUDI_MAPPING_TABLE: '' }).mappingTable).toBeUndefined();
    expect(cardChoiceOf({ HABANA_VISIBLE_MODULES: '1', HABANA_VISIBLE_DEVICES: '2' })).toEqual({
      mappingTable: undefined,
      visibleModules: '1',
      visibleDevices: '2',
    });
    expect(() => checkCardChoice({ mappingTable: undefined, visibleModules: 3 as unknown as string })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
  });
});
