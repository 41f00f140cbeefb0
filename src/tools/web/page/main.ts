/** The page: receives models and shows them. */

import 'uplot/dist/uPlot.min.css';
import type { WebLatencies, WebModel } from '../../model/web-model.ts';
import { LineChart } from './charts.ts';
import { Controls } from './controls.ts';
import { arenaStrips } from './data/arena-strips.ts';
import { percentileUs } from './data/figures.ts';
import { cardRows, linkRows, processRows } from './data/tables.ts';
import { byId, StripList, setAttribute, setText, showTable } from './dom.ts';
import { NodePicture } from './node-picture.ts';

const token = new URLSearchParams(location.search).get('token') ?? '';
const controls = new Controls(token);
const picture = new NodePicture(
  byId('picture'),
  (minor) => controls.selectCard(minor),
  (pair) => controls.toggleLink(pair),
);
const strips = new StripList(byId('arena-strips'));
const rates = new LineChart(byId('rate-chart'), 'GB/s', [
  { label: 'host to cards', color: '--busy' },
  { label: 'cards to host', color: '--second', dash: [8, 4] },
  { label: 'card to card', color: '--third', dash: [2, 3] },
]);
const percentiles = new LineChart(
  byId('latency-chart'),
  'us',
  [
    { label: 'p50', color: '--busy' },
    { label: 'p99', color: '--second', dash: [8, 4] },
  ],
  true,
);
let lastLatencies: WebLatencies | undefined;
let next: WebModel | undefined;

function show(model: WebModel): void {
  const { top, processes, processCount, latencies } = model;
  const { cards, links } = top;
  const kind = top.emulated
    ? `emulated${top.serverPid === undefined ? '' : `, server ${top.serverPid}`}`
    : 'real cards';
  setText(byId('summary'), `${cards.length} cards (${kind}); ${processCount} processes`);
  picture.show(top, model.canInject);
  controls.show(model);
  showTable(byId('card-table'), 'HBM of each card, with the arenas of programs', cardRows(model));
  strips.show(arenaStrips(model));
  showTable(byId('link-table'), 'Rows send, columns receive', linkRows(top));
  const hidden = processCount - processes.length;
  showTable(
    byId('process-table'),
    hidden === 0
      ? 'Programs of this user with a context'
      : `The ${processes.length} with the most pending requests; ${hidden} more`,
    processRows(processes),
  );
  const seconds = Date.now() / 1000;
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0) / 1e9;
  rates.add(seconds, [
    sum(cards.map(({ hostToDevice = 0 }) => hostToDevice)),
    sum(cards.map(({ deviceToHost = 0 }) => deviceToHost)),
    sum(links.map(({ bytesPerSecond = 0 }) => bytesPerSecond)),
  ]);
  percentiles.add(seconds, [percentileUs(lastLatencies, latencies, 50), percentileUs(lastLatencies, latencies, 99)]);
  lastLatencies = latencies;
  setAttribute(document.body, 'data-shown', String(Number(document.body.dataset['shown'] ?? 0) + 1));
}

function setConnection(state: string, text: string): void {
  setAttribute(byId('connection'), 'data-state', state);
  setText(byId('connection'), text);
}

const events = new EventSource(`/events?token=${encodeURIComponent(token)}`);
events.addEventListener('open', () => setConnection('live', 'live'));
events.addEventListener('error', () => setConnection('lost', 'not connected: gaudi-ucx web may have ended'));
events.addEventListener('message', ({ data }: MessageEvent<string>) => {
  const isScheduled = next !== undefined;
  next = JSON.parse(data);
  // At most one update per frame; a hidden page draws nothing.
  if (isScheduled) return;
  requestAnimationFrame(() => {
    const model = next;
    next = undefined;
    if (model !== undefined) show(model);
  });
});
