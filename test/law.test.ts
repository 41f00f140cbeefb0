/** The law of the folders (docs/LAW.md, .dependency-cruiser.mjs): the tree obeys it, and every kind of violation is detected. */

import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');
const CRUISER = join(ROOT, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs');
/** It reads the table of the folder in which it runs, and refuses one that it does not understand. */
const CONFIG = join(ROOT, '.dependency-cruiser.mjs');
const LAW = 'docs/LAW.md';

interface Violation {
  readonly rule: { readonly name: string };
  readonly from: string;
  readonly to: string;
}

/** Runs the law over the `src` of a folder. Returns `rule: from -> to` of every violation, sorted. */
function violations(folder: string): string[] {
  const output = execFileSync(process.execPath, [CRUISER, '--config', CONFIG, '--output-type', 'json', 'src'], {
    cwd: folder,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const result = JSON.parse(output) as { summary: { violations: Violation[] } };
  return result.summary.violations.map(({ rule, from, to }) => `${rule.name}: ${from} -> ${to}`).sort();
}

/** A separate source tree under the law of this repository. */
class Tree implements Disposable {
  readonly folder: string = mkdtempSync(join(tmpdir(), 'gaudi-ucx-law-'));

  constructor(files: Readonly<Record<string, string>>) {
    this.write('package.json', '{ "type": "module", "dependencies": { "koffi": "1", "commander": "1" } }');
    for (const name of ['koffi', 'commander']) {
      this.write(`node_modules/${name}/package.json`, `{ "name": "${name}", "version": "1.0.0", "main": "index.js" }`);
      this.write(`node_modules/${name}/index.js`, 'module.exports = {};');
    }
    mkdirSync(join(this.folder, 'docs'));
    copyFileSync(join(ROOT, LAW), join(this.folder, LAW));
    for (const [path, text] of Object.entries(files)) this.write(path, text);
  }

  write(path: string, text: string): void {
    const file = join(this.folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

const LEAF = 'export const leaf = 1;\n';

/** A file that imports `targets` and is therefore reachable. */
function importing(...targets: string[]): string {
  return `${targets.map((target, index) => `import * as m${index} from '${target}';`).join('\n')}\nexport const m = [${targets.map((_, index) => `m${index}`).join(', ')}];\n`;
}

/** Description, importing file, specifier, imported file, rule. The number distinguishes the files of the violations. */
const BREACHES: readonly (readonly [string, string, string, string, string])[] = [
  ['ucs knows nothing of ours', 'src/ucs/type/a#.ts', '../../sys/b#.ts', 'src/sys/b#.ts', 'law:ucs/type'],
  ['sys does not know drivers', 'src/sys/a#.ts', '../driver/b#.ts', 'src/driver/b#.ts', 'law:sys'],
  ['hlthunk does not know the emulator', 'src/hlthunk/a#.ts', '../emulator/b#.ts', 'src/emulator/b#.ts', 'law:hlthunk'],
  ['nor the kernel driver', 'src/hlthunk/a#.ts', '../driver/kernel/b#.ts', 'src/driver/kernel/b#.ts', 'law:hlthunk'],
  [
    'the emulator does not know hlthunk',
    'src/emulator/driver/a#.ts',
    '../../hlthunk/b#.ts',
    'src/hlthunk/b#.ts',
    'law:emulator/driver',
  ],
  [
    'the device does not know its driver',
    'src/emulator/device/a#.ts',
    '../driver/b#.ts',
    'src/emulator/driver/b#.ts',
    'law:emulator/device',
  ],
  [
    'transports do not know each other',
    'src/uct/self/a#.ts',
    '../gaudi/copy/b#.ts',
    'src/uct/gaudi/copy/b#.ts',
    'law:uct/self',
  ],
  ['only gaudi knows hlthunk', 'src/uct/self/a#.ts', '../../hlthunk/b#.ts', 'src/hlthunk/b#.ts', 'law:uct/self'],
  ['uct does not know ucp', 'src/uct/base/a#.ts', '../../ucp/core/b#.ts', 'src/ucp/core/b#.ts', 'law:uct/base'],
  ['ucp names no transport', 'src/ucp/proto/a#.ts', '../../uct/self/b#.ts', 'src/uct/self/b#.ts', 'law:ucp/proto'],
  ['no arrow runs back inside ucp', 'src/ucp/base/a#.ts', '../rma/b#.ts', 'src/ucp/rma/b#.ts', 'law:ucp/base'],
  ['ucp makes no system call', 'src/ucp/core/a#.ts', '../../sys/b#.ts', 'src/sys/b#.ts', 'law:ucp/core'],
  ['nothing imports assembly', 'src/ucp/core/a#.ts', '../../assembly/b#.ts', 'src/assembly/b#.ts', 'law:ucp/core'],
  ['nothing imports tools', 'src/assembly/a#.ts', '../tools/b#.ts', 'src/tools/b#.ts', 'law:assembly'],
  [
    'commands do not know each other',
    'src/tools/info/a#.ts',
    '../smi/b#.ts',
    'src/tools/smi/b#.ts',
    'commands-know-no-other-command',
  ],
  ['the product imports no test', 'src/ucs/type/a#.ts', '../../../test/b#.ts', 'test/b#.ts', 'no-tests-in-the-product'],
  ['a new folder needs a row', 'src/stray/a#.ts', '../ucs/type/b#.ts', 'src/ucs/type/b#.ts', 'every-file-has-a-row'],
  ['koffi stays in sys', 'src/driver/a#.ts', 'koffi', 'node_modules/koffi/index.js', 'packages:driver'],
  [
    'commander stays in tools',
    'src/ucp/core/a#.ts',
    'commander',
    'node_modules/commander/index.js',
    'packages:ucp/core',
  ],
  ['tools do without koffi', 'src/tools/a#.ts', 'koffi', 'node_modules/koffi/index.js', 'packages:tools'],
  ['sys does without commander', 'src/sys/a#.ts', 'commander', 'node_modules/commander/index.js', 'packages:sys'],
];

describe('the law', () => {
  it('is obeyed by this tree', { timeout: 60_000 }, () => {
    expect(violations(ROOT)).toEqual([]);
  });

  describe('in a separate tree', () => {
    /** The trees of all tests. One run checks all: their names keep them apart. */
    const allowed = {
      'src/ucs/type/status.ts': importing('node:fs'),
      'src/sys/index.ts': importing('./base/libc.ts'),
      'src/sys/base/libc.ts': importing('../../ucs/type/status.ts', 'koffi'),
      'src/uct/api/iface.ts': importing('../../ucs/type/status.ts'),
      'src/uct/gaudi/copy/md.ts': importing('../../api/iface.ts', '../../../sys/index.ts'),
      'src/ucp/core/worker.ts': importing('../../uct/api/iface.ts', '../mem/map.ts'),
      'src/ucp/mem/map.ts': importing('../../ucs/type/status.ts'),
      'src/tools/main.ts': importing('commander', './perftest/command.ts'),
      'src/tools/perftest/command.ts': importing('./side/side.ts'),
      'src/tools/perftest/side/side.ts': importing('../../../ucp/core/worker.ts'),
      'src/ucs/type/status.test.ts': importing('../../tools/main.ts', '../../../test/fixture.ts'),
      'test/fixture.ts': importing('../src/ucs/type/status.ts'),
    };
    const types = {
      'src/ucs/type/a.ts': "import type { B } from './b.ts';\nexport interface A { b: B }\n",
      'src/ucs/type/b.ts': "import type { A } from './a.ts';\nexport interface B { a: A }\n",
      'src/uapi/c.ts': "import type { A } from '../ucs/type/a.ts';\nexport type C = A;\n",
    };
    const unreached = {
      'src/index.ts': importing('./ucs/type/used.ts'),
      'src/ucs/type/used.ts': LEAF,
      'src/ucs/type/orphan.ts': LEAF,
      'src/ucs/type/dead.ts': importing('./used.ts', './missing.ts'),
      'src/emulator/device/engine/engine-thread.ts': importing('../../../ucs/type/used.ts'),
    };
    const breaches = BREACHES.map((breach, index) => {
      const [, from, specifier, to, rule] = breach.map((text) => text.replace('#', String(index)));
      const imported = to!.startsWith('node_modules') ? {} : { [to!]: LEAF };
      const files = { [from!]: importing(specifier!), ...imported };
      return { files, line: `${rule}: ${from} -> ${to}` };
    });
    let found: readonly string[] = [];

    beforeAll(() => {
      using tree = new Tree(Object.assign({}, allowed, types, unreached, ...breaches.map(({ files }) => files)));
      found = violations(tree.folder);
    }, 60_000);

    /** Violations of these files. */
    function linesOf(files: Readonly<Record<string, string>>): string[] {
      return found.filter((line) => Object.hasOwn(files, /: (\S+) -> /.exec(line)![1]!));
    }

    /** Without violations of reachability, which parts of a tree always have. */
    function breachesOf(files: Readonly<Record<string, string>>): string[] {
      return linesOf(files).filter((line) => !line.startsWith('no-dead-modules'));
    }

    it('accepts what the table allows', () => {
      expect(breachesOf(allowed)).toEqual([]);
    });

    it('detects every violation, and names the rule', () => {
      const files = Object.assign({}, ...breaches.map((breach) => breach.files));
      expect(breachesOf(files)).toEqual(breaches.map(({ line }) => line).sort());
    });

    it('detects imports and cycles of types alone', () => {
      expect(breachesOf(types)).toEqual([
        'law:uapi: src/uapi/c.ts -> src/ucs/type/a.ts',
        'no-cycles: src/ucs/type/a.ts -> src/ucs/type/b.ts',
      ]);
    });

    it('detects unreachable modules and modules that do not exist', () => {
      expect(linesOf(unreached)).toEqual([
        'no-dead-modules: src/ucs/type/dead.ts -> src/ucs/type/dead.ts',
        'no-dead-modules: src/ucs/type/orphan.ts -> src/ucs/type/orphan.ts',
        'no-orphans: src/ucs/type/orphan.ts -> src/ucs/type/orphan.ts',
        'no-unresolved: src/ucs/type/dead.ts -> ./missing.ts',
      ]);
    });

    it('reports nothing else', () => {
      const files = Object.assign({}, allowed, types, unreached, ...breaches.map((breach) => breach.files));
      expect(linesOf(files)).toEqual(found);
    });
  });
});

describe('the table', () => {
  const law = readFileSync(join(ROOT, LAW), 'utf8');

  it.each([
    ['a cycle', (text: string) => text.replace(/^(\| `uapi` .*\|) +\|$/m, '$1 `driver` |'), /cycle/],
    [
      'an import without a row',
      (text: string) => text.replace('`ucs/*`, `npm:koffi`', '`ucs/*`, `nowhere`'),
      /nowhere, which has no row/,
    ],
    ['no table', () => '# Architecture\n', /has no table/],
  ])('is refused with %s', (_what, change, message) => {
    using tree = new Tree({});
    const evaluate = (): string =>
      execFileSync(process.execPath, [CONFIG], { cwd: tree.folder, stdio: 'pipe', encoding: 'utf8' });
    expect(evaluate()).toBe('');
    tree.write(LAW, change(law));
    expect(evaluate).toThrow(message);
  });

  /** Folders and what they may import, in the order of the table. */
  const table = [...law.matchAll(/^\| `([^`]+)` +\|[^|]*\|[^|]*\|([^|]*)\|$/gm)].map(([, folder, imports]) => ({
    folder: folder!,
    imports: [...imports!.matchAll(/`(?!npm:)([^`]+)`/g)].map((match) => match[1]!),
  }));
  const rows = table.map(({ folder }) => folder);

  it('names only rows above', () => {
    const isOf = (name: string, row: string): boolean =>
      row === name || (name.endsWith('/*') && `${row}/`.startsWith(name.slice(0, -1)));
    const forward = table.flatMap(({ folder, imports }, index) =>
      imports.flatMap((name) =>
        rows
          .slice(index + 1)
          .filter((row) => isOf(name, row))
          .map((row) => `${folder} -> ${row}`),
      ),
    );
    expect(forward).toEqual([]);
  });

  it('has only folders and files that are there', () => {
    expect(rows.filter((row) => !existsSync(join(ROOT, 'src', row)))).toEqual([]);
  });
});
