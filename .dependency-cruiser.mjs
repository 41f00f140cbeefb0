/**
 * The law of the house for dependency-cruiser. The folders and what each may import are not written here: they are read from the table
 * of docs/LAW.md, relative to the working directory, so that the page and the check cannot disagree.
 */

import { readFileSync } from 'node:fs';

const LAW = 'docs/LAW.md';
const TEST_FILE = '[.]test[.]ts$';
/** Modules that start something: the package entries, the command line and the programs of worker threads and processes. */
const ENTRIES = [
  '^src/(index|hlthunk|uct)[.]ts$',
  '^src/(emulator|coll)/index[.]ts$',
  '^src/tools/(main|web/page/main)[.]ts$',
  '-(thread|program)[.]ts$',
];
const PACKAGE_TYPES = [
  'npm',
  'npm-dev',
  'npm-optional',
  'npm-peer',
  'npm-bundled',
  'npm-no-pkg',
  'npm-unknown',
  'unknown',
];

/** The rows of the table: `{ folder, imports, packages }`, where a folder is relative to src or a file of it. */
function readLaw() {
  const text = readFileSync(LAW, 'utf8');
  const header = /^\| Folder +\| Owns +\| Does not own +\| May import +\|$/m.exec(text);
  if (header === null) throw new Error(`${LAW} has no table "Folder | Owns | Does not own | May import"`);
  const lines = text.slice(header.index).split('\n').slice(2);
  const rows = lines
    .slice(
      0,
      lines.findIndex((line) => !line.startsWith('|')),
    )
    .map(readRow);
  const expanded = rows.map((row) => ({ ...row, imports: row.imports.flatMap((name) => expand(name, row, rows)) }));
  checkRows(expanded);
  return expanded;
}

/** `a/*` stands for every row below `a`, and for `a` itself where it has one. */
function expand(name, row, rows) {
  if (!name.endsWith('/*')) return [name];
  const folder = name.slice(0, -2);
  const isBelow = (other) => other.folder === folder || other.folder.startsWith(`${folder}/`);
  return rows.filter((other) => isBelow(other) && other !== row).map((other) => other.folder);
}

function readRow(line) {
  const cells = line.split('|').map((cell) => cell.trim());
  const names = codeIn(cells[4] ?? '');
  const [folder] = codeIn(cells[1] ?? '');
  if (folder === undefined || cells.length !== 6) throw new Error(`${LAW}: bad row: ${line}`);
  return {
    folder,
    imports: names.filter((name) => !name.startsWith('npm:')),
    packages: names.filter((name) => name.startsWith('npm:')).map((name) => name.slice(4)),
  };
}

function codeIn(cell) {
  return [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]);
}

/** Every import names a row, and the rows can be put in an order: an acyclic table forbids cycles between folders. */
function checkRows(rows) {
  const byFolder = new Map(rows.map((row) => [row.folder, row]));
  if (byFolder.size !== rows.length) throw new Error(`${LAW}: a folder has two rows`);
  const done = new Set();
  const visit = (row, path) => {
    if (path.includes(row.folder)) throw new Error(`${LAW}: cycle ${[...path, row.folder].join(' -> ')}`);
    if (done.has(row.folder)) return;
    for (const name of row.imports) {
      const target = byFolder.get(name);
      if (target === undefined) throw new Error(`${LAW}: ${row.folder} may import ${name}, which has no row`);
      visit(target, [...path, row.folder]);
    }
    done.add(row.folder);
  };
  for (const row of rows) visit(row, []);
}

/** The files of a row: those of its folder that no deeper row has. */
function filesOf(row, rows) {
  if (row.folder.endsWith('.ts')) return `^src/${row.folder.replaceAll('.', '[.]')}$`;
  const deeper = rows.filter((other) => other.folder.startsWith(`${row.folder}/`));
  const without = deeper.map((other) => other.folder.slice(row.folder.length + 1));
  const guard =
    without.length === 0
      ? ''
      : `(?!${without.map((name) => (name.endsWith('.ts') ? `${name.replaceAll('.', '[.]')}$` : `${name}/`)).join('|')})`;
  return `^src/${row.folder}/${guard}`;
}

function rulesOf(row, rows) {
  const own = filesOf(row, rows);
  const allowed = row.imports.map((name) =>
    filesOf(
      rows.find((other) => other.folder === name),
      rows,
    ),
  );
  const from = { path: own, pathNot: TEST_FILE };
  const list = row.imports.length === 0 ? 'nothing of ours' : row.imports.join(', ');
  return [
    {
      name: `law:${row.folder}`,
      comment: `${row.folder} may import ${list}; change the table in ${LAW} if the design has changed`,
      severity: 'error',
      from,
      to: { path: '^src/', pathNot: [own, ...allowed] },
    },
    {
      name: `packages:${row.folder}`,
      comment: `${row.folder} may import of npm: ${row.packages.join(', ') || 'nothing'}`,
      severity: 'error',
      from,
      to: {
        dependencyTypes: PACKAGE_TYPES,
        pathNot: ['^src/', '^[.]', ...row.packages.map((name) => `(^|/)${name}(/|$)`)],
      },
    },
  ];
}

const rows = readLaw();
/** The folders of the row `tools`: a command each. */
const COMMAND = `${filesOf({ folder: 'tools' }, rows)}([^/]+)/`;

export default {
  forbidden: [
    ...rows.flatMap((row) => rulesOf(row, rows)),
    {
      name: 'every-file-has-a-row',
      comment: `the folder is not in the table of ${LAW}`,
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST_FILE, ...rows.map((row) => filesOf(row, rows))] },
      to: {},
    },
    {
      name: 'commands-know-no-other-command',
      comment:
        'what two commands need is in tools/base, tools/node-access or below tools; `node up --web` shows the page of `web`',
      severity: 'error',
      from: { path: COMMAND, pathNot: TEST_FILE },
      to: { path: COMMAND, pathNot: ['^src/tools/$1/', '^src/tools/web/'] },
    },
    { name: 'no-cycles', comment: 'also by types alone', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-tests-in-the-product',
      comment: 'test files and fixtures are not part of the package',
      severity: 'error',
      from: { path: '^src/', pathNot: TEST_FILE },
      to: { path: ['^(test|bench|scripts|examples)/', TEST_FILE] },
    },
    {
      name: 'no-unresolved',
      comment: 'the module does not exist',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true, pathNot: '^node:' },
    },
    {
      name: 'no-dead-modules',
      comment: 'no entry of the package reaches the module: wire it up or delete it',
      severity: 'error',
      from: { path: ENTRIES },
      to: { path: '^src/', pathNot: [TEST_FILE, ...ENTRIES], reachable: false },
    },
    {
      name: 'no-orphans',
      comment: 'the module imports nothing and nothing imports it',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST_FILE, ...ENTRIES], orphan: true },
      to: {},
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: { conditionNames: ['import', 'node', 'default', 'types'], exportsFields: ['exports'] },
  },
};
