/** The model of the page, and what the page computes from it. */

import { describe, expect, it } from 'vitest';
import type { InspectAnswer } from '../../assembly/inspect/inspect-client.ts';
import { statsNode } from '../../ucs/stats/stats-node.ts';
import { arenaStrips } from '../web/page/data/arena-strips.ts';
import { isDown, pairsOf, percentileUs } from '../web/page/data/figures.ts';
import { bytesText, millisecondsText } from '../web/page/data/format.ts';
import { cardRows, fragmentation, linkRows, processRows, programText } from '../web/page/data/tables.ts';
import { type WebModel, webLatencies, webProcesses } from './web-model.ts';

const COUNTERS = { arenas: 2, arena_bytes: 1000, blocks: 3, block_bytes: 600, largest_free_bytes: 100 };
const MAPS = [
  { byteLength: 750, blocks: 2, usedPercent: [100, 0, 50] },
  { byteLength: 250, blocks: 1, usedPercent: [1] },
];

function answer(pid: number, pending: number): InspectAnswer {
  const group = { protocol: 'tag/rndv', reason: 'peer', count: pending, byteLength: 10, oldestMs: 5 };
  const worker = {
    endpointCount: 4,
    requests: { pending, groups: pending > 0 ? [group, { ...group, oldestMs: 50 }] : [] },
  };
  const stats = statsNode('ucp_context', '', {}, [
    statsNode('uct_md', 'gaudi_copy', {}, [
      statsNode('gaudi_card', 'gaudi1', COUNTERS),
      statsNode('gaudi_card', 'gaudi2', { arenas: 0 }),
    ]),
  ]);
  const latencies = [{ buckets: [1, 2, 3] }, { buckets: [0, 0, 10] }];
  const snapshot = {
    command: `program ${pid}`,
    contexts: [{ workers: [worker, worker], stats, cards: [{ name: 'gaudi1', arenas: MAPS }] }],
    latencies,
  };
  return { pid, tid: pid, snapshot, failure: undefined } as unknown as InspectAnswer;
}

describe('the model', () => {
  it('has processes with the most pending requests first, their requests by age, and their arenas by card', () => {
    const silent: InspectAnswer = { pid: 3, tid: 3, snapshot: undefined, failure: 'no answer in 0.5 s' };
    const [first, second, third] = webProcesses([answer(1, 0), silent, answer(2, 7)]);
    expect(first).toMatchObject({ pid: 2, workers: 2, endpoints: 8, pending: 14, command: 'program 2' });
    expect(first!.groups.map(({ oldestMs }) => oldestMs)).toEqual([50, 50, 5, 5]);
    expect(first!.arenas).toEqual([
      { card: 1, arenas: 2, arenaBytes: 1000, blocks: 3, blockBytes: 600, largestFreeBytes: 100, maps: MAPS },
    ]);
    expect(second).toMatchObject({ pid: 1, pending: 0 });
    expect(third).toMatchObject({ pid: 3, failure: 'no answer in 0.5 s', workers: 0, arenas: [] });
  });

  it('adds the latencies of all processes', () => {
    expect(webLatencies([answer(1, 0), answer(2, 0)], [10, 20])).toEqual({ boundsNs: [10, 20], buckets: [2, 4, 26] });
    expect(webLatencies([], [10])).toEqual({ boundsNs: [10], buckets: [0, 0] });
  });
});

describe('percentiles', () => {
  const at = (buckets: readonly number[]) => ({ boundsNs: [1000, 2000, 5000], buckets });

  it('are of the operations between two readings', () => {
    expect(percentileUs(at([100, 0, 0, 0]), at([100, 99, 1, 0]), 50)).toBe(2);
    expect(percentileUs(at([100, 0, 0, 0]), at([100, 98, 2, 0]), 99)).toBe(5);
    expect(percentileUs(at([0, 0, 0, 0]), at([0, 0, 0, 1]), 50)).toBe(5);
  });

  it('are nothing without operations, without an earlier reading, and when processes have ended', () => {
    expect(percentileUs(at([1, 1, 1, 1]), at([1, 1, 1, 1]), 50)).toBeNull();
    expect(percentileUs(undefined, at([1, 1, 1, 1]), 50)).toBeNull();
    expect(percentileUs(at([9, 9, 9, 9]), at([1, 1, 1, 1]), 50)).toBeNull();
  });
});

describe('links', () => {
  it('are pairs of both directions', () => {
    const link = (from: number, to: number, up: number, bytesPerSecond?: number) => ({
      from,
      to,
      up,
      total: 3,
      bytesPerSecond,
    });
    const [pair, ...rest] = pairsOf([link(0, 1, 3, 10), link(1, 0, 0, 5)]);
    expect(rest).toEqual([]);
    expect(pair).toEqual({ a: 0, b: 1, up: 0, total: 3, bytesPerSecond: 15 });
    expect(isDown(pair!)).toBe(true);
    expect(pairsOf([link(0, 2, 2, undefined)])).toEqual([{ a: 0, b: 2, up: 2, total: 3, bytesPerSecond: 0 }]);
  });
});

describe('tables', () => {
  const card = {
    index: 1,
    minor: 1,
    busId: '0000:1a:00.0',
    status: 'operational',
    pid: 2,
    command: 'program 2',
    hbmUsedBytes: 2 ** 20,
    hbmBytes: 2 ** 30,
    busyPercent: 12.4,
    hostToDevice: 2e9,
    deviceToHost: 0,
    faults: ['page fault'],
  };
  const model = {
    top: { cards: [card], links: [{ from: 1, to: 1, up: 0, total: 3, bytesPerSecond: 0 }] },
    processes: webProcesses([answer(2, 7)]),
  } as unknown as WebModel;

  it('show cards with the arenas of all processes', () => {
    expect(cardRows(model)[1]!.map(({ text }) => text)).toEqual([
      'card 1',
      'accel1',
      '0000:1a:00.0',
      'operational',
      '2',
      '1.0 MiB',
      '1.0 GiB',
      '2 of 1000 B',
      '3',
      '600 B',
      '75 %',
      '12 %',
      '2.00',
      '0.00',
      'page fault',
    ]);
    expect(
      fragmentation({ card: 0, arenas: 1, arenaBytes: 10, blocks: 1, blockBytes: 10, largestFreeBytes: 0, maps: [] }),
    ).toBe(0);
  });

  it('draw arenas as strips, and tell them in words', () => {
    const {
      strips: [strip, ...rest],
      ticks,
    } = arenaStrips(model);
    expect(ticks).toEqual(['0 B', '500 B', '1000 B']);
    expect(rest).toEqual([]);
    expect(strip).toEqual({
      label: 'card 1',
      size: '600 B of 1000 B',
      used: 'M0 24v-24h250v24zM500 24v-12h250v12zM750 24v-0.24h250v0.24z',
      borders: 'M0 0h750v24h-750zM750 0h250v24h-250z',
      text: 'card 1: 2 arenas with 1000 B in total, 3 blocks of 600 B, largest free range 100 B',
    });
    const {
      strips: [many],
    } = arenaStrips({
      ...model,
      processes: [{ ...model.processes[0]!, arenas: [{ ...model.processes[0]!.arenas[0]!, arenas: 200 }] }],
    });
    expect(many!.text).toContain('200 arenas with 1000 B in total, 2 of them drawn, ');
  });

  it('draw arenas of all cards on one scale, and cards without any too', () => {
    const other = { ...card, index: 2, minor: 2, busId: '0000:33:00.0' };
    const third = { ...card, index: 3, minor: 3, busId: '0000:34:00.0' };
    const half = { ...model.processes[0]!.arenas[0]!, card: 2 };
    const halves = { ...half, maps: [{ byteLength: 500, blocks: 1, usedPercent: [100] }] };
    const { strips, ticks } = arenaStrips({
      ...model,
      top: { ...model.top, cards: [card, other, third] },
      processes: [{ ...model.processes[0]!, arenas: [...model.processes[0]!.arenas, halves] }],
    } as unknown as WebModel);
    expect(strips.map(({ label, size }) => [label, size])).toEqual([
      ['card 1', '600 B of 1000 B'],
      ['card 2', '600 B of 1000 B'],
      ['card 3', 'no arenas'],
    ]);
    expect(strips[1]!.borders).toBe('M0 0h500v24h-500z');
    expect(ticks.at(-1)).toBe('1000 B');
    expect(arenaStrips({ ...model, processes: [] }).ticks).toEqual([]);
  });

  it('cut the folders of a command, not its end', () => {
    expect(programText('/usr/bin/node /srv/train.js --rank 3')).toBe('node train.js --rank 3');
    expect(programText('python3 -m train')).toBe('python3 -m train');
    expect(programText('')).toBe('');
  });

  it('show how many links of a pair are up where some are down', () => {
    const link = { from: 1, to: 2, up: 2, total: 3, bytesPerSecond: 0 };
    const cards = [card, { ...card, index: 2, minor: 2 }];
    expect(linkRows({ ...model.top, cards, links: [link] } as never)[1]![2]).toMatchObject({ text: '0.00 (2/3)' });
  });

  it('name links that are down in words', () => {
    expect(linkRows(model.top)[1]!.map(({ text, kind }) => [text, kind])).toEqual([
      ['card 1', undefined],
      ['down', 'down'],
    ]);
  });

  it('show what processes wait for, or why they do not answer', () => {
    const rows = processRows([
      ...model.processes,
      ...webProcesses([{ pid: 9, tid: 9, snapshot: undefined, failure: 'stopped' }]),
    ]);
    expect(rows[1]!.map(({ text }) => text).slice(0, 5)).toEqual(['2', '2', '8', '14', '50.0 ms']);
    expect(rows[1]![5]!.text).toContain('7 tag/rndv: peer');
    expect(rows[2]![5]).toMatchObject({ text: 'stopped', kind: 'text down' });
  });

  it('print numbers with units', () => {
    expect([0, 1023, 1536, 2 ** 40, 2 ** 51].map(bytesText)).toEqual([
      '0 B',
      '1023 B',
      '1.5 KiB',
      '1.0 TiB',
      '2048.0 TiB',
    ]);
    expect([0.5, 12.34, 2500].map(millisecondsText)).toEqual(['500 us', '12.3 ms', '2.5 s']);
  });
});
