/** A process that uses the library: it ends without process.exit(), uses no CPU while it is idle, and keeps its event loop free. */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENGINES } from '../../fixtures/pair.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';

const ENTRY = builtSpecifier(join(ROOT, 'src/index.ts'));
/** A sleep of this length must cost less than a part of it. */
const IDLE_MS = 1500;
const IDLE_SHARE_MAX = 0.2;

let folder = '';
beforeAll(() => {
  // Below the sources, so that packages are found.
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-process-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs a program with the library; returns its exit code, signal and output. */
function runProgram(
  body: string,
  settings: Readonly<Record<string, string | undefined>>,
): { code: number | null; signal: string | null; out: string; err: string } {
  const file = join(folder, 'program.mjs');
  writeFileSync(file, `import { Context, MemoryType } from ${ENTRY};\n${body}\n`);
  const env = { ...process.env, ...settings, NODE_ENV: 'production' };
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, [file], {
    cwd: ROOT,
    encoding: 'utf8',
    env,
    timeout: 20_000,
  });
  return { code: status, signal, out: stdout, err: stderr };
}

const SET_UP = `
  const context = await Context.create({ config: { GAUDI_EMULATOR_CARDS: '2' } });
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const hbm = context.memMap({ allocate: 2 ** 20, memoryType: MemoryType.GAUDI });
  const rkey = endpoint.unpackRkey(context.packRkey(hbm));
`;

describe.each(ENGINES)('a process over %s', { timeout: 60_000 }, (engine) => {
  const run = (body: string) => runProgram(body, { UCX_GAUDI_DRIVER: 'emulator', UCX_ENGINE: engine });

  it.each<readonly [string, string]>([
    ['only opens a context', 'await Context.create();'],
    ['opens a context with a worker and an endpoint', SET_UP],
    ['has transferred', `${SET_UP} await endpoint.put(new Uint8Array(2 ** 20), rkey);`],
    ['has closed everything', `${SET_UP} await endpoint.put(new Uint8Array(8), rkey); await context.close();`],
    [
      'has started operations that it does not await',
      `${SET_UP} endpoint.putNbx(new Uint8Array(2 ** 20), 0, 2 ** 20, rkey, 0);`,
    ],
    ['does not wait for a context', 'void Context.create();'],
  ])('that %s ends without process.exit()', (_what, body) => {
    const result = run(`${body}\nconsole.log('end of program');`);
    expect(result).toEqual({ code: 0, signal: null, out: 'end of program\n', err: '' });
  });

  it('ends after its awaited operations', () => {
    const result = run(`${SET_UP}
      void endpoint.put(new Uint8Array(2 ** 20), rkey).then(() => console.log('arrived'));
    `);
    expect(result).toEqual({ code: 0, signal: null, out: 'arrived\n', err: '' });
  });

  it('that is idle uses almost no CPU', () => {
    const { code, out, err } = run(`${SET_UP}
      await endpoint.put(new Uint8Array(2 ** 20), rkey);
      await endpoint.get(new Uint8Array(2 ** 20), rkey);
      await new Promise((resolve) => setTimeout(resolve, 200));
      const before = process.cpuUsage();
      await new Promise((resolve) => setTimeout(resolve, ${IDLE_MS}));
      const { user, system } = process.cpuUsage(before);
      console.log((user + system) / 1000);
    `);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(Number(out)).toBeLessThan(IDLE_MS * IDLE_SHARE_MAX);
  });

  it('runs timers while it awaits transfers in turn', () => {
    const { code, out, err } = run(`${SET_UP}
      let ticks = 0;
      const timer = setInterval(() => { ticks += 1; }, 1);
      const bytes = new Uint8Array(2 ** 20);
      while (ticks < 3) await endpoint.put(bytes, rkey);
      while (ticks < 6) await endpoint.put(new Uint8Array(8), rkey);
      clearInterval(timer);
      console.log('ticked');
    `);
    expect({ code, out, err }).toEqual({ code: 0, out: 'ticked\n', err: '' });
  });

  it('handles a signal that aborts a long series', () => {
    const { code, out } = run(`${SET_UP}
      const signal = AbortSignal.timeout(50);
      try {
        for (;;) await endpoint.put(new Uint8Array(65536), rkey, { signal });
      } catch (error) {
        console.log(error.name, error.code, error.cause?.name);
      }
      await context.close();
    `);
    expect({ code, out }).toEqual({ code: 0, out: 'TimeoutError ABORT_ERR TimeoutError\n' });
  });
});

const CARD = ['/dev/accel', '/dev/hl0'].find((path) => existsSync(path));

describe.skipIf(CARD !== undefined)(
  `a process without a card (here is ${CARD}) (needs a machine without cards)`,
  { timeout: 60_000 },
  () => {
    const WARNING =
      /^\[[^\]]+\] \[[^\]]+\] +\S+ UCX {2}WARN {2}Gaudi memory is emulated, because no card was found \(.+\); UCX_GAUDI_DRIVER=emulator avoids this message, UCX_GAUDI_DRIVER=kernel forbids emulation\n$/;
    // No node server of this user.
    const run = (body: string, driver?: string): ReturnType<typeof runProgram> =>
      runProgram(body, { UCX_GAUDI_DRIVER: driver, XDG_RUNTIME_DIR: folder });
    const USES_CARD = "(await Context.create()).memMap({ allocate: 8, memoryType: 'gaudi' });";

    it('is warned once that device memory is emulated', () => {
      const again = `${USES_CARD} new (await import('node:worker_threads')).Worker(new URL(import.meta.url));`;
      const { code, err } = run(`${USES_CARD} if ((await import('node:worker_threads')).isMainThread) { ${again} }`);
      expect(code).toBe(0);
      expect(err).toMatch(WARNING);
    });

    it('learns it from the first device of hl-thunk whose memory it uses', () => {
      const hlthunk = builtSpecifier(join(ROOT, 'src/hlthunk.ts'));
      const open = `const { openDevice } = await import(${hlthunk}); const device = openDevice();`;
      expect(run(`${open} device.close();`)).toMatchObject({ code: 0, err: '' });
      const { code, err } = run(`${open} device.memory.allocate(2 ** 20); device.close();`);
      expect(code).toBe(0);
      expect(err).toMatch(WARNING);
    });

    it.each([
      ['only uses host memory', "(await Context.create()).memMap({ allocate: 8, memoryType: 'host' });", undefined],
      ['asks for emulated cards', USES_CARD, 'emulator'],
      ['asks for them itself', USES_CARD.replace('()', "({ driver: 'emulator' })"), undefined],
    ])('is not told so where it %s', (_what, body, driver) => {
      expect(run(body, driver)).toMatchObject({ code: 0, err: '' });
    });

    it('fails where emulation is forbidden', () => {
      const { code, err } = run(USES_CARD, 'kernel');
      expect(code).toBe(1);
      expect(err).toContain('the habanalabs driver is not loaded');
    });
  },
);
