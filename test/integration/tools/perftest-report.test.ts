/** `gaudi-ucx perftest --report` as a user runs it, and its page in a real browser. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { requires } from '../../fixtures/requires.ts';
import { findBrowser } from '../../fixtures/tools/browser.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, withoutSettings } from '../../fixtures/tools/command-line.ts';

const BROWSER_FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-report-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));

function perftest(args: readonly string[]): { status: number | null; stdout: string; stderr: string } {
  const env = { ...withoutSettings(), HOME: folder, UCX_TLS: 'self,gaudi_cpy', UCX_GAUDI_DRIVER: 'emulator' };
  const flags = [MAIN, 'perftest', ...args];
  return spawnSync(process.execPath, flags, { cwd: ROOT, env, encoding: 'utf8' });
}

/** Examines the rendered page: runs in the browser, and writes its results to the page. */
const LOOK = `
  const box = (element) => element.getBoundingClientRect();
  const inside = (inner, outer) =>
    inner.left >= outer.left - 1 && inner.right <= outer.right + 1 && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
  const apart = (one, other) =>
    one.right <= other.left || other.right <= one.left || one.bottom <= other.top || other.bottom <= one.top;
  const charts = [...document.querySelectorAll('svg.chart')].map((svg) => {
    const texts = [...svg.querySelectorAll('text')].map(box);
    const shapes = [...svg.querySelectorAll('polyline, .point, line')].map(box);
    return {
      id: svg.id,
      wide: box(svg).width > 400 && box(svg).height > 150,
      curves: [...svg.querySelectorAll('.curve')].map((each) => [each.dataset.name, each.querySelectorAll('.point').length]),
      inside: [...texts, ...shapes].every((each) => inside(each, box(svg))),
      readable: texts.every((each, index) => texts.slice(index + 1).every((other) => apart(each, other))),
    };
  });
  const overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const seen = document.createElement('pre');
  seen.id = 'seen';
  seen.textContent = JSON.stringify({ charts, overflow, rows: document.querySelectorAll('tbody tr').length });
  document.body.append(seen);`;

function look(browser: string, page: string, width: number): unknown {
  const probe = join(folder, 'probe.html');
  writeFileSync(probe, `${page}<script>${LOOK}</script>`);
  const profile = mkdtempSync(join(folder, 'browser-'));
  const { stdout, status } = spawnSync(
    browser,
    [
      ...BROWSER_FLAGS,
      `--user-data-dir=${profile}`,
      `--window-size=${width},1200`,
      '--dump-dom',
      pathToFileURL(probe).href,
    ],
    { encoding: 'utf8' },
  );
  expect(status).toBe(0);
  const [, seen] = /<pre id="seen">(.*?)<\/pre>/s.exec(stdout) ?? [];
  return JSON.parse(seen!.replaceAll('&amp;', '&').replaceAll('&lt;', '<').replaceAll('&gt;', '>'));
}

describe('perftest --report', { timeout: 120_000 }, () => {
  const args = ['-l', '-f', '-t', 'ucp_put_bw,tag_lat', '-s', '8..64k', '-n', '50', '-w', '0'];

  it('writes a page that a browser renders as intended', () => {
    const path = join(folder, 'report.html');
    const { status, stdout, stderr } = perftest([...args, '-m', 'gaudi', '--report', path]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout.match(/^ *(ucp_put_bw|tag_lat)\/\S+ /gm)).toHaveLength(28);
    const page = readFileSync(path, 'utf8');
    expect(page).toContain('Measured with emulated cards');
    const browser = findBrowser();
    requires(browser !== undefined, 'chromium');
    const curvesOf = (name: string): unknown[] => [[`${name} gaudi to gaudi`, 14]];
    for (const width of [360, 600, 1000]) {
      expect(look(browser, page, width)).toEqual({
        charts: [
          { id: 'latency', wide: true, curves: curvesOf('tag_lat'), inside: true, readable: true },
          { id: 'bandwidth', wide: true, curves: curvesOf('ucp_put_bw'), inside: true, readable: true },
        ],
        overflow: 0,
        rows: 28,
      });
    }
  });

  it('refuses a file that cannot be written, and a server', () => {
    const missing = join(folder, 'missing', 'report.html');
    for (const [flags, text] of [
      [[...args, '--report', missing], 'must be a writable file'],
      [['--report', join(folder, 'x.html')], 'must be used on the client, or with loopback'],
    ] as const) {
      const { status, stderr } = perftest(flags);
      expect(status).toBe(2);
      expect(stderr).toContain(text);
      expect(stderr).toContain('ERR_INVALID_PARAM');
    }
  });

  it('leaves no page behind when a test fails', () => {
    const path = join(folder, 'report.html');
    const { status } = perftest([
      '-l',
      '-t',
      'tag_lat,put_lat',
      '-s',
      '8',
      '-n',
      '10',
      '-d',
      'none',
      '-x',
      'none',
      '--report',
      path,
    ]);
    expect(status).toBe(2);
    expect(readdirSync(folder)).not.toContain('report.html');
  });
});
