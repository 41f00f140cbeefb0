/** The package as users get it: its tarball in an empty folder, with programs that import every entry, type-checked strictly and run. */

import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ROOT } from '../fixtures/built.ts';

/** The dependencies of the package, and the types of Node.js, which its declarations name. */
const INSTALLED = ['koffi', '@koromix', 'commander', '@types/node', 'undici-types'];
const OPTIONS = {
  target: 'es2022',
  module: 'nodenext',
  strict: true,
  skipLibCheck: false,
  types: ['node'],
  outDir: 'out',
};

/** An example as a program of its own. */
function example(file: string): string {
  const text = readFileSync(join(ROOT, 'examples', file), 'utf8');
  return text.replace(/'\.\.\/src\/(?:index|(\w+))\.ts'/g, (_match, entry?: string) =>
    entry === undefined ? "'gaudi-ucx'" : `'gaudi-ucx/${entry}'`,
  );
}

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
  './uct': [
    `import { createEmulatedNode } from 'gaudi-ucx/emulator';
import { type Component, GaudiResources, gaudiCopyComponent, selfComponent } from 'gaudi-ucx/uct';
const node = createEmulatedNode({ cards: 1 });
const components: Component[] = [selfComponent(), gaudiCopyComponent(new GaudiResources({ node, mappingTable: undefined }))];
console.log(components.map(({ name }) => name).join(' '));
node.close();
`,
    'self gaudi_copy',
  ],
};

describe('the package', { timeout: 120_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-package-'));
  const modules = join(folder, 'node_modules');
  const fileOf = (entry: string): string => (entry === '.' ? 'index' : entry.slice(2));

  /** Type-checks the programs of the folder and writes them as JavaScript. @returns the exit code, and the output of the compiler */
  function compile(): { readonly code: number | null; readonly said: string } {
    const tsc = join(ROOT, 'node_modules/typescript-7/bin/tsc');
    const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', '.'], { cwd: folder, encoding: 'utf8' });
    return { code: status, said: stdout };
  }

  beforeAll(() => {
    // No scripts: the tests use the existing build.
    const packed = ['pack', '--ignore-scripts', '--json', '--pack-destination', folder];
    const [made] = JSON.parse(execFileSync('npm', packed, { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' }));
    mkdirSync(join(modules, '@types'), { recursive: true });
    execFileSync('tar', ['-xzf', join(folder, (made as { filename: string }).filename), '-C', modules]);
    renameSync(join(modules, 'package'), join(modules, 'gaudi-ucx'));
    for (const name of INSTALLED) symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
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

  it('has source maps with the sources, so that a stack names files and lines of src', () => {
    const program = "import { Context } from 'gaudi-ucx'; await Context.create({ engin: 'native' });";
    const args = ['--enable-source-maps', '--input-type=module', '-e', program];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
    expect(status).toBe(1);
    expect(stderr).toMatch(/did you mean engine\?/);
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

  it('has an entry for each of the programs', () => {
    const manifest = JSON.parse(readFileSync(join(modules, 'gaudi-ucx/package.json'), 'utf8')) as { exports: object };
    const entries = Object.keys(manifest.exports).filter((entry) => entry !== './package.json');
    expect(entries.sort()).toEqual(Object.keys(PROGRAMS).sort());
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
});
