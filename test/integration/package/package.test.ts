/** The package as users get it: its tarball in an empty folder, with its templates and programs that import every entry, type-checked strictly and run. */

import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'rolldown';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Started } from '../../fixtures/processes/started.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { installPackage, ROUND_TRIP } from '../../fixtures/tools/installed-package.ts';

/** The version of TypeScript that `npm run test:typescript` brings, if it runs the tests. */
const RELEASE = process.env['GAUDI_UCX_TEST_TYPESCRIPT'];
const TSC: readonly [string, ...string[]] =
  RELEASE === undefined ? [process.execPath, join(ROOT, 'node_modules/typescript-7/bin/tsc')] : ['tsc'];
const OPTIONS = {
  target: 'es2022',
  module: 'nodenext',
  strict: true,
  skipLibCheck: false,
  types: ['node'],
  outDir: 'out',
};

/** An example as a separate program. */
function example(file: string): string {
  const text = readFileSync(join(ROOT, 'examples', file), 'utf8');
  return text.replace(/'\.\.\/src\/(?:index|(\w+)(?:\/index)?)\.ts'/g, (_match, entry?: string) =>
    entry === undefined ? "'gaudi-ucx'" : `'gaudi-ucx/${entry}'`,
  );
}

/** Finds more processors than this machine may have: with two, emulated cards have no threads. */
const PROGRAM_IN_BUNDLE = `import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import { Context, MemoryType } from 'gaudi-ucx';
os.availableParallelism = () => 8;
syncBuiltinESMExports();
${ROUND_TRIP}`;

/** A program for each entry, and the last line of its output. */
const PROGRAMS: Readonly<Record<string, readonly [string, string]>> = {
  '.': [example('put-get.ts'), 'the same bytes came back'],
  './hlthunk': [example('hlthunk-dma.ts'), 'the same bytes came back'],
  './emulator': [
    `import { createEmulatedNode, type EmulatedNodeOptions } from 'gaudi-ucx/emulator';
import { getDeviceName, open } from 'gaudi-ucx/hlthunk';
const options: EmulatedNodeOptions = { asic: 'gaudi', cards: 2 };
const node = createEmulatedNode(options);
using device = open(node, { minor: 1 });
const name: 'gaudi' | 'gaudi2' | 'gaudi3' = getDeviceName(device);
console.log(name, node.cards().length, node.kind);
device.close();
node.close();
`,
    'gaudi 2 emulator',
  ],
  './coll': [
    `import { Context } from 'gaudi-ucx';
import { createTeam, localExchange, type Team } from 'gaudi-ucx/coll';
await using context = await Context.create({ config: { TLS: 'self,posix' } });
const exchange = localExchange(2);
const workers = [context.worker(), context.worker()];
const teams: Team[] = await Promise.all(workers.map((worker, rank) => createTeam(worker, { rank, size: 2, exchange })));
const sums = [Int32Array.of(20), Int32Array.of(22)].map(({ buffer }) => new Uint8Array(buffer));
await Promise.all(teams.map((team, rank) => team.allReduce(sums[rank]!, sums[rank]!, { dtype: 'int32' })));
console.log(sums.map((bytes) => new Int32Array(bytes.buffer)[0]).join(' '));
await Promise.all(teams.map((team) => team.close()));
`,
    '42 42',
  ],
  './uct': [
    example('memory-expert.ts').replace(
      /$/,
      `
import { type Component as Own, GaudiResources, gaudiCopyComponent, selfComponent } from 'gaudi-ucx/uct';
const own = createEmulatedNode({ cards: 1 });
const components: Own[] = [selfComponent(), gaudiCopyComponent(new GaudiResources({ node: own, mappingTable: undefined }))];
own.close();
console.log(components.map(({ name }) => name).join(' '));
`,
    ),
    'self gaudi_copy',
  ],
};

const WITH_UNDEFINED = `import { Context, type ContextOptions, type Endpoint, type MemoryHandle, type RemoteKey } from 'gaudi-ucx';
import { createTeam, localExchange } from 'gaudi-ucx/coll';
import { createEmulatedNode } from 'gaudi-ucx/emulator';
import { openDevice } from 'gaudi-ucx/hlthunk';
export async function run(given: { signal: AbortSignal | undefined; offset: number | undefined; tag: bigint | undefined }): Promise<void> {
  const options: ContextOptions = { engine: undefined, driver: undefined, config: undefined, features: undefined };
  const context = await Context.create(options);
  const worker = context.worker({ clientId: undefined });
  const { signal, offset, tag } = given;
  const endpoint: Endpoint = await worker.connect({ host: 'localhost', address: undefined, port: 1, signal, onError: undefined });
  const memory: MemoryHandle = context.memMap({ allocate: 8, sysDevice: offset, memoryType: undefined, protection: undefined });
  const rkey: RemoteKey = endpoint.unpackRkey(context.packRkey(memory), { raw: undefined });
  const bytes = new Uint8Array(8);
  await endpoint.put(bytes, rkey, { offset, byteLength: undefined, remoteOffset: offset, notify: undefined, signal });
  await endpoint.putList([{ local: bytes, offset, rkey, remoteOffset: offset, byteLength: 8, count: undefined }], { signal });
  await endpoint.tagSend([{ memory: bytes, offset, byteLength: undefined }], { tag, signal });
  await worker.tagRecv(bytes, { tag, mask: undefined, signal });
  await memory.write(bytes, { offset, byteLength: undefined, signal });
  await memory.copyTo(memory, { offset, targetOffset: offset, signal });
  worker.listener({ address: undefined, port: undefined, onConnection: undefined });
  await createTeam(worker, { rank: 0, size: 1, exchange: localExchange(1), amId: undefined, timeoutMs: undefined });
  createEmulatedNode({ cards: undefined, asic: undefined });
  openDevice({ minor: undefined, driver: undefined, device: undefined });
}
`;

describe('the package', { timeout: 60_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-package-'));
  const modules = join(folder, 'node_modules');
  const fileOf = (entry: string): string => (entry === '.' ? 'index' : entry.slice(2));

  /** Type-checks the programs of a folder and writes them as JavaScript. @returns the exit code, and the output of the compiler */
  function compile(cwd = folder): { readonly code: number | null; readonly said: string } {
    const { status, stdout } = spawnSync(TSC[0], [...TSC.slice(1), '-p', '.'], { cwd, encoding: 'utf8' });
    return { code: status, said: stdout };
  }

  beforeAll(() => {
    installPackage(folder);
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: OPTIONS, include: ['*.ts'] }));
    for (const [entry, [text]] of Object.entries(PROGRAMS)) writeFileSync(join(folder, `${fileOf(entry)}.ts`), text);
  }, 120_000);

  afterAll(() => rmSync(folder, { recursive: true }));

  it('has every page and file that its README links to, and its origin', () => {
    const home = join(modules, 'gaudi-ucx');
    const readme = readFileSync(join(home, 'README.md'), 'utf8');
    const links = [...readme.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, link]) => link!);
    expect(links.length).toBeGreaterThan(15);
    expect(links.filter((link) => !existsSync(join(home, link)))).toEqual([]);
    const { repository, homepage, bugs } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
    for (const address of [repository.url, homepage, bugs]) expect(address).toContain('github.com/gaudi-ucx/gaudi-ucx');
  });

  it('runs the example of its README as JavaScript, without a compiler', () => {
    const readme = readFileSync(join(modules, 'gaudi-ucx/README.md'), 'utf8');
    const [, program] = /```js\n([\s\S]*?)```/.exec(readme)!;
    writeFileSync(join(folder, 'readme.mjs'), program!);
    const env = { ...process.env, UCX_GAUDI_DRIVER: 'emulator' };
    const { stdout, stderr } = spawnSync(process.execPath, ['readme.mjs'], { cwd: folder, encoding: 'utf8', env });
    expect({ last: stdout.trimEnd().split('\n').at(-1), stderr }).toEqual({
      last: 'the same bytes came back',
      stderr: '',
    });
  });

  it('has the declarations that its entries reach in few files, and nothing of its tests', () => {
    const home = join(modules, 'gaudi-ucx');
    const files = readdirSync(home, { recursive: true, encoding: 'utf8' });
    const declarations = files.filter((file) => file.endsWith('.d.ts'));
    expect(declarations.length).toBeLessThan(30);
    expect(declarations.filter((file) => !file.startsWith('dist/types/'))).toEqual([]);
    const text = declarations.map((file) => readFileSync(join(home, file), 'utf8')).join('');
    for (const internal of ['class PerftestSide', 'class RdmaEngine', 'class ProgressDriver', 'vitest']) {
      expect(text).not.toContain(internal);
    }
    expect(text).toContain('Writes local bytes to remote memory and waits until they have arrived.');
    expect(files.filter((file) => /^(test|dist\/(programs|test|src|bench))\b/.test(file))).toEqual([]);
  });

  it('has source maps with the sources, so that a stack names files and lines of src', () => {
    // An error of the package begins at the program; one of the program, at a getter, has the frames of the package.
    const program = `import { Context } from 'gaudi-ucx';
      await Context.create({ get engine() { throw new Error('no engine') } });`;
    const args = ['--enable-source-maps', '--input-type=module', '-e', program];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
    expect(status).toBe(1);
    expect(stderr).toMatch(/no engine/);
    expect(stderr).toMatch(/src\/assembly\/context\.ts:\d+:\d+/);
    const lib = join(modules, 'gaudi-ucx/dist/lib');
    const mapped = readdirSync(lib).filter(
      (file) => file.endsWith('.js') && readFileSync(join(lib, file), 'utf8').includes('\n//# sourceMappingURL='),
    );
    expect(mapped.length).toBeGreaterThan(3);
    for (const file of mapped) {
      const { sources, sourcesContent } = JSON.parse(readFileSync(join(lib, `${file}.map`), 'utf8'));
      expect(sourcesContent, file).toHaveLength(sources.length);
    }
  });

  // Before koffi, which looks for its own code by these names.
  it.each([
    ["process, 'arch', { value: 'arm64' }", 'linux on arm64'],
    ["process, 'platform', { value: 'darwin' }", 'darwin on x64'],
    ["process.versions, 'bun', { value: '1.2.0' }", 'Bun'],
  ])('refuses another platform at import with one sentence: %s', (fake, found) => {
    const fakes = `data:text/javascript,${encodeURIComponent(`Object.defineProperty(${fake})`)}`;
    for (const entry of ['', '/uct', '/hlthunk', '/emulator']) {
      const program = `import 'gaudi-ucx${entry}';`;
      const args = [`--import=${fakes}`, '--input-type=module', '-e', program];
      const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
      expect(status).toBe(1);
      expect(stderr).toMatch(new RegExp(`UcxError: gaudi-ucx needs Node.js.*, because .*; this is ${found}`));
    }
    const { os, cpu } = JSON.parse(readFileSync(join(modules, 'gaudi-ucx/package.json'), 'utf8'));
    expect({ os, cpu }).toEqual({ os: ['linux'], cpu: ['x64'] });
  });

  it('has an entry for each of the programs', () => {
    const manifest = JSON.parse(readFileSync(join(modules, 'gaudi-ucx/package.json'), 'utf8')) as { exports: object };
    const entries = Object.keys(manifest.exports).filter((entry) => entry !== './package.json');
    expect(entries.sort()).toEqual(Object.keys(PROGRAMS).sort());
  });

  it('can be bundled into a program, which then has no threads for the emulated cards', async () => {
    writeFileSync(join(folder, 'bundled.mjs'), PROGRAM_IN_BUNDLE);
    await build({
      input: join(folder, 'bundled.mjs'),
      external: ['koffi'],
      platform: 'node',
      logLevel: 'silent',
      output: { dir: join(folder, 'bundle'), entryFileNames: 'bundled.mjs', chunkFileNames: '[name].mjs' },
    });
    const program = join(folder, 'bundle/bundled.mjs');
    const env = { ...process.env, UCX_GAUDI_DRIVER: 'emulator' };
    const { stdout, stderr } = spawnSync(process.execPath, [program], { cwd: folder, encoding: 'utf8', env });
    expect({ stdout, stderr }).toEqual({ stdout: 'the same bytes came back\n', stderr: '' });
  });

  it.runIf(RELEASE !== undefined)(`is tried with TypeScript ${RELEASE} (needs GAUDI_UCX_TEST_TYPESCRIPT)`, () => {
    expect(spawnSync('tsc', ['--version'], { encoding: 'utf8' }).stdout.trim()).toBe(`Version ${RELEASE}`);
  });

  it('type-checks with all types of its declarations', () => {
    expect(compile()).toEqual({ code: 0, said: '' });
  });

  it.each(Object.entries(PROGRAMS))('runs a program of %s', (entry, [, lastLine]) => {
    const output = execFileSync(process.execPath, [join('out', `${fileOf(entry)}.js`)], {
      cwd: folder,
      encoding: 'utf8',
      env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator' },
      timeout: 60_000,
    });
    expect(output.trimEnd().split('\n').at(-1)).toBe(lastLine);
  });

  it('has types that refuse what the calls refuse', () => {
    const wrong = "import { openDevice } from 'gaudi-ucx/hlthunk';\nopenDevice({ minor: 'first' });\n";
    writeFileSync(join(folder, 'wrong.ts'), wrong);
    const { code, said } = compile();
    expect(code).not.toBe(0);
    expect(said).toMatch(/wrong\.ts.*error TS2322.*'string' is not assignable to type 'number'/);
  });

  it('has options that may be undefined, for programs with exactOptionalPropertyTypes', () => {
    const project = join(folder, 'exact');
    mkdirSync(project);
    const compilerOptions = { ...OPTIONS, exactOptionalPropertyTypes: true, noEmit: true };
    writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
    writeFileSync(join(project, 'exact.ts'), WITH_UNDEFINED);
    expect(compile(project)).toEqual({ code: 0, said: '' });
  });

  it('has types without what the engines keep in a message', () => {
    const hidden = ['source', 'headerOffset', 'dataOffset', 'isTaken', 'isView', 'waiting'];
    const program = `import type { AmMessage, ConnectionRequest, Listener } from 'gaudi-ucx';
import type { EmulatedNode } from 'gaudi-ucx/emulator';
import type { Device } from 'gaudi-ucx/hlthunk';
export type Engines = Extract<keyof Listener | keyof ConnectionRequest | keyof Device | keyof EmulatedNode, 'thread' | 'requested' | 'answered' | 'openFor' | 'openMapped' | 'dmabufForDevice'>;
export const members: [Engines] extends [never] ? 'none' : 'some' = 'none';
export type Hidden = Extract<keyof AmMessage, ${hidden.map((name) => `'${name}'`).join(' | ')}>;
export const none: [Hidden] extends [never] ? 'none' : 'some' = 'none';
export const dataOf = (message: AmMessage): Uint8Array => message.data;
`;
    writeFileSync(join(folder, 'wrong.ts'), program);
    const { code, said } = compile();
    expect(code).not.toBe(0);
    expect(said.match(/error TS\d+/g)).toEqual(['error TS2339']);
    expect(said).toContain("Property 'data' does not exist on type 'RendezvousAmMessage'");
  });

  describe('has templates', () => {
    const programs: Started[] = [];
    beforeAll(() => cpSync(join(modules, 'gaudi-ucx/templates'), join(folder, 'templates'), { recursive: true }));
    afterEach(() => {
      for (const { child } of programs.splice(0)) child.kill('SIGKILL');
    });

    /** Starts the program of a template. */
    function start(name: string, ...args: readonly string[]): Started {
      const program = join(folder, 'templates', name, 'dist', `${name}.js`);
      const started = new Started(program, args, {
        cwd: folder,
        env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '2', UCX_TLS: 'all' },
      });
      programs.push(started);
      return started;
    }

    it.each(readdirSync(join(ROOT, 'templates')).filter((name) => name !== 'README.md'))(
      'of which %s type-checks as it is',
      (name) => {
        const project = join(folder, 'templates', name);
        expect(compile(project)).toEqual({ code: 0, said: '' });
        const { dependencies, scripts } = JSON.parse(readFileSync(join(project, 'package.json'), 'utf8'));
        const { version } = JSON.parse(readFileSync(join(modules, 'gaudi-ucx/package.json'), 'utf8'));
        expect(scripts).toEqual({ build: 'tsc', start: `node dist/${name}.js` });
        expect(dependencies).toEqual({ 'gaudi-ucx': `^${version}` });
      },
    );

    it('of which chat brings lines from one program to the other, both ways, and ends with either', async () => {
      const listening = start('chat', 'listen');
      const [, address, port] = await listening.saw(/waiting at (\S+) (\d+)/);
      const connecting = start('chat', 'connect', address!, port!);
      const long = 'x'.repeat(300_000);
      connecting.child.stdin!.write(`hello\n${long}\n`);
      await listening.saw(new RegExp(`hello\n${long}\n`));
      listening.child.stdin!.write('hello to you\n');
      await connecting.saw(/hello to you\n/);
      connecting.child.stdin!.end();
      expect(await connecting.ended).toBe(0);
      expect(await listening.ended).toBe(0);
      expect(listening.printed).toContain('the peer has left');
    });

    it('of which chat says that a peer was lost', async () => {
      const listening = start('chat', 'listen');
      const [, address, port] = await listening.saw(/waiting at (\S+) (\d+)/);
      const connecting = start('chat', 'connect', address!, port!);
      connecting.child.stdin!.write('hello\n');
      await listening.saw(/hello\n/);
      connecting.child.kill('SIGKILL');
      expect(await listening.ended).toBe(0);
      expect(listening.printed).toContain('the connection is lost');
    });

    it('of which rpc calls procedures of another program', async () => {
      const server = start('rpc', 'serve');
      const [, address, port] = await server.saw(/serving at (\S+) (\d+)/);
      const call = (...args: string[]): Started => start('rpc', 'call', address!, port!, ...args);
      const [sum, upper, unknown] = [call('add', '1', '2', '39'), call('upper', 'gaudi'), call('divide', '1', '0')];
      const throwing = call('upper');
      expect([await sum.ended, sum.printed]).toEqual([0, '42\n']);
      expect([await upper.ended, upper.printed]).toEqual([0, 'GAUDI\n']);
      expect(await unknown.ended).toBe(1);
      expect(unknown.printed).toContain('there is no procedure divide');
      expect(await throwing.ended).toBe(1);
      expect(throwing.printed).toContain("Error: Cannot read properties of undefined (reading 'toUpperCase')");
    });

    it('of which hbm-copy copies a file by way of two cards, and shows how far it is', async () => {
      const [source, target] = [join(folder, 'source'), join(folder, 'target')];
      const bytes = Buffer.alloc(40 * 2 ** 20 + 3, 'a file ');
      writeFileSync(source, bytes);
      const copy = start('hbm-copy', source, target);
      expect([await copy.ended, copy.printed.match(/^card 0 to card 1: .*$/gm)]).toEqual([
        0,
        ['card 0 to card 1: 39 %', 'card 0 to card 1: 79 %', 'card 0 to card 1: 100 %'],
      ]);
      expect(readFileSync(target).equals(bytes)).toBe(true);
      expect(await start('hbm-copy').ended).toBe(2);
    });
  });
});
