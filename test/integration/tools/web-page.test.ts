/** The page of `gaudi-ucx web` in a real browser: what it draws, faults by click and by key, the token, light and dark, wide and narrow. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { readPageFiles, WebServer } from '../../../src/tools/web/web-server.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { findBrowser } from '../../fixtures/tools/browser.ts';
import { built, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, useCommandLine } from '../../fixtures/tools/command-line.ts';
import { cellsOf, ELEMENTS, unlikeElements } from '../../fixtures/tools/page-checks.ts';
import { webModelAt } from '../../fixtures/tools/web-models.ts';

const executablePath = findBrowser();
const TIME = Date.UTC(2026, 10, 23, 12);
const MOMENTS = 60;
/** Parts of the pixels that may differ: fonts of machines do. */
const DIFFERENT_MAX = 0.08;

const cli = useCommandLine();
let browser: Browser;
let seen: string[] = [];

/** A page, which may not load anything from elsewhere and must have no error. */
async function openPage(url: string, options: BrowserContextOptions = {}, isTimed = false): Promise<Page> {
  const page = await browser.newPage({
    viewport: { width: 1280, height: 900 },
    locale: 'en-US',
    timezoneId: 'UTC',
    ...options,
  });
  page.on('pageerror', (error) => seen.push(error.message));
  page.on('console', (message) => seen.push(message.text()));
  page.on('request', (sent) => {
    if (new URL(sent.url()).origin !== new URL(url).origin && !sent.url().startsWith('data:')) seen.push(sent.url());
  });
  if (isTimed) await page.clock.install({ time: TIME });
  await page.goto(url);
  return page;
}

describe.skipIf(executablePath === undefined)('the page (needs chromium)', { timeout: 120_000 }, () => {
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: executablePath!, args: ['--no-sandbox'] });
  });
  afterAll(() => browser.close());
  afterEach(() => {
    const errors = seen;
    seen = [];
    expect(errors).toEqual([]);
  });

  describe('with models that are given', () => {
    let server: WebServer;
    beforeAll(async () => {
      const actions = { injectFault: () => '', startExchange: () => '' };
      const files = readPageFiles(join(ROOT, 'dist/web'));
      server = await WebServer.listen({ files, token: 'token', clock: systemClock, actions }, 0);
    });
    afterAll(() => server.close());

    /** Opens the page, and shows models one after the other, a second apart. */
    async function openAt(options: BrowserContextOptions, moments = MOMENTS): Promise<Page> {
      const page = await openPage(server.url, options, true);
      await expect.poll(() => server.viewers).toBeGreaterThan(0);
      for (let moment = 1; moment <= moments; moment++) await showNext(page, webModelAt(moment));
      return page;
    }

    async function showNext(page: Page, model: ReturnType<typeof webModelAt>): Promise<void> {
      const shown = Number((await page.getAttribute('body', 'data-shown')) ?? 0);
      server.show(model);
      await expect
        .poll(async () => {
          await page.clock.runFor(1000);
          return Number((await page.getAttribute('body', 'data-shown')) ?? 0);
        })
        .toBeGreaterThan(shown);
    }

    it.each(['light', 'dark'] as const)('looks as in its picture (%s)', async (colorScheme) => {
      const page = await openAt({ colorScheme });
      const picture = await page.screenshot({
        clip: { x: 0, y: 0, width: 1280, height: 1200 },
        animations: 'disabled',
        fullPage: true,
      });
      const path = join(ROOT, `docs/images/web-${colorScheme}.png`);
      if (process.env['UPDATE_GOLDEN'] === '1' || !existsSync(path)) writeFileSync(path, picture);
      const golden = readFileSync(path);
      expect(await differentShare(page, golden, picture)).toBeLessThan(DIFFERENT_MAX);
      expect(await unlikeElements(page, golden)).toEqual([]);
      // Whatever is hidden is missed.
      for (const selector of ELEMENTS) {
        const setOpacity = (value: string): Promise<unknown> =>
          page.evaluate(`document.querySelector('${selector}').style.opacity = '${value}'`);
        await setOpacity('0');
        expect((await unlikeElements(page, golden)).join('\n')).toContain(selector);
        await setOpacity('');
      }
      await page.context().close();
    });

    it('shows every figure of the model, card by card, link by link, process by process', async () => {
      const page = await openAt({}, 1);
      for (const moment of [2, 9]) {
        const model = webModelAt(moment);
        await showNext(page, model);
        const { cards, links } = model.top;
        const gigabytes = (bytes: number | undefined): string => ((bytes ?? Number.NaN) / 1e9).toFixed(2);
        const gibibytes = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
        const shown = await cellsOf(page, '#card-table');
        expect(shown.map((row) => [...row.slice(0, 7), ...row.slice(11, 14)])).toEqual(
          cards.map(
            ({ minor, busId, status, pid, hbmUsedBytes, hbmBytes, busyPercent, hostToDevice, deviceToHost }) => [
              `card ${minor}`,
              `accel${minor}`,
              busId,
              status,
              `${pid}`,
              gibibytes(hbmUsedBytes),
              gibibytes(hbmBytes),
              `${busyPercent} %`,
              gigabytes(hostToDevice),
              gigabytes(deviceToHost),
            ],
          ),
        );
        const matrix = await cellsOf(page, '#link-table');
        for (const { from, to, up, bytesPerSecond } of links) {
          expect(matrix[from]![to + 1], `${from} to ${to}`).toBe(up === 0 ? 'down' : gigabytes(bytesPerSecond));
        }
        const programs = await cellsOf(page, '#process-table');
        expect(programs.map((row) => row.slice(0, 4))).toEqual(
          model.processes.map(({ pid, workers, endpoints, pending }) => [pid, workers, endpoints, pending].map(String)),
        );
      }
      await page.context().close();
    });

    it('fits a narrow window, and tells links and charts in words', async () => {
      const page = await openAt({ viewport: { width: 400, height: 800 } }, 3);
      const widths = '[document.documentElement.scrollWidth, document.documentElement.clientWidth]';
      expect(await page.evaluate(widths)).toEqual([400, 400]);
      expect(await page.locator('#picture title').first().textContent()).toBe('8 cards; links down: card 1 to card 2');
      expect(await page.locator('#rate-chart').getAttribute('aria-label')).toMatch(
        /^host to cards [\d.]+ GB\/s, cards to host/,
      );
      const strips = page.locator('#arena-strips [role="img"]');
      expect(await strips.count()).toBe(8);
      expect(await strips.nth(1).getAttribute('aria-label')).toBe(
        'card 1: 2 arenas with 1.0 GiB in total, 41 blocks of 512.0 MiB, largest free range 256.0 MiB',
      );
      expect(await strips.nth(1).locator('.used').getAttribute('d')).toMatch(/^M0 24v-24h/);
      expect(await page.locator('[data-card="6"]').getAttribute('aria-label')).toMatch(
        /^card 6 \(accel6, 0000:1f:00\.0\): in reset, in use, \d+ % of HBM/,
      );
      await page.context().close();
    });

    it('keeps its sections where they are when programs start and end', async () => {
      const page = await openAt({}, 1);
      const places = `[...document.querySelectorAll('section:not(#processes), #arena-strips div, #rate-chart')].map((each) => {
        const { x, y, width, height } = each.getBoundingClientRect();
        return [each.id, x, y, width, height].join(' ');
      })`;
      await showNext(page, webModelAt(2, 0));
      const before = await page.evaluate(places);
      await showNext(page, webModelAt(3, 8));
      expect(await page.evaluate(places)).toEqual(before);
      await page.context().close();
    });

    it('has no light on links of a card that was removed', async () => {
      const page = await openAt({}, 1);
      const model = webModelAt(9);
      const cards = model.top.cards.map((card) => (card.minor === 4 ? { ...card, status: 'removed' } : card));
      const links = model.top.links.filter(({ from, to }) => from !== 4 && to !== 4);
      const lit = page.locator('.link.busy[visibility=visible]');
      await showNext(page, model);
      expect(await lit.and(page.locator('[data-link*="4"]')).count()).toBeGreaterThan(0);
      await showNext(page, { ...model, top: { ...model.top, cards, links } });
      expect(await page.locator('[data-link*="4"][visibility=visible]').count()).toBe(0);
      expect(await lit.count()).toBeGreaterThan(0);
      await showNext(page, model);
      expect(await page.locator('[data-link*="4"][visibility=visible]').count()).toBe(7);
      await page.context().close();
    });

    it('is understood without help: current values, sizes, whole heads and commands, the stage of the exchange', async () => {
      const page = await openAt({}, 2);
      const model = webModelAt(3);
      const stage = { text: 'card 2 -> card 5', done: 20, total: 66 };
      await showNext(page, { ...model, exchange: { ...model.exchange, stage } });
      const { cards } = model.top;
      const toCards = cards.reduce((sum, { hostToDevice = 0 }) => sum + hostToDevice, 0) / 1e9;
      await expect
        .poll(() => page.locator('#rate-chart .u-legend').textContent())
        .toContain(`${toCards.toPrecision(3)} GB/s`);
      expect(await page.locator('#latency-chart .u-legend').textContent()).toMatch(/p50\W*[\d.]+ us/);
      expect(await page.locator('#arena-strips .size').first().textContent()).toBe('512.0 MiB of 1.0 GiB');
      expect(await page.locator('#arena-strips .scale span').allInnerTexts()).toEqual(['0 B', '512.0 MiB', '1.0 GiB']);
      expect(await page.locator('#exchange-state').textContent()).toBe('running: card 2 -> card 5');
      expect(await page.locator('#exchange-progress').getAttribute('max')).toBe('66');
      const heads = await page.locator('#card-table thead th').allInnerTexts();
      expect(heads.map((text) => text.replaceAll('\n', ' '))).toEqual(
        expect.arrayContaining(['process id', 'HBM total', 'GB/s to card', 'GB/s from card']),
      );
      const cut = `[...document.querySelectorAll('td, th')].filter((each) => each.scrollWidth > each.clientWidth + 1).length`;
      expect(await page.evaluate(cut)).toBe(0);
      await page.context().close();
    });

    it('lets a reader skip the picture, and shows every value in a narrow window', async () => {
      const page = await openAt({ viewport: { width: 400, height: 800 } }, 2);
      await page.keyboard.press('Tab');
      expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip the picture and its links');
      await page.keyboard.press('Enter');
      expect(await page.evaluate('document.activeElement.id')).toBe('cards');
      await page.keyboard.press('Tab');
      expect(await page.evaluate(`document.activeElement.closest('#picture, #faults')`)).toBeNull();
      const outside = `[...document.querySelectorAll('td, tbody th')].filter((each) => {
        const { left, right } = each.getBoundingClientRect();
        return right > innerWidth || left < 0;
      }).length`;
      expect(await page.evaluate(outside)).toBe(0);
      await page.context().close();
    });

    it('changes elements and does not make new ones, with 100 processes; nothing moves', async () => {
      const page = await openAt({}, 1);
      await showNext(page, webModelAt(2, 100));
      const places = `[...document.querySelectorAll('section, #process-table td, .card, .link, button')].map((each) => {
        each.known = (each.known ?? 0) + 1;
        const { x, y, width, height } = each.getBoundingClientRect();
        return [each.known, x, y, width, height].join(' ');
      })`;
      const before = (await page.evaluate(places)) as string[];
      for (let moment = 3; moment < 8; moment++) await showNext(page, webModelAt(moment, 100));
      const after = (await page.evaluate(places)) as string[];
      expect(before.length).toBeGreaterThan(600);
      // Known for the second time, at the same place.
      expect(after).toEqual(before.map((text) => text.replace(/^1 /, '2 ')));
      await page.context().close();
    });
  });

  describe('of a node server', () => {
    let node: TestNodeServer;
    let env: Readonly<Record<string, string>>;
    let url: string;
    let stop: () => Promise<void>;
    beforeAll(async () => {
      node = await TestNodeServer.start({ cards: 4 });
      env = { UCX_GAUDI_DRIVER: `emulator:${node.socketPath}`, XDG_RUNTIME_DIR: cli.folder };
      const child = spawn(process.execPath, [MAIN, 'web', '--port', '0', '--interval', '100ms'], {
        env: { ...process.env, ...env, HOME: cli.folder },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
      let out = '';
      child.stdout.on('data', (bytes: Buffer) => {
        out += bytes.toString();
      });
      await vi.waitFor(() => expect(out).toMatch(/token=\S+\n/), { timeout: 20_000 });
      url = /http:\S+/.exec(out)![0];
      expect(out).toContain(`UCX_GAUDI_DRIVER=${env['UCX_GAUDI_DRIVER']}`);
      stop = async () => {
        child.kill('SIGTERM');
        expect(await ended).toBe(0);
      };
    });
    afterAll(async () => {
      await stop();
      await node.stop();
    });

    it('draws what top says', async () => {
      const page = await openPage(url);
      await page.waitForSelector('body[data-shown]');
      const top = JSON.parse(cli.output(['top', '--once', '--json', '--interval', '100ms'], env));
      const rows = await page.locator('#card-table tbody tr').allTextContents();
      expect(rows).toHaveLength(top.cards.length);
      for (const [index, { minor, busId, status }] of top.cards.entries()) {
        expect(rows[index]).toMatch(new RegExp(`^card ${minor}accel${minor}${busId}${status}-0 B95\\.3 GiB`));
      }
      const links = top.links.filter((link: { from: number; to: number }) => link.from < link.to);
      expect(await page.locator('.link[visibility=visible]').count()).toBe(links.length);
      expect(await page.locator('#connection').textContent()).toBe('live');
      await page.context().close();
    });

    it('draws the traffic of a program, as top reports it', async () => {
      const page = await openPage(url);
      await page.waitForSelector('body[data-shown]');
      const program = spawn(process.execPath, [built(join(ROOT, 'test/fixtures/programs/card-traffic-program.ts'))], {
        env: { ...process.env, ...env },
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      const ended = once(program, 'close');
      await once(program.stdout, 'data');
      const top = JSON.parse(cli.output(['top', '--once', '--json', '--interval', '500ms'], env));
      const { hostToDevice, deviceToHost, hbmUsedBytes, pid } = top.cards[1];
      expect(pid).toBe(program.pid);
      expect(Math.min(hostToDevice, deviceToHost)).toBeGreaterThan(0);
      const isMoving = ([, , , , owner, , , , , , , busy, to, from]: readonly string[]): boolean =>
        owner === `${program.pid}` && Number.parseInt(busy!, 10) > 0 && Number(to) > 0 && Number(from) > 0;
      await expect.poll(async () => isMoving((await cellsOf(page, '#card-table'))[1]!)).toBe(true);
      const rows = await cellsOf(page, '#card-table');
      expect(rows[1]![5]).toBe(`${(hbmUsedBytes / 2 ** 20).toFixed(1)} MiB`);
      // Only that card moves.
      for (const index of [0, 2, 3]) expect(rows[index]!.slice(11, 14)).toEqual(['0 %', '0.00', '0.00']);
      expect((await cellsOf(page, '#process-table')).map(([shown]) => shown)).toEqual([`${program.pid}`]);
      program.stdin.end();
      expect(await ended).toEqual([0, null]);
      await page.context().close();
    });

    it('turns a link red by a click, and back by a key; a card by the buttons', async () => {
      const page = await openPage(url);
      await page.waitForSelector('body[data-shown]');
      const button = page.getByRole('button', { name: /^links of card 0 and card 1/ });
      await button.dispatchEvent('click');
      await page.waitForSelector('[data-link="0-1"][data-state="down"]');
      const stroke = await page.evaluate(`getComputedStyle(document.querySelector('[data-link="0-1"]')).stroke`);
      expect(stroke).toBe('rgb(184, 64, 10)');
      expect(await page.locator('#fault-result').textContent()).toBe(
        'card 0 (accel0, 0000:19:00.0): the links to card 1 (accel1, 0000:1a:00.0) are down',
      );
      const top = JSON.parse(cli.output(['top', '--once', '--json', '--interval', '100ms'], env));
      expect(top.links.find(({ from, to }: { from: number; to: number }) => from === 0 && to === 1).up).toBe(0);
      expect(await page.locator('#link-table tbody tr').first().textContent()).toContain('down');
      await button.focus();
      await page.keyboard.press('Enter');
      await page.waitForSelector('[data-link="0-1"][data-state="idle"]');
      await page.locator('[data-card="2"]').focus();
      await page.keyboard.press('Enter');
      expect(await page.locator('#fault-card').inputValue()).toBe('2');
      const port = /to card 1: 3 of 3 links up: ports (\d+)/.exec(cli.output(['info', '-s'], env))![1]!;
      await page.locator('#fault-card').selectOption('0');
      await page.locator('#fault-port').fill(port);
      await page.getByRole('button', { name: 'NIC port down' }).click();
      await expect
        .poll(() => page.locator('#fault-result').textContent())
        .toMatch(/^card 0 .*: the link of port \d+ is down$/);
      await expect.poll(() => page.locator('.link[data-state="part"]').count()).toBe(1);
      await page.getByRole('button', { name: 'NIC port up' }).click();
      await expect.poll(() => page.locator('.link[data-state="part"]').count()).toBe(0);
      await page.locator('#fault-card').selectOption('2');
      await page.getByRole('button', { name: 'Malfunction' }).click();
      await page.waitForSelector('[data-card="2"].broken');
      await page.getByRole('button', { name: 'Recover' }).click();
      await page.waitForSelector('[data-card="2"]:not(.broken)');
      await page.context().close();
    });

    it('needs the token, and says so', async () => {
      const response = await fetch(url.replace(/token=.*/, ''));
      expect([response.status, await response.text()]).toEqual([401, expect.stringContaining('the token is missing')]);
    });
  });
});

/** The share of pixels that differ visibly between two pictures, found by the browser; 1 for pictures of other sizes. */
async function differentShare(page: Page, expected: Buffer, found: Buffer): Promise<number> {
  const compare = `(async ([one, other]) => {
    const pixels = async (base64) => {
      const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
      const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
      canvas.drawImage(image, 0, 0);
      return canvas.getImageData(0, 0, image.width, image.height);
    };
    const [first, second] = [await pixels(one), await pixels(other)];
    if (first.width !== second.width || Math.abs(first.height - second.height) > 60) return 1;
    const length = Math.min(first.data.length, second.data.length);
    let different = 0;
    for (let i = 0; i < length; i += 4) {
      const distance = [0, 1, 2].map((k) => Math.abs(first.data[i + k] - second.data[i + k]));
      if (Math.max(...distance) > 64) different += 1;
    }
    return (4 * different) / length;
  })`;
  return (await page.evaluate(
    `${compare}(${JSON.stringify([expected, found].map((each) => each.toString('base64')))})`,
  )) as number;
}
