/** Columns and lines of `gaudi-ucx top`: each value under its own title, in the picture of two cards whose values all differ. */

import { describe, expect, it } from 'vitest';
import { SCRIPTED_BUSES, scriptedNode } from '../../../test/fixtures/driver/scripted-node.ts';
import { TopSampler } from '../model/sample.ts';
import { type TopCard, type TopModel, topModel } from '../model/top-model.ts';
import { cardRow, errorsOf, fittingColumns, rateText, titleRow } from './columns.ts';
import { PLAIN_VIEW, renderTop } from './render.ts';

/** The model of the scripted cards, with other values. */
function modelWith(changes: (card: TopCard) => Partial<TopCard> = () => ({})): TopModel {
  const sampler = new TopSampler(scriptedNode(), () => 1e9);
  const model = topModel(undefined, sampler.sample());
  sampler.close();
  return { ...model, seconds: 1, cards: model.cards.map((card) => ({ ...card, ...changes(card) })) };
}

/** The cells of a card by their titles. */
function cells(card: TopCard): Readonly<Record<string, string>> {
  return Object.fromEntries(
    fittingColumns(400).map((column) => [titleRow([column]).trim(), cardRow([column], card).trim()]),
  );
}

describe('the row of a card', () => {
  it('has each value under its own title', () => {
    const card = { ...modelWith().cards[0]!, pid: 4711, command: 'node a.js', deviceToDevice: 1_234_567 };
    expect(cells(card)).toEqual({
      card: '0',
      device: 'accel4',
      mod: '2',
      'bus id': SCRIPTED_BUSES[0],
      status: 'operational',
      'HBM used GiB': '35.3 of 95.3',
      busy: '37%',
      MHz: '1411',
      C: '46',
      W: '346',
      'h2d B/s': '4.3M',
      'd2h B/s': '8.8M',
      'd2d B/s': '1.2M',
      err: '5432…',
      pid: '4711',
      firmware: 'cpucp-0',
      process: 'node a.js',
    });
  });

  it('has a dash for each value that is not known', () => {
    const unknown = {
      index: undefined,
      minor: undefined,
      moduleId: undefined,
      hbmBytes: 0,
      clockMhz: 0,
      temperature: undefined,
      power: undefined,
      hostToDevice: undefined,
      deviceToHost: undefined,
      pid: undefined,
      command: undefined,
      firmware: undefined,
    };
    const rest = { 'bus id': SCRIPTED_BUSES[0], status: 'operational', busy: '37%', err: expect.any(String) as string };
    const card = { ...modelWith().cards[0]!, ...unknown, inUse: false };
    const found = cells(card);
    expect(found).toMatchObject(rest);
    const dashes = Object.entries(found).filter(([title]) => !Object.hasOwn(rest, title));
    expect(new Set(dashes.map(([, text]) => text))).toEqual(new Set(['-']));
    expect(cells({ ...card, inUse: true })['pid']).toBe('in use');
  });

  it('has more columns on a wider screen, and each only where it fits', () => {
    const titles = (width: number): string[] => fittingColumns(width).map((column) => titleRow([column]).trim());
    expect(titles(4)).toEqual(['card']);
    expect(titles(16)).toEqual(['card', 'busy', 'err']);
    expect(titles(17)).toEqual(['card', 'status']);
    for (const width of [40, 80, 100, 150, 250]) {
      expect(titleRow(fittingColumns(width)).length).toBeLessThanOrEqual(width);
    }
  });
});

describe('errors', () => {
  it('are resets, refused submissions, faults, and a state that is not operational', () => {
    const card = { ...modelWith().cards[0]!, hardResets: 1, computeResets: 900, refusedSubmissions: 20, faults: [] };
    expect(errorsOf(card)).toBe(21);
    expect(errorsOf({ ...card, faults: ['time-out', 'page fault'] })).toBe(23);
    expect(errorsOf({ ...card, status: 'in reset' })).toBe(22);
  });

  it('are named in the last line', () => {
    const model = modelWith(({ index }) =>
      index === 0
        ? { hardResets: 0, refusedSubmissions: 0, faults: [] }
        : { status: 'in reset', hardResets: 1, refusedSubmissions: 3, faults: ['time-out'] },
    );
    const last = (of: TopModel): string | undefined => renderTop(of, '', { columns: 200, rows: 40 }, PLAIN_VIEW).at(-1);
    expect(last(model)).toBe('errors: card 1: in reset, 1 hard reset, 3 refused, time-out');
    expect(last({ ...model, cards: model.cards.slice(0, 1) })).toBe('errors: none');
  });
});

describe('a rate', () => {
  it.each([
    [undefined, '-'],
    [0, '0'],
    [999, '999'],
    [999.4, '999'],
    [999.5, '1.0K'],
    [99_949, '99.9K'],
    [99_950, '100K'],
    [999_499, '999K'],
    [999_500, '1.0M'],
    [4_321_000, '4.3M'],
    [25e9, '25.0G'],
    [1.2e15, '1200T'],
  ])('of %s is %s', (bytes, text) => {
    expect(rateText(bytes)).toBe(text);
  });
});

describe('the picture', () => {
  it('has the links by sender and receiver, and the busy engines of each card', () => {
    const model = modelWith(({ index }) => (index === 0 ? {} : { busyEngines: [] }));
    const links = model.links.map((link) => ({ ...link, bytesPerSecond: link.from === 4 ? 25e9 : 0 }));
    const lines = renderTop({ ...model, links }, 'every 1 s', { columns: 250, rows: 40 });
    const at = lines.findIndex((line) => line.startsWith('up of 2'));
    expect(lines.slice(at, at + 3).map((line) => line.split(/\s{2,}/))).toEqual([
      ['up of 2, B/s', 'to 0', 'to 1'],
      ['from 0', '- 2 25.0G'],
      ['from 1', '1!', '-'],
    ]);
    expect(lines).toContain('engines busy: card 0: 3,69,135,255');
    expect(lines[0]).toMatch(/^gaudi-ucx top: 2 cards \(habanalabs driver 1\.22\.3\) +every 1 s$/);
  });

  it.each([
    ['card', [0, 1, 2, 3]],
    ['HBM', [1, 0, 2, 3]],
    ['busy', [2, 0, 1, 3]],
    ['traffic', [3, 0, 1, 2]],
    ['errors', [0, 1, 2, 3]],
  ] as const)('sorted by %s has the cards %o', (sort, order) => {
    const [card] = modelWith().cards;
    const quiet = {
      ...card!,
      hbmUsedBytes: 1,
      busyPercent: 1,
      hostToDevice: 1,
      deviceToHost: undefined,
      deviceToDevice: undefined,
      hardResets: 0,
      refusedSubmissions: 0,
      faults: [],
    };
    const cards: TopCard[] = [
      { ...quiet, index: 0, hardResets: 1 },
      { ...quiet, index: 1, hbmUsedBytes: 2 },
      { ...quiet, index: 2, busyPercent: 2 },
      { ...quiet, index: 3, hostToDevice: 0, deviceToHost: 1, deviceToDevice: 1 },
    ];
    const lines = renderTop({ ...modelWith(), cards }, '', { columns: 80, rows: 30 }, { ...PLAIN_VIEW, sort });
    expect(lines.slice(3, 7).map((line) => Number(line.trim().split(' ')[0]))).toEqual(order);
  });
});
