/** The page of a comparison with C UCX: the table of targets, that of emulated cards, and curves of both tools over all sizes. Pure text. */

import { curveSample, lineChart } from '../../src/tools/perftest/chart.ts';
import { factList, htmlDocument, printBytes, printNumber } from '../../src/tools/perftest/page.ts';
import type { Result } from '../timing.ts';
import { ALL_TARGETS, isMet } from './cases.ts';
import type { Comparison } from './measure.ts';

const TITLE = 'gaudi-ucx beside C UCX';

/** What the page tells besides the figures. */
export interface PageFacts {
  readonly time: Date;
  readonly cpu: string;
  /** Versions of Node.js and UCX. */
  readonly versions: string;
}

/** The page. */
export function comparisonPage(
  { time, cpu, versions }: PageFacts,
  table: readonly Comparison[],
  cards: readonly Result[],
  curves: readonly Comparison[],
): string {
  const facts = factList([
    ['Time', time.toISOString()],
    ['Processor', cpu],
    ['Versions', versions],
  ]);
  const charts = [...new Set(curves.map(({ transports, test }) => `${transports} ${test}`))].map((name) =>
    chartOf(
      name,
      curves.filter(({ transports, test }) => `${transports} ${test}` === name),
    ),
  );
  return htmlDocument(TITLE, [facts, tableOf(table), tableOfCards(cards), ...charts].join('\n'));
}

/** Latency in microseconds, or the rate in MB/s: ours and theirs. */
function chartOf(name: string, points: readonly Comparison[]): string {
  const isLatency = points[0]!.measure === 'latency';
  const curves = (['ours', 'theirs'] as const).map((side) => ({
    name: side === 'ours' ? 'gaudi-ucx' : 'C UCX',
    points: points.map((point) => {
      const y = isLatency ? point[side] : (point[side] * point.bytes) / 1e6;
      const text = `${printBytes(point.bytes)}, ${printNumber(y)} ${isLatency ? 'us' : 'MB/s'}`;
      return { x: point.bytes, y, text };
    }),
  }));
  return `<h2>${name}</h2>
<ul class="legend">${curves.map((curve, index) => `<li>${curveSample(index)}${curve.name}</li>`).join('')}</ul>
<div class="wide">
${lineChart({
  id: name.replaceAll(/\W/g, '-'),
  title: isLatency ? 'Time of one message, one way' : 'Bandwidth',
  xLabel: 'message size',
  yLabel: isLatency ? 'microseconds' : 'MB per second',
  printX: printBytes,
  printY: printNumber,
  curves,
})}
</div>`;
}

function tableOf(table: readonly Comparison[]): string {
  const rows = table.map(({ transports, test, bytes, measure, ours, theirs, ratio }) => {
    const target = ALL_TARGETS.find(
      (each) => each.transports.name === transports && each.test === test && each.bytes === bytes,
    )!.ratio;
    const cells = [
      measure === 'latency' ? 'us' : 'messages/s',
      printNumber(ours),
      printNumber(theirs),
      printNumber(ratio),
      `${measure === 'latency' ? '&le;' : '&ge;'} ${target}`,
      isMet(measure, ratio, target) ? 'met' : '<strong>missed</strong>',
    ];
    const head = `<th scope="row">${transports} ${test} ${printBytes(bytes)}</th>`;
    return `<tr>${head}${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`;
  });
  return htmlTable('Targets', ['test', 'unit', 'gaudi-ucx', 'C UCX', 'ratio', 'target', ''], rows);
}

/** The rows of emulated cards; nothing without one. */
function tableOfCards(cards: readonly Result[]): string {
  if (cards.length === 0) return '';
  const rows = cards.map(({ name, value, ratio, target, met }) => {
    const cells = [
      escaped(value),
      ratio === undefined ? '' : printNumber(ratio),
      escaped(target),
      met ? 'met' : '<strong>missed</strong>',
    ];
    return `<tr><th scope="row">${escaped(name)}</th>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`;
  });
  return htmlTable('Memory of emulated cards', ['test', 'value', 'ratio', 'target', ''], rows);
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

function htmlTable(caption: string, columns: readonly string[], rows: readonly string[]): string {
  return `<div class="wide"><table>
<caption>${caption}</caption>
<thead><tr>${columns.map((column) => `<th scope="col">${column}</th>`).join('')}</tr></thead>
<tbody>
${rows.join('\n')}
</tbody>
</table></div>`;
}
