/** The tables, figures and texts of the page: every value under its own title, of two cards whose values all differ. */

import { describe, expect, it } from 'vitest';
import { SCRIPTED_BUSES, scriptedNode } from '../../../../../test/fixtures/driver/scripted-node.ts';
import { TopSampler } from '../../../model/sample.ts';
import { type TopModel, topModel } from '../../../model/top-model.ts';
import type { ArenaUse, WebModel, WebProcess } from '../../../model/web-model.ts';
import { arenaStrips } from './arena-strips.ts';
import { isDown, pairsOf, percentileUs } from './figures.ts';
import { bytesText, cardOfMinor, cardText, millisecondsText, rateText } from './format.ts';
import { cardRows, fragmentation, linkRows, processRows, programText } from './tables.ts';

const MIB = 2 ** 20;

function modelOfCards(): TopModel {
  const sampler = new TopSampler(scriptedNode(), () => 1e9);
  const model = topModel(undefined, sampler.sample());
  sampler.close();
  return model;
}

const USE: ArenaUse = {
  card: 0,
  arenas: 3,
  arenaBytes: 600 * MIB,
  blocks: 7,
  blockBytes: 200 * MIB,
  largestFreeBytes: 100 * MIB,
  maps: [],
};

const PROCESS: WebProcess = {
  pid: 4711,
  command: '/usr/bin/node /srv/train.js --rank 3',
  contexts: 2,
  workers: 5,
  endpoints: 11,
  pending: 13,
  groups: [
    { protocol: 'tag/rndv', reason: 'peer', count: 17, byteLength: 19, oldestMs: 1234 },
    { protocol: 'put/zcopy', reason: 'transport', count: 23, byteLength: 29, oldestMs: 0.031 },
  ],
  arenas: [
    USE,
    { ...USE, arenas: 1, blocks: 1, blockBytes: 50 * MIB, arenaBytes: 60 * MIB, largestFreeBytes: 10 * MIB },
  ],
  failure: undefined,
};

function webModel(changes: Partial<TopModel> = {}, processes: readonly WebProcess[] = [PROCESS]): WebModel {
  return { top: { ...modelOfCards(), ...changes }, processes } as unknown as WebModel;
}

/** The cells of a row by the titles of its table. */
function byTitle(rows: ReturnType<typeof cardRows>, row: number): Readonly<Record<string, string>> {
  const [head] = rows;
  return Object.fromEntries(head!.map(({ text }, index) => [text, rows[row]![index]!.text]));
}

describe('the table of cards', () => {
  it('has each value under its own title', () => {
    const rows = cardRows(webModel());
    expect(byTitle(rows, 1)).toEqual({
      card: 'card 0',
      device: 'accel4',
      'bus id': SCRIPTED_BUSES[0],
      status: 'operational',
      'process id': String(process.pid),
      'HBM used': '35.3 GiB',
      'HBM total': '95.3 GiB',
      arenas: '4 of 660.0 MiB',
      blocks: '8',
      'bytes in blocks': '250.0 MiB',
      'free bytes fragmented': '76 %',
      'engines busy': '37 %',
      'GB/s to card': '0.00',
      'GB/s from card': '0.01',
      faults: 'time-out, page fault, illegal access, undefined opcode',
    });
    expect(byTitle(rows, 2)).toMatchObject({
      card: 'card 1',
      device: 'accel2',
      'process id': '-',
      arenas: '-',
      blocks: '-',
      'bytes in blocks': '-',
      'free bytes fragmented': '-',
      'engines busy': '38 %',
    });
  });

  it('marks cards that are not operational, busy cards and faults', () => {
    const { cards } = modelOfCards();
    const kinds = (card: Partial<TopModel['cards'][number]>) =>
      cardRows(webModel({ cards: [{ ...cards[0]!, ...card }] }))[1]!.map(({ kind }) => kind ?? '');
    expect(kinds({ faults: [], busyPercent: 0 }).join('')).toBe('text');
    const marked = kinds({ status: 'in reset', busyPercent: 0.1 });
    expect([marked[3], marked[11], marked[14]]).toEqual(['down', 'busy', 'down text']);
  });

  it('counts as fragmented the free bytes beside the largest free range', () => {
    expect(fragmentation({ ...USE, arenaBytes: 1000, blockBytes: 200, largestFreeBytes: 600 })).toBe(25);
    expect(fragmentation({ ...USE, arenaBytes: 1000, blockBytes: 200, largestFreeBytes: 900 })).toBe(0);
    expect(fragmentation({ ...USE, arenaBytes: 1000, blockBytes: 1000, largestFreeBytes: 0 })).toBe(0);
  });
});

describe('the matrix of links', () => {
  it('has the rate from the card of the row to that of the column', () => {
    const { links } = modelOfCards();
    const rates = links.map((link) => ({ ...link, up: 2, bytesPerSecond: link.from === 4 ? 12.34e9 : 56.78e9 }));
    const rows = linkRows({ ...modelOfCards(), links: rates });
    expect(rows.map((row) => row.map(({ text }) => text))).toEqual([
      ['from \\ to', 'card 0', 'card 1'],
      ['card 0', '·', '12.34'],
      ['card 1', '56.78', '·'],
    ]);
    expect(rows[1]![2]).toMatchObject({ kind: 'busy', title: 'card 0 to card 1: 2 of 2 links up' });
  });

  it('tells how many links are up where some are down, that all are down, and that a rate is not known', () => {
    const { cards, links } = modelOfCards();
    const cell = (up: number, bytesPerSecond: number | undefined) =>
      linkRows({ ...modelOfCards(), cards, links: [{ ...links[0]!, up, bytesPerSecond }] })[1]![2];
    expect(cell(1, 3e9)).toMatchObject({ text: '3.00 (1/2)', kind: 'down' });
    expect(cell(0, 3e9)).toMatchObject({ text: 'down', kind: 'down', title: 'card 0 to card 1: 0 of 2 links up' });
    expect(cell(2, undefined)).toMatchObject({ text: '?', kind: '' });
    expect(cell(2, 0)).toMatchObject({ text: '0.00', kind: '' });
    expect(linkRows({ ...modelOfCards(), links: [] })[1]![2]).toEqual({ text: '-' });
  });

  it('has pairs with the links that are up in both directions, and the rates of both', () => {
    const links = modelOfCards().links.map((link) => ({ ...link, bytesPerSecond: link.from }));
    expect(pairsOf(links)).toEqual([{ a: 2, b: 4, up: 1, total: 2, bytesPerSecond: 6 }]);
    expect([isDown({ up: 0, total: 2 }), isDown({ up: 1, total: 2 }), isDown({ up: 0, total: 0 })]).toEqual([
      true,
      false,
      false,
    ]);
  });
});

describe('the table of processes', () => {
  it('has each value under its own title', () => {
    const rows = processRows([PROCESS, { ...PROCESS, pending: 0, groups: [], failure: 'no answer' }]);
    expect(byTitle(rows, 1)).toEqual({
      'process id': '4711',
      workers: '5',
      endpoints: '11',
      'pending requests': '13',
      'oldest request': '1.2 s',
      'waits for': '17 tag/rndv: peer; 23 put/zcopy: transport',
      command: 'node train.js --rank 3',
    });
    expect(byTitle(rows, 2)).toMatchObject({
      'pending requests': '0',
      'oldest request': '-',
      'waits for': 'no answer',
    });
    expect([1, 2].map((row) => [rows[row]![3]!.kind, rows[row]![5]!.kind])).toEqual([
      ['busy', 'text'],
      ['', 'text down'],
    ]);
    expect(programText('node a.js /data/x')).toBe('node a.js /data/x');
  });
});

describe('arenas', () => {
  it('are drawn on one scale, as high as their cells are used', () => {
    const maps = [
      { byteLength: 300, blocks: 1, usedPercent: [50, 0, 100] },
      { byteLength: 100, blocks: 1, usedPercent: [25] },
    ];
    const uses = [
      { ...USE, maps },
      { ...USE, card: 1, maps: [{ byteLength: 200, blocks: 1, usedPercent: [100] }] },
    ];
    const { strips, ticks } = arenaStrips(webModel({}, [{ ...PROCESS, arenas: uses }]));
    expect(ticks).toEqual(['0 B', '200 B', '400 B']);
    expect(strips.map(({ used, borders }) => [used, borders])).toEqual([
      ['M0 24v-12h250v12zM500 24v-24h250v24zM750 24v-6h250v6z', 'M0 0h750v24h-750zM750 0h250v24h-250z'],
      ['M0 24v-24h500v24z', 'M0 0h500v24h-500z'],
    ]);
    expect(strips[0]).toMatchObject({
      size: '200.0 MiB of 600.0 MiB',
      text: 'card 0: 3 arenas with 600.0 MiB in total, 2 of them drawn, 7 blocks of 200.0 MiB, largest free range 100.0 MiB',
    });
  });

  it('of several processes are added, but for the largest free range', () => {
    const [strip, none] = arenaStrips(webModel()).strips;
    expect(strip!.text).toBe(
      'card 0: 4 arenas with 660.0 MiB in total, 0 of them drawn, 8 blocks of 250.0 MiB, largest free range 100.0 MiB',
    );
    expect(none).toMatchObject({ label: 'card 1', size: 'no arenas', text: 'card 1: no arenas' });
  });
});

describe('a percentile', () => {
  const at = (buckets: readonly number[]) => ({ boundsNs: [1000, 2000, 5000], buckets });
  const none = at([0, 0, 0, 0]);

  it.each([
    [[2, 2, 0, 0], 50, 1],
    [[1, 3, 0, 0], 50, 2],
    [[1, 98, 1, 0], 99, 2],
    [[1, 97, 2, 0], 99, 5],
    [[0, 0, 0, 5], 1, 5],
    [[5, 0, 0, 0], 100, 1],
  ])('of %o at %i is %i us', (buckets, rank, us) => {
    expect(percentileUs(none, at(buckets), rank)).toBe(us);
  });

  it('counts nothing of a bucket that has decreased', () => {
    expect(percentileUs(at([9, 0, 0, 0]), at([1, 1, 0, 0]), 50)).toBe(2);
  });
});

describe('texts', () => {
  it('have their units', () => {
    expect([1023, 1024, 1024 ** 2, 1.5 * 1024 ** 3].map(bytesText)).toEqual([
      '1023 B',
      '1.0 KiB',
      '1.0 MiB',
      '1.5 GiB',
    ]);
    expect([undefined, 0, 1.234e9, 5e6].map(rateText)).toEqual(['-', '0.00', '1.23', '0.01']);
    expect([0.0314, 0.999, 1, 999.94, 1000].map(millisecondsText)).toEqual([
      '31 us',
      '999 us',
      '1.0 ms',
      '999.9 ms',
      '1.0 s',
    ]);
  });

  it('name cards by their indices, or by what else is known', () => {
    const { cards } = modelOfCards();
    expect(cards.map(cardText)).toEqual(['card 0', 'card 1']);
    expect(cardText({ index: undefined, busId: '0000:19:00.0' })).toBe('0000:19:00.0');
    expect([4, 2, 7].map((minor) => cardOfMinor(cards, minor))).toEqual(['card 0', 'card 1', 'accel7']);
  });
});
