/** `gaudi-ucx top` in parts: samples of an emulated node, the model that they make, its picture, and the terminal. */

import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { createEmulatedNode, type EmulatedNode } from '../../emulator/index.ts';
import { open } from '../../hlthunk/index.ts';
import { HL_DEVICE_STATUS } from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { type NodeSample, TopSampler } from '../model/sample.ts';
import { type TopModel, topModel } from '../model/top-model.ts';
import { PLAIN_VIEW, renderTop, SMALLEST_SCREEN, scrollMax } from './render.ts';
import { type Key, LiveScreen, type Terminal } from './screen.ts';

/** A node whose time a test moves, with a sampler. */
function setUp(options: Parameters<typeof createEmulatedNode>[0] = {}) {
  const clock = new ManualClock(1e9);
  const node = createEmulatedNode({ cards: 2, dmaThreads: 0, clock, ...options });
  const sampler = new TopSampler(node, () => clock.nowNs());
  const close = (): void => {
    sampler.close();
    node.close();
  };
  return { clock, node, sampler, close };
}

/** Moves bytes into a card, and back if `back` is set. */
function move(node: EmulatedNode, clock: ManualClock, byteLength: number, back = false): void {
  const device = open(node, { busId: node.cards()[0]!.busId }, { dma: { clock } });
  const block = device.memory.allocate(byteLength);
  const bytes = new Uint8Array(byteLength);
  for (const request of [
    device.dma.putShort(bytes, 0, block, 0, byteLength),
    ...(back ? [device.dma.getShort(bytes, 0, block, 0, byteLength)] : []),
  ]) {
    while (request?.status === Status.INPROGRESS) device.dma.progress();
    expect(request?.status).toBe(Status.OK);
  }
  device.close();
}

describe('samples', () => {
  it('tell what control nodes tell, beside the owner of a card', () => {
    const { node, sampler, close } = setUp();
    const device = open(node, { busId: node.cards()[0]!.busId });
    const block = device.memory.allocate(4096);
    const { cards, emulated } = sampler.sample();
    expect(emulated).toBe(true);
    expect(cards.map(({ minor, inUse, status }) => [minor, inUse, status])).toEqual([
      [0, true, 'operational'],
      [1, false, 'operational'],
    ]);
    expect(cards[0]!.hbmUsedBytes).toBeGreaterThanOrEqual(block.byteLength);
    expect(cards[1]!.hbmUsedBytes).toBe(0);
    expect(cards[0]!.links).toEqual([undefined, { total: 3, up: 3 }]);
    device.close();
    close();
  });

  it('show a card that is in reset, has failed or is gone, and that comes back', () => {
    const { node, sampler, close } = setUp();
    sampler.sample();
    node.inject(0, { kind: 'status', status: HL_DEVICE_STATUS.IN_RESET });
    expect(sampler.sample().cards[0]).toMatchObject({ status: 'in reset', answers: true, clockMhz: 0 });
    node.inject(0, { kind: 'recover' });
    expect(sampler.sample().cards[0]).toMatchObject({ status: 'operational', answers: true });
    node.inject(0, { kind: 'ioctl', ioctl: 'INFO', errno: 5 });
    expect(sampler.sample().cards[0]).toMatchObject({
      minor: 0,
      status: expect.stringContaining('EIO') as string,
      answers: false,
    });
    expect(sampler.sample().cards[0]!.answers).toBe(true);
    node.inject(0, { kind: 'unplug' });
    expect(sampler.sample().cards.map(({ minor, status }) => [minor, status])).toEqual([
      [0, 'removed'],
      [1, 'operational'],
    ]);
    close();
  });

  it('count faults and resets', () => {
    const { node, sampler, close } = setUp();
    node.inject(1, { kind: 'hard-reset' });
    expect(sampler.sample().cards[1]).toMatchObject({ hardResets: 1, faults: [] });
    close();
  });

  it('are refused once the node is gone', () => {
    const { node, sampler, close } = setUp();
    sampler.sample();
    node.close();
    expect(() => sampler.sample()).toThrow(
      expect.objectContaining({
        code: 'ERR_NODE_UNREACHABLE',
        message: expect.stringContaining('is closed') as string,
      }),
    );
    close();
  });
});

describe('the model', () => {
  it('has the rates between two samples', () => {
    const { node, sampler, clock, close } = setUp({ inlineBytesMax: 0 });
    const first = sampler.sample();
    move(node, clock, 1000, true);
    clock.advance(2e9);
    const model = topModel(first, sampler.sample());
    expect(model.seconds).toBe(2);
    expect(model.cards[0]).toMatchObject({ hostToDevice: 500, deviceToHost: 500, deviceToDevice: 0 });
    expect(model.cards[1]).toMatchObject({ hostToDevice: 0, deviceToHost: 0 });
    expect(model.links).toEqual([
      { from: 0, to: 1, up: 3, total: 3, bytesPerSecond: 0 },
      { from: 1, to: 0, up: 3, total: 3, bytesPerSecond: 0 },
    ]);
    close();
  });

  it('has no rates at first, and none where counters go back', () => {
    const { node, sampler, clock, close } = setUp({ inlineBytesMax: 0 });
    move(node, clock, 1000);
    const sample = sampler.sample();
    expect(topModel(undefined, sample)).toMatchObject({ seconds: 0, cards: [{ hostToDevice: 0 }, {}] });
    const restarted = setUp();
    restarted.clock.advance(5e9);
    expect(topModel(sample, restarted.sampler.sample()).cards[0]).toMatchObject({ hostToDevice: 0, busyPercent: 0 });
    restarted.close();
    close();
  });

  it.each([
    [1, 1, 100],
    [2, 1, 50],
    [2, 2, 100],
    [1, 1.25, 100],
  ])('has the share of %i threads that was busy: %d of them are %d percent', (engineThreads, busy, percent) => {
    const { sampler, close } = setUp();
    const sample = sampler.sample();
    const sampleAt = (seconds: number): NodeSample => {
      const cards = sample.transfers!.cards.map((card) => ({ ...card, busyNs: seconds * busy * 1e9 }));
      return { ...sample, transfers: { ...sample.transfers!, timeNs: seconds * 1e9, engineThreads, cards } };
    };
    expect(topModel(sampleAt(1), sampleAt(3)).cards[0]!.busyPercent).toBe(percent);
    close();
  });

  it('has no PCIe throughput of real cards that report none', () => {
    const { sampler, close } = setUp();
    const sample = sampler.sample();
    const card = { ...sample.cards[0]!, pciReceive: undefined, pciTransmit: undefined };
    const real: NodeSample = { ...sample, timeNs: 0, emulated: false, cards: [card], transfers: undefined };
    const model = topModel(real, { ...real, timeNs: 1e9 });
    expect(model.cards[0]).toMatchObject({ hostToDevice: undefined, deviceToHost: undefined });
    close();
  });

  it('has the values of the driver for real cards', () => {
    const { sampler, close } = setUp();
    const sample = sampler.sample();
    const card = { ...sample.cards[0]!, utilization: 40, pciReceive: 7, pciTransmit: 8 };
    const real: NodeSample = { ...sample, timeNs: 0, emulated: false, cards: [card], transfers: undefined };
    const model = topModel(real, { ...real, timeNs: 1e9 });
    expect(model.cards[0]).toMatchObject({
      busyPercent: 40,
      hostToDevice: 7,
      deviceToHost: 8,
      deviceToDevice: undefined,
    });
    expect(model.links.every(({ bytesPerSecond }) => bytesPerSecond === undefined)).toBe(true);
    close();
  });
});

/** Eight cards with everything as wide as it gets. */
function widest(): TopModel {
  const minors = Array.from({ length: 8 }, (_, minor) => minor);
  return {
    emulated: true,
    serverPid: 7,
    driverVersion: undefined,
    seconds: 1,
    cards: minors.map((minor) => ({
      label: `card ${minor} (accel${minor}, 0000:${(0x19 + minor).toString(16)}:00.0)`,
      index: minor,
      minor,
      busId: '0000:19:00.0',
      moduleId: 7 - minor,
      status: minor === 3 ? 'in reset after device release' : 'operational',
      inUse: minor % 2 === 0,
      pid: minor % 2 === 0 ? 4_194_304 : undefined,
      command: 'node dist/serve.js --cards 8',
      firmware: 'hl-gaudi2-1.22.0-fw-61.3.0-sec-9',
      temperature: 67.5,
      power: 598.2,
      hbmUsedBytes: 95.25 * 2 ** 30,
      hbmBytes: 127.5 * 2 ** 30,
      busyPercent: 100,
      busyEngines: Array.from({ length: 12 }, (_, index) => index * 17),
      clockMhz: 1650,
      hostToDevice: 999.4e9,
      deviceToHost: 25e9,
      deviceToDevice: 1.2e15,
      hardResets: 1234,
      computeResets: 99_999,
      refusedSubmissions: 55_555,
      faults: ['time-out', 'page fault', 'illegal access', 'undefined opcode'],
    })),
    links: minors.flatMap((from) =>
      minors
        .filter((to) => to !== from)
        .map((to) => ({ from, to, up: to === 5 ? 2 : 3, total: 3, bytesPerSecond: 123.4e9 })),
    ),
  };
}

describe('the picture', () => {
  it('of eight cards fits on 80 by 24, whatever they do', () => {
    const lines = renderTop(widest(), 'every 3600 s', SMALLEST_SCREEN);
    expect(lines).toHaveLength(24);
    for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(80);
    expect(lines[0]).toMatch(/^gaudi-ucx top: 8 cards \(emulated\) +every 3600 s$/);
    expect(lines[3]).toBe('   0   7 operational  95.3 of 127.5 100%    999G   25.0G   1200T 56793 4194304');
    expect(lines[6]).toMatch(/^ {3}3 {3}4 in reset af… .* 56794 {7}-$/);
    expect(lines[13]).toBe('from 0            -  3 123G  3 123G  3 123G  3 123G 2! 123G  3 123G  3 123G');
    expect(lines.at(-1)).toMatch(/^errors: card 0: 1234 hard resets, 55555 refused, time-out/);
  });

  it('is cut to any screen', () => {
    for (const screen of [
      { columns: 40, rows: 10 },
      { columns: 1, rows: 1 },
    ]) {
      const lines = renderTop(widest(), '', screen);
      expect(lines.length).toBeLessThanOrEqual(screen.rows);
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(screen.columns);
    }
  });

  it('shows less on a narrow screen and more on a wide one', () => {
    const titles = (columns: number): string => renderTop(widest(), '', { columns, rows: 24 })[2]!;
    expect(titles(70)).toBe('card mod status        HBM used GiB busy h2d B/s d2h B/s   err     pid');
    expect(titles(200).split(/ +/)).toEqual(
      'card device mod bus id status HBM used GiB busy MHz C W h2d B/s d2h B/s d2d B/s err pid firmware process'.split(
        ' ',
      ),
    );
    const wide = renderTop(widest(), '', { columns: 200, rows: 24 })[3]!;
    expect(wide).toMatch(
      /0000:19:00\.0 operational .* 1650 {2}68 {2}598 .* hl-gaudi2-1\.22\.0-fw-61\.3\.0-sec-9 +node dist/,
    );
  });

  it('scrolls what does not fit, below the titles', () => {
    const screen = { columns: 80, rows: 10 };
    const at = (scroll: number): string[] => renderTop(widest(), '', screen, { ...PLAIN_VIEW, scroll });
    expect(at(0)).toHaveLength(10);
    expect(at(3).slice(0, 3)).toEqual(at(0).slice(0, 3));
    expect(at(3)[3]).toMatch(/^ {3}3 /);
    const last = scrollMax(widest(), screen);
    expect(at(last).at(-1)).toMatch(/^errors: /);
    expect(at(last - 1).at(-1)).toMatch(/^engines busy: /);
    expect(at(last + 100)).toEqual(at(last));
    expect(scrollMax(widest(), SMALLEST_SCREEN)).toBe(0);
  });

  it.each([
    ['card', [0, 1, 2]],
    ['HBM', [2, 0, 1]],
    ['busy', [1, 0, 2]],
    ['traffic', [0, 2, 1]],
    ['errors', [1, 2, 0]],
  ] as const)('is in the order of %s', (sort, expected) => {
    const [first] = widest().cards;
    const base = { ...first!, faults: [], refusedSubmissions: 0, deviceToDevice: undefined, deviceToHost: 0 };
    const cards = [
      { ...base, index: 0, hbmUsedBytes: 5, busyPercent: 2, hostToDevice: 9, hardResets: 0 },
      { ...base, index: 1, hbmUsedBytes: 4, busyPercent: 3, hostToDevice: 1, hardResets: 7 },
      { ...base, index: 2, hbmUsedBytes: 6, busyPercent: 1, hostToDevice: 5, hardResets: 3 },
    ];
    const lines = renderTop({ ...widest(), cards, links: [] }, '', SMALLEST_SCREEN, { ...PLAIN_VIEW, sort });
    expect(lines.slice(3, 6).map((line) => Number(line.slice(0, 4)))).toEqual(expected);
  });

  it('tells keys and colours of a live view, and whose emulated node it is', () => {
    const live = { ...PLAIN_VIEW, isLive: true };
    const lines = renderTop(widest(), '', SMALLEST_SCREEN, live);
    expect(lines[1]).toBe('q quit, s sort: card, up and down scroll');
    expect([lines[3]!.slice(0, 9), lines[3]!.slice(-5)]).toEqual(['\u001b[31m   0', '\u001b[39m']);
    const own = { ...widest(), serverPid: undefined };
    expect(renderTop(own, '', SMALLEST_SCREEN)[1]).toMatch(
      /^emulated node of this process: other programs cannot use it/,
    );
    const sound = { ...own.cards[0]!, faults: [], hardResets: 0, refusedSubmissions: 0 };
    expect(renderTop({ ...own, cards: [sound] }, '', SMALLEST_SCREEN, live)[3]).toMatch(/^ {3}0 /);
  });

  it('names cards without an index by their modules in the matrix of links', () => {
    const model = widest();
    const cards = model.cards.map((card, at) => (at === 0 ? card : { ...card, index: undefined }));
    const text = renderTop({ ...model, cards }, '', { columns: 200, rows: 60 }).join('\n');
    const modules = cards.slice(1).map(({ moduleId }) => `m${moduleId}`);
    for (const name of modules) expect(text).toContain(`from ${name} `);
    expect(text).toMatch(new RegExp(`to 0 +${modules.map((name) => `to ${name}`).join(' +')}`));
  });

  it('names missing values', () => {
    const empty: TopModel = { ...widest(), emulated: false, driverVersion: '1.22.1', seconds: 0, cards: [], links: [] };
    expect(renderTop(empty, '', SMALLEST_SCREEN).join('\n')).toMatch(
      /\(habanalabs driver 1\.22\.1\), first sample: no rates[\s\S]*no cards: the node has none/,
    );
    const real = { ...widest(), emulated: false, links: [] };
    const text = renderTop(
      { ...real, cards: real.cards.map((card) => ({ ...card, deviceToDevice: undefined })) },
      '',
      SMALLEST_SCREEN,
    );
    expect(text.join('\n')).toMatch(
      /\(habanalabs driver\)[\s\S]* - 56793 4194304\n[\s\S]*links: not reported by this driver/,
    );
  });
});

/** A terminal that keeps what is written to it. */
function terminalOf(isTTY: boolean) {
  const output = Object.assign(new EventEmitter(), {
    columns: 100,
    rows: 30,
    text: '',
    write(text: string) {
      output.text += text;
    },
  });
  const input = Object.assign(new EventEmitter(), {
    isTTY,
    raw: false,
    reading: false,
    setRawMode(on: boolean) {
      input.raw = on;
    },
    resume() {
      input.reading = true;
    },
    pause() {
      input.reading = false;
    },
  });
  return { output, input, terminal: { output, input } satisfies Terminal };
}

describe('the terminal', () => {
  it.each(['q', 'Q', '\u0003', '\u001b'])('ends at key %j and is given back', (key) => {
    const { output, input, terminal } = terminalOf(true);
    let quits = 0;
    const screen = new LiveScreen(
      terminal,
      (pressed) => {
        if (pressed === 'quit') quits += 1;
      },
      () => {},
    );
    expect([input.raw, input.reading]).toEqual([true, true]);
    expect(screen.size).toEqual({ columns: 100, rows: 30 });
    screen.show(['one', 'two']);
    input.emit('data', Buffer.from('x'));
    expect(quits).toBe(0);
    input.emit('data', Buffer.from(key));
    expect(quits).toBe(1);
    screen.close();
    screen.close();
    expect([input.raw, input.reading]).toEqual([false, false]);
    expect(output.text).toBe(
      '\u001b[?1049h\u001b[?25l\u001b[Hone\u001b[K\r\ntwo\u001b[K\u001b[J\u001b[?25h\u001b[?1049l',
    );
    expect([output.listenerCount('resize'), input.listenerCount('data')]).toEqual([0, 0]);
  });

  it('is given back while the program is stopped, and drawn on only when it is open', () => {
    const { output, input, terminal } = terminalOf(true);
    const screen = new LiveScreen(
      terminal,
      () => {},
      () => {},
    );
    screen.close();
    screen.show(['left out']);
    expect([input.raw, input.reading, output.listenerCount('resize')]).toEqual([false, false, 0]);
    screen.open();
    screen.open();
    expect([input.raw, input.reading, output.listenerCount('resize')]).toEqual([true, true, 1]);
    screen.show(['seen']);
    screen.close();
    expect(output.text).toBe(
      '\u001b[?1049h\u001b[?25l\u001b[?25h\u001b[?1049l\u001b[?1049h\u001b[?25l\u001b[Hseen\u001b[K\u001b[J\u001b[?25h\u001b[?1049l',
    );
  });

  it('tells the keys apart, also when several come at once', () => {
    const { input, terminal } = terminalOf(true);
    const keys: Key[] = [];
    const screen = new LiveScreen(
      terminal,
      (key) => keys.push(key),
      () => {},
    );
    input.emit('data', Buffer.from('s\u001b[A\u001bOBxjk\u001b[C\u001a'));
    input.emit('data', Buffer.from('\u001b'));
    expect(keys).toEqual(['sort', 'up', 'down', 'down', 'up', 'suspend', 'quit']);
    screen.close();
  });

  it('without keys is drawn again when its size changes', () => {
    const { output, input, terminal } = terminalOf(false);
    let draws = 0;
    const screen = new LiveScreen(
      terminal,
      () => {},
      () => {
        draws += 1;
      },
    );
    output.emit('resize');
    expect([draws, input.raw, input.reading]).toEqual([1, false, false]);
    Object.assign(output, { columns: 0, rows: 0 });
    expect(screen.size).toEqual(SMALLEST_SCREEN);
    screen.close();
  });
});
