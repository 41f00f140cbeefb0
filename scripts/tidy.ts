/**
 * The rules of the repository that neither the compiler, nor the linter, nor the folder law can check: headers, sizes, banned calls, documented
 * error codes, links, traces of a machine. Run by test/tidy.test.ts; it changes nothing.
 */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import ts from 'typescript';

/** One violation of a rule. */
export interface Finding {
  readonly rule: string;
  /** Relative to the root. */
  readonly file: string;
  /** From 1. */
  readonly line: number;
  readonly what: string;
}

/** One file of the repository. */
export interface SourceText {
  /** Relative to the root, with slashes. */
  readonly file: string;
  readonly text: string;
}

const LINES_MAX = 500;
const IGNORED = new Set(['node_modules', 'dist', 'coverage', '.git']);
const TEXT_FILE = /(\.(ts|mjs|md|json|yml)|^LICENSE|^\.gitignore|\/run)$/;
const ERRORS = 'docs/ERRORS.md';
const ERROR_CODE = /ERR_[A-Z][A-Z0-9_]*|ERR_$/;
/** Concatenated, so that this file does not violate its own rules. */
const LEFTOVER = new RegExp(`\\b(${['TO', 'DO'].join('')}|${['FIX', 'ME'].join('')})\\b`);
const MACHINE_TRACES: readonly (readonly [RegExp, string])[] = [
  [/(?<![\w./-])\/(work|root|Users|home\/(?!u(ser)?\b))\/?[\w.]/, 'path of a machine'],
  [/https?:\/\/[^\s)"'`]*(registry|artifactory|nexus|npmjs|mirror)/, 'host of a package registry'],
  [/"resolved":/, 'download address'],
];

/** Words that name no process, peer or caller. docs/STYLE.md, which quotes them, is exempt, and so is NEWS.md. */
const VAGUE_WORD = /\b(somebody|nobody|anybody|whoever)\b/i;
const PAGE = /^(README|CONTRIBUTING|docs\/(?!STYLE)[A-Z]+|docs\/(?:guide|design|adr)\/[\w-]+)\.md$/;

/** Phrases that docs/STYLE.md replaces by plain English; "there is no" and "is no longer" are plain. */
const ODD_PHRASE =
  /(?<!\bthere )\bis no (?!longer\b)|\b(?:of its own|by itself|goes on|is told|is asked|what was|likewise for|a text|none of this)\b/i;

/** Calls that are permitted in some files only. */
interface Ban {
  readonly call: string;
  /** Permitted files, or folders with a final slash. */
  readonly allowed: readonly string[];
  readonly instead: string;
}

const CLOCK: readonly string[] = ['src/ucs/sys/clock.ts', 'src/tools/'];
const BANS: readonly Ban[] = [
  { call: 'Date.now', allowed: CLOCK, instead: 'take a Clock (ucs/sys/clock.ts)' },
  { call: 'performance.now', allowed: CLOCK, instead: 'take a Clock (ucs/sys/clock.ts)' },
  { call: 'process.hrtime', allowed: CLOCK, instead: 'take a Clock (ucs/sys/clock.ts)' },
  { call: 'setTimeout', allowed: CLOCK, instead: 'take a Clock (ucs/sys/clock.ts)' },
  { call: 'setInterval', allowed: CLOCK, instead: 'take a Clock (ucs/sys/clock.ts)' },
  { call: 'Math.random', allowed: ['src/ucs/sys/random.ts'], instead: 'take a random source (ucs/sys/random.ts)' },
  {
    call: 'process.env',
    allowed: ['src/assembly/', 'src/tools/', 'src/sys/process/process.ts'],
    instead: 'take the configuration as a parameter',
  },
  { call: 'console', allowed: ['src/tools/'], instead: 'take a Log (ucs/debug/log.ts)' },
];

/** Every violation in the repository at `root`. */
export function tidy(root: string): Finding[] {
  const files = textFiles(root);
  const findings = files.flatMap((file) => [...checkText(file), ...checkLinks(file, root)]);
  const sources = files.filter(({ file }) => isProduct(file));
  const table = files.find(({ file }) => file === ERRORS)?.text ?? '';
  const names = new Set(files.map((each) => basename(each.file)));
  const named = files.flatMap((each) => checkNames(each, names));
  return [...findings, ...named, ...sources.flatMap(checkSource), ...checkErrorCodes(sources, table)];
}

/** The text files below `root`, without dependencies and output. */
export function textFiles(root: string, folder: string = root): SourceText[] {
  const found: SourceText[] = [];
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (IGNORED.has(entry.name)) continue;
    const path = join(folder, entry.name);
    const file = relative(root, path);
    if (entry.isDirectory()) found.push(...textFiles(root, path));
    else if (entry.isFile() && TEXT_FILE.test(file)) found.push({ file, text: readFileSync(path, 'utf8') });
  }
  return found.sort((left, right) => (left.file < right.file ? -1 : 1));
}

/** Rules for every text file: leftovers, traces of a machine, vague words of pages, odd phrases, length of programs. */
export function checkText({ file, text }: SourceText): Finding[] {
  const findings: Finding[] = [];
  const lines = text.split('\n');
  for (const [index, line] of lines.entries()) {
    const at = { file, line: index + 1 };
    // This file and its test contain the patterns themselves.
    if (file === 'scripts/tidy.ts' || file === 'test/tidy.test.ts') continue;
    const leftover = LEFTOVER.exec(line);
    if (leftover !== null)
      findings.push({ ...at, rule: 'leftover', what: `${leftover[0]}: do it or make it an issue` });
    const vague = PAGE.test(file) ? VAGUE_WORD.exec(line) : null;
    if (vague !== null)
      findings.push({ ...at, rule: 'vague-word', what: `${vague[0]}: name the process, peer or caller` });
    const odd = ODD_PHRASE.exec(line);
    if (odd !== null) findings.push({ ...at, rule: 'odd-phrase', what: `${odd[0].trim()}: say it in plain English` });
    for (const [pattern, what] of MACHINE_TRACES) {
      const match = pattern.exec(line);
      if (match !== null) findings.push({ ...at, rule: 'machine-trace', what: `${what}: ${match[0]}` });
    }
  }
  if (file.endsWith('.ts') && lines.length - 1 > LINES_MAX) {
    findings.push({
      rule: 'file-length',
      file,
      line: LINES_MAX,
      what: `${lines.length - 1} lines, at most ${LINES_MAX}`,
    });
  }
  return findings;
}

/** Names of files that stand for a kind. */
const EXAMPLE_NAMES: ReadonlySet<string> = new Set(['kebab-case.ts', 'made-up.ts']);
/** A file of TypeScript in a sentence; with a hyphen before it, the end of a kind of names. */
const FILE_NAME = /(?<![\w$@<>'*./{-])((?:[\w.-]+\/)*\w[\w.-]*\.ts)\b/g;

/** Files that comments and pages name exist. NEWS tells of files that have gone. @param names of the files of the repository, without folders */
export function checkNames({ file, text }: SourceText, names: ReadonlySet<string>): Finding[] {
  if (file === 'NEWS.md' || file === 'test/tidy.test.ts' || file.startsWith('docs/api/')) return [];
  const isSource = file.endsWith('.ts');
  if (!isSource && !PAGE.test(file)) return [];
  return text.split('\n').flatMap((line, index) => {
    const [, comment = ''] = isSource ? (/(?:^\s*(?:\/\*)?\*|\/\/)(.*)$/.exec(line) ?? []) : ['', line];
    const missing = [...comment.matchAll(FILE_NAME)]
      .map(([, name]) => basename(name!))
      .filter((name) => !names.has(name));
    return missing
      .filter((name) => !EXAMPLE_NAMES.has(name))
      .map((name) => ({ rule: 'named-file', file, line: index + 1, what: `there is no ${name}` }));
  });
}

/** Rules for the files of the package: header and banned calls. */
export function checkSource({ file, text }: SourceText): Finding[] {
  const findings: Finding[] = [];
  if (!/^(#!.*\n)?\/\*\*[\s\S]*?\*\/\n\n/.test(text)) {
    findings.push({
      rule: 'header',
      file,
      line: 1,
      what: 'begin with a doc comment that says what the file is and what it is not, and an empty line',
    });
  }
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const report = (node: ts.Node, rule: string, what: string): void => {
    const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
    findings.push({ rule, file, line, what });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isThrowStatement(node) && ts.isNewExpression(node.expression)) {
      const thrown = node.expression.expression.getText(source);
      if (thrown === 'Error') report(node, 'bare-error', 'throw a UcxError (ucs/type/error.ts)');
    }
    const name = nameOf(node);
    const ban = name === undefined ? undefined : BANS.find(({ call }) => call === name);
    if (ban !== undefined && !ban.allowed.some((allowed) => file === allowed || isBelow(file, allowed))) {
      report(node, 'banned-call', `${ban.call}: ${ban.instead}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return findings;
}

/** Codes in the sources without a row in docs/ERRORS.md, and rows without a source. */
export function checkErrorCodes(sources: readonly SourceText[], table: string): Finding[] {
  const rows = new Map(table.split('\n').flatMap((line, index) => rowsOf(line).map((code) => [code, index + 1])));
  const used = new Set<string>();
  const findings: Finding[] = [];
  for (const { file, text } of sources) {
    for (const { code, line } of codesIn(file, text)) {
      const row = code.endsWith('_') ? [...rows.keys()].find((key) => key.startsWith(`${code}<`)) : code;
      if (row !== undefined && rows.has(row)) used.add(row);
      else findings.push({ rule: 'error-code', file, line, what: `${code} has no row in ${ERRORS}` });
    }
  }
  for (const [code, line] of rows) {
    if (!used.has(code))
      findings.push({ rule: 'error-code', file: ERRORS, line, what: `${code} occurs nowhere in src` });
  }
  return findings;
}

/** Broken relative links of a page: a missing file or a missing heading. */
export function checkLinks({ file, text }: SourceText, root: string): Finding[] {
  if (!file.endsWith('.md')) return [];
  const findings: Finding[] = [];
  const lines = withoutCode(text).split('\n');
  for (const [index, line] of lines.entries()) {
    for (const match of line.matchAll(/\]\(([^)\s]+)\)/g)) {
      const link = match[1]!;
      if (/^[a-z]+:/.test(link)) continue;
      const [path = '', anchor] = link.split('#');
      const target = path === '' ? join(root, file) : join(root, dirname(file), path);
      const broken = !existsSync(target) || (anchor !== undefined && !headings(target).has(anchor));
      if (broken) findings.push({ rule: 'link', file, line: index + 1, what: `${link} leads nowhere` });
    }
  }
  return findings;
}

function isProduct(file: string): boolean {
  return file.startsWith('src/') && file.endsWith('.ts') && !file.endsWith('.test.ts');
}

function isBelow(file: string, folder: string): boolean {
  return folder.endsWith('/') && file.startsWith(folder);
}

/** `a.b` for a property access on an identifier, `f` for a global used as a value; undefined for declarations and members. */
function nameOf(node: ts.Node): string | undefined {
  if (ts.isPropertyAccessExpression(node) && ts.isIdentifier(node.expression)) {
    return `${node.expression.text}.${node.name.text}`;
  }
  if (!ts.isIdentifier(node)) return undefined;
  const { parent } = node;
  if (ts.isCallExpression(parent)) return node.text;
  return ts.isPropertyAccessExpression(parent) && parent.expression === node ? node.text : undefined;
}

/** The codes that a row documents: its first cell. */
function rowsOf(line: string): string[] {
  const cell = /^\| (`ERR_[^|]*?) +\|/.exec(line)?.[1] ?? '';
  return [...cell.matchAll(/`(ERR_[^`]+)`/g)].map((match) => match[1]!);
}

/** Codes in string literals; a template such as `ERR_SYSCALL_${name}` gives its prefix, which ends in an underscore. */
function codesIn(file: string, text: string): { code: string; line: number }[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: { code: string; line: number }[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isStringLiteralLike(node) || ts.isTemplateHead(node)) {
      const match = ERROR_CODE.exec(node.text);
      const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
      if (match !== null && match.index === 0 && match[0] === node.text) found.push({ code: match[0], line });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** The anchors of a page as GitHub generates them: those of a repeated heading have a number. */
function headings(path: string): Set<string> {
  if (!path.endsWith('.md') || !statSync(path).isFile()) return new Set();
  const lines = withoutCode(readFileSync(path, 'utf8')).split('\n');
  const titles = lines.filter((line) => /^#+ /.test(line)).map((line) => line.replace(/^#+ /, ''));
  const anchors = new Set(lines.flatMap((line) => [...line.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id!)));
  const times = new Map<string, number>();
  for (const title of titles) {
    const anchor = title
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-');
    const before = times.get(anchor) ?? 0;
    times.set(anchor, before + 1);
    anchors.add(before === 0 ? anchor : `${anchor}-${before}`);
  }
  return anchors;
}

/** The text with empty code blocks, so that line numbers stay. */
function withoutCode(text: string): string {
  return text.replace(/```[\s\S]*?```/g, (block) => block.replace(/[^\n]/g, ''));
}
