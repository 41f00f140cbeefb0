/**
 * The size of the house: files, classes, parameter lists, interfaces and rows of the law, as figures that must not grow. `npm run house` prints them.
 *
 * What cannot be seen in one file is counted by name: two interfaces of one name have the implementers of both.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** What is reached: a figure above its limit fails; one that has become smaller lowers it here. */
export const LIMITS = {
  'source files': 717,
  'lines of the largest file': 498,
  'members of the largest class': 64,
  'functions with more than four parameters': 110,
  'interfaces with methods and at most one implementer': 47,
  'rows of the law': 79,
} as const;

type Figure = keyof typeof LIMITS;

/** The figures, and the largest things behind them. */
export interface House {
  readonly figures: Readonly<Record<Figure, number>>;
  readonly medianLines: number;
  readonly lines: number;
  readonly largestFiles: readonly string[];
  readonly largestClasses: readonly string[];
  /** Functions with more than four parameters that the style page does not list, and entries of its list that there are not. */
  readonly parameters: readonly string[];
}

/** A function with too many parameters. */
interface WideFunction {
  readonly folder: string;
  readonly name: string;
}

/** STYLE.md: a function takes at most four. */
const PARAMETERS_MAX = 4;
const SHOWN = 8;

/** Measures the sources of a repository, without their tests. */
export function measure(root: string): House {
  const files = sourcesOf(join(root, 'src')).map((path) => {
    const text = readFileSync(path, 'utf8');
    return { name: relative(root, path), lines: text.split('\n').length - 1, text };
  });
  const classes: { readonly name: string; readonly members: number }[] = [];
  const interfaces: string[] = [];
  const implementers = new Map<string, number>();
  /** The interfaces that an interface extends. */
  const parents = new Map<string, readonly string[]>();
  const wide: WideFunction[] = [];
  for (const { name, text } of files) {
    /** Names that the file has imported under another one. */
    const imported = new Map<string, string>();
    const visit = (node: ts.Node): void => {
      if (ts.isImportSpecifier(node) && node.propertyName !== undefined)
        imported.set(node.name.text, node.propertyName.text);
      if (ts.isFunctionLike(node) && 'body' in node && parametersOf(node) > PARAMETERS_MAX)
        wide.push({ folder: dirname(name).slice('src/'.length), name: nameOf(node) });
      if (ts.isClassLike(node)) {
        classes.push({ name: `${node.name?.text ?? 'class'} (${name})`, members: node.members.length });
        for (const implemented of namedBy(node, ts.SyntaxKind.ImplementsKeyword)) {
          const declared = imported.get(implemented) ?? implemented;
          implementers.set(declared, (implementers.get(declared) ?? 0) + 1);
        }
      }
      if (ts.isInterfaceDeclaration(node)) {
        const extended = namedBy(node, ts.SyntaxKind.ExtendsKeyword).map((parent) => imported.get(parent) ?? parent);
        parents.set(node.name.text, [...(parents.get(node.name.text) ?? []), ...extended]);
        if (node.members.some(ts.isMethodSignature)) interfaces.push(node.name.text);
      }
      ts.forEachChild(node, visit);
    };
    visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true));
  }
  // Who implements an interface implements what it extends.
  const total = new Map<string, number>();
  for (const [name, count] of implementers) {
    for (const each of withParents(name, parents)) total.set(each, (total.get(each) ?? 0) + count);
  }
  const byLines = files.toSorted((left, right) => right.lines - left.lines);
  const byMembers = classes.toSorted((left, right) => right.members - left.members);
  return {
    figures: {
      'source files': files.length,
      'lines of the largest file': byLines[0]?.lines ?? 0,
      'members of the largest class': byMembers[0]?.members ?? 0,
      'functions with more than four parameters': wide.length,
      'interfaces with methods and at most one implementer': interfaces.filter((name) => (total.get(name) ?? 0) <= 1)
        .length,
      'rows of the law': lawRows(readFileSync(join(root, 'docs/LAW.md'), 'utf8')),
    },
    medianLines: byLines[byLines.length >> 1]?.lines ?? 0,
    lines: files.reduce((sum, { lines }) => sum + lines, 0),
    largestFiles: byLines.slice(0, SHOWN).map(({ name, lines }) => `${lines} ${name}`),
    largestClasses: byMembers.slice(0, SHOWN).map(({ name, members }) => `${members} ${name}`),
    parameters: compareList(wide, readFileSync(join(root, 'docs/STYLE.md'), 'utf8')),
  };
}

/** The name of a function: its own, that of the variable or property that it is, or that of its class. */
function nameOf(node: ts.SignatureDeclaration): string {
  const named = ts.isConstructorDeclaration(node) || node.name === undefined ? node.parent : node;
  return (named as ts.NamedDeclaration).name?.getText() ?? 'anonymous';
}

/** Compares the functions with more than four parameters with the list of the style page: rows of names and folders. */
function compareList(wide: readonly WideFunction[], page: string): readonly string[] {
  const rows = [...page.matchAll(/^\| (`[^|]*`) \| (`[^|]*`) \| [^|]+ \|$/gm)].map(([, names, folders]) => ({
    names: quotedIn(names!),
    folders: quotedIn(folders!),
  }));
  const unlisted = wide.filter(
    ({ folder, name }) => !rows.some(({ names, folders }) => names.includes(name) && folders.includes(folder)),
  );
  const gone = rows.flatMap(({ names, folders }) => [
    ...names.filter((name) => !wide.some((each) => each.name === name && folders.includes(each.folder))),
    ...folders.filter((folder) => !wide.some((each) => each.folder === folder && names.includes(each.name))),
  ]);
  return [
    ...unlisted.map(({ folder, name }) => `${name} in ${folder} has more than four parameters: see docs/STYLE.md`),
    ...gone.map((entry) => `docs/STYLE.md lists ${entry}, which has no such function`),
  ];
}

function quotedIn(cell: string): readonly string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, text]) => text!);
}

/** The figures that exceed their limits, and functions with too many parameters. */
export function grown(
  { figures, parameters }: House,
  limits: Readonly<Record<Figure, number>> = LIMITS,
): readonly string[] {
  const larger = (Object.keys(limits) as Figure[])
    .filter((figure) => figures[figure] > limits[figure])
    .map((figure) => `${figure}: ${figures[figure]}, at most ${limits[figure]}`);
  return [...larger, ...parameters];
}

function sourcesOf(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map((name) => join(folder, name));
}

/** Number of parameters; a `this` that only types the function is none. */
function parametersOf({ parameters }: ts.SignatureDeclaration): number {
  return parameters.filter(({ name }) => name.getText() !== 'this').length;
}

/** The names behind `implements` or `extends`. */
function namedBy(node: ts.ClassLikeDeclaration | ts.InterfaceDeclaration, keyword: ts.SyntaxKind): readonly string[] {
  const clauses = node.heritageClauses?.filter(({ token }) => token === keyword) ?? [];
  return clauses.flatMap(({ types }) => types.map(({ expression }) => expression.getText()));
}

/** An interface, and all that it extends. */
function withParents(name: string, parents: ReadonlyMap<string, readonly string[]>): ReadonlySet<string> {
  const found = new Set([name]);
  for (const each of found) for (const parent of parents.get(each) ?? []) found.add(parent);
  return found;
}

/** The rows of the table of folders. */
function lawRows(page: string): number {
  return page.match(/^\| `[\w./*-]+` \|/gm)?.length ?? 0;
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const house = measure(join(import.meta.dirname, argv[1].endsWith('.js') ? '../..' : '..'));
  for (const [figure, value] of Object.entries(house.figures)) {
    console.log(`${String(value).padStart(7)} of ${String(LIMITS[figure as Figure]).padEnd(5)} ${figure}`);
  }
  console.log(`${String(house.lines).padStart(7)} lines, the median file has ${house.medianLines}`);
  console.log(`largest files:\n  ${house.largestFiles.join('\n  ')}`);
  console.log(`largest classes, by members:\n  ${house.largestClasses.join('\n  ')}`);
  for (const finding of grown(house)) console.error(`grown: ${finding}`);
  process.exitCode = grown(house).length === 0 ? 0 : 1;
}
