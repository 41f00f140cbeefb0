import { describe, expect, it } from 'vitest';
import { escapeText, lineChart } from '../chart.ts';
import type { Measurement } from '../measure.ts';
import { specOf } from '../options.ts';
import { reportPage, reportTests, SeriesCollector } from '../page.ts';
import { messageBytes } from '../spec.ts';

const measurement = (overallNs: number, overallBytes: number): Measurement => ({
  iterations: 1000,
  percentileNs: overallNs / 2,
  medianNs: overallNs / 2,
  lowNs: overallNs / 4,
  highNs: overallNs * 2,
  averageNs: overallNs,
  overallNs,
  averageBytes: overallBytes,
  overallBytes,
  averageMessages: 1e9 / overallNs,
  overallMessages: 1e9 / overallNs,
});

describe('the tests of a report', () => {
  it('are every test at every power of two', () => {
    const tests = reportTests({ t: 'tag_lat,ucp_put_bw', s: '8..1k' });
    expect(tests.map(({ names }) => names.join('/'))).toEqual(
      ['tag_lat', 'ucp_put_bw'].flatMap((t) =>
        ['8', '16', '32', '64', '128', '256', '512', '1K'].map((s) => `${t}/${s}`),
      ),
    );
    expect(tests.map(({ spec }) => [spec.kind.name, messageBytes(spec)]).at(-1)).toEqual(['ucp_put_bw', 1024]);
  });

  it('have a default, and iterations that fit the size', () => {
    const tests = reportTests({});
    expect(new Set(tests.map(({ spec }) => spec.kind.name)).size).toBe(4);
    const iterations = tests.slice(0, 20).map(({ spec }) => spec.iterations);
    expect(iterations).toEqual([...iterations].sort((left, right) => right - left));
    expect(iterations.at(-1)).toBeGreaterThanOrEqual(100);
    expect(reportTests({ n: '77', s: '8' }).every(({ spec }) => spec.iterations === 77)).toBe(true);
  });

  it.each(['', '0', '8..', '..8', '8..4', '8..16..32', 'many', '8,16'])('refuse -s %s', (s) => {
    expect(() => reportTests({ s })).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });

  it('refuse a test that there is not', () => {
    expect(() => reportTests({ t: 'tag_lat,tag_fast' })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
  });
});

describe('curves', () => {
  it('are one for each test and memory, by rising size', () => {
    const collector = new SeriesCollector();
    for (const s of ['64', '8', '512']) collector.add(specOf({ t: 'tag_bw', s }), measurement(Number(s), 1e6), 'a/b');
    collector.add(specOf({ t: 'ucp_put_bw', m: 'host,gaudi' }), measurement(5, 1e6), 'c/d');
    const { series } = collector;
    expect(series.map(({ name, points }) => [name, points.map(({ bytes }) => bytes)])).toEqual([
      ['tag_bw', [8, 64, 512]],
      ['ucp_put_bw host to gaudi', [8]],
    ]);
    expect(series[0]!.points[1]).toMatchObject({
      latencyNs: 64,
      bytesPerSecond: 1e6,
      iterations: 1000,
      carrier: 'a/b',
    });
  });
});

describe('a chart', () => {
  const points = [
    { x: 8, y: 0.02, text: 'first' },
    { x: 64, y: 3, text: 'second' },
    { x: 2 ** 20, y: 900, text: 'third' },
  ];
  const chart = (curves: Parameters<typeof lineChart>[0]['curves']): string =>
    lineChart({ id: 'c', title: 't', xLabel: 'x', yLabel: 'y', curves, printX: String, printY: String });

  it('has its points where their logarithms are', () => {
    const places = [
      ...chart([{ name: 'n', points }]).matchAll(/class="point" transform="translate\(([\d.]+) ([\d.]+)\)/g),
    ].map((match) => [Number(match[1]), Number(match[2])]) as [number, number][];
    const [first, second, third] = places as [[number, number], [number, number], [number, number]];
    // 3 of 17 doublings, and 2.18 of 4.65 powers of ten.
    expect((second[0] - first[0]) / (third[0] - first[0])).toBeCloseTo(3 / 17, 2);
    expect((first[1] - second[1]) / (first[1] - third[1])).toBeCloseTo(Math.log10(150) / Math.log10(45_000), 2);
  });

  it('has a band where its points have one, and curves that differ without colour', () => {
    const banded = points.map((point) => ({ ...point, band: [point.y / 2, point.y * 2] as const }));
    const text = chart([
      { name: 'a', points: banded },
      { name: 'b', points },
    ]);
    const [band] = [...text.matchAll(/<polygon points="([^"]+)"/g)].map(([, list]) => list!.split(' '));
    expect(band).toHaveLength(6);
    expect(text.match(/<polygon/g)).toHaveLength(1);
    const dashes = [...text.matchAll(/stroke-dasharray="([^"]*)"/g)].map(([, dash]) => dash);
    expect(new Set(dashes).size).toBe(2);
    expect(text).toContain('<circle r="4"/>');
    expect(text).toContain('<rect x="-3.5"');
  });

  it('takes one point, and equal values', () => {
    for (const few of [points.slice(0, 1), points.slice(0, 1).concat(points.slice(0, 1))]) {
      const text = chart([{ name: 'n', points: few }]);
      expect(text).not.toMatch(/NaN|Infinity/);
    }
  });

  it('has no markup that comes from its texts', () => {
    const text = chart([{ name: '<b>&"\'', points }]);
    expect(text).toContain('&lt;b&gt;&amp;&quot;&#39;');
    expect(text).not.toContain('<b>');
    expect(escapeText('plain')).toBe('plain');
  });
});

describe('the page', () => {
  const facts = {
    time: new Date(0),
    command: 'gaudi-ucx perftest <x>',
    host: 'here',
    cpu: '2 x some',
    node: 'v20',
    version: '1.2.3',
  };
  const series = [
    {
      name: 'tag_lat',
      kind: 'latency' as const,
      points: [
        {
          bytes: 8,
          latencyNs: 1500,
          medianNs: 1000,
          lowNs: 900,
          highNs: 1_234_567,
          bytesPerSecond: 5e6,
          messagesPerSecond: 666_666.6,
          iterations: 1000,
          carrier: 'posix/memory tag/eager',
        },
      ],
    },
  ];

  it('has its figures, and nothing from elsewhere', () => {
    const page = reportPage(series, { ...facts, emulated: false });
    expect(page).toContain(
      '<tr><th scope="row">8 B</th><td>1,000</td><td>1.500</td><td>1.000</td><td>0.900</td><td>1,234.567</td><td>5.00</td><td>666,667</td><td>posix/memory tag/eager</td></tr>',
    );
    expect(page).toContain('gaudi-ucx perftest &lt;x&gt;');
    expect(page).not.toMatch(/<script|<link|src=|href=|url\(/);
    expect(page).not.toContain('mulated');
  });

  it('has latency and bandwidth tests under headings of their own, and no empty ones', () => {
    const [latency] = series;
    const page = reportPage([latency!, { ...latency!, name: 'tag_bw', kind: 'bandwidth' }], {
      ...facts,
      emulated: false,
    });
    const [, first, second] = page.split('<h2>');
    expect(first!.startsWith('Latency tests<')).toBe(true);
    expect(first).toContain('<caption>tag_lat<');
    expect(first).toContain('<polygon');
    expect(second!.startsWith('Bandwidth tests<')).toBe(true);
    expect(second).toContain('<caption>tag_bw<');
    expect(second).not.toContain('tag_lat');
    expect(reportPage(series, { ...facts, emulated: false })).not.toContain('Bandwidth tests');
    expect(page.match(/<th scope="col">/g)).toHaveLength(18);
  });

  it('names emulated cards', () => {
    expect(reportPage(series, { ...facts, emulated: true })).toContain('Measured with emulated cards');
  });
});
