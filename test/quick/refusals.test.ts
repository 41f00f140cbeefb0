/** Each place where the emulated driver or card refuses something has a rule with a source in the tables, and each rule has its place. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { DEVICE_REFUSALS, DROPS } from './refusals/device.ts';
import { DRIVER_REFUSALS } from './refusals/driver.ts';
import { SOURCES } from './refusals/source.ts';

const EMULATOR = join(import.meta.dirname, '../../src/emulator');
/** Methods that report a fault of a packet. */
const REPORTS: ReadonlySet<string> = new Set(['razwi', 'pageFault', 'undefinedOpcode', 'engineError']);

/** The functions of a file, and what each refuses, in the order of the source. */
function refusalsOf(file: string, into: Map<string, string[]>): void {
  const source = ts.createSourceFile(file, readFileSync(join(EMULATOR, file), 'utf8'), ts.ScriptTarget.Latest, true);
  const visit = (node: ts.Node, place: string): void => {
    const name = nameOf(node, source);
    const inside = name === undefined ? place : `${place}${place.endsWith(' ') ? '' : '.'}${name}`;
    if (name !== undefined && !into.has(inside)) into.set(inside, []);
    const effect = effectOf(node);
    if (effect !== undefined) into.get(inside)!.push(effect);
    ts.forEachChild(node, (child) => visit(child, inside));
  };
  into.set(`${file} `, []);
  visit(source, `${file} `);
}

/** The name of a function, of a class or property around functions, or of a value of the file. */
function nameOf(node: ts.Node, source: ts.SourceFile): string | undefined {
  const isMember = ts.isMethodDeclaration(node) || ts.isGetAccessor(node) || ts.isPropertyDeclaration(node);
  if (isMember || ts.isPropertyAssignment(node)) return node.name.getText(source);
  if (ts.isConstructorDeclaration(node)) return 'constructor';
  if (ts.isFunctionDeclaration(node) || ts.isClassDeclaration(node)) return node.name?.getText(source);
  return ts.isVariableDeclaration(node) && node.parent.parent.parent === source ? node.name.getText(source) : undefined;
}

/** The errno, report or stop that an expression is; comparisons with an errno refuse nothing. */
function effectOf(node: ts.Node): string | undefined {
  const { parent } = node;
  if (ts.isPropertyAccessExpression(node) && node.expression.getText() === 'Errno') {
    const isCompared = ts.isBinaryExpression(parent) && /^[!=]==$/.test(parent.operatorToken.getText());
    const isTested = ts.isCallExpression(parent) && parent.expression.getText() === 'isSyscallError';
    return isCompared || isTested ? undefined : node.name.text;
  }
  if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
    const { text } = node.expression.name;
    return REPORTS.has(text) ? text : undefined;
  }
  if (ts.isStringLiteral(node) && node.text === 'failed') {
    return ts.isLiteralTypeNode(parent) || ts.isBinaryExpression(parent) ? undefined : 'failed';
  }
  const isStop = ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken;
  return isStop && /\.stopped$/.test(node.left.getText()) && node.right.getText() === 'true' ? 'stopped' : undefined;
}

const found = new Map<string, string[]>();
for (const folder of ['driver', 'device']) {
  for (const name of readdirSync(join(EMULATOR, folder), { recursive: true, encoding: 'utf8' })) {
    if (/(?<!\.test)\.ts$/.test(name)) refusalsOf(`${folder}/${name}`, found);
  }
}
const ROWS = [...DRIVER_REFUSALS, ...DEVICE_REFUSALS];

describe('refusals of the emulator', () => {
  it.each(ROWS)('of $place are those of the table', ({ place, rules }) => {
    expect(rules.map(([effect]) => effect)).toEqual(found.get(place));
  });

  it('are all in the table, each function once', () => {
    const refusing = [...found].filter(([, effects]) => effects.length > 0).map(([place]) => place);
    expect(ROWS.map(({ place }) => place).sort()).toEqual(refusing.sort());
  });

  it('that are not reported are in functions that exist', () => {
    expect(DROPS.filter(([place]) => !found.has(place))).toEqual([]);
  });

  it('have a source in driver or specification, or are marked as a choice', () => {
    const sources = ROWS.flatMap(({ source, rules }) => [source, ...rules.map(([, , own]) => own ?? source)]);
    for (const source of [...sources, ...DROPS.map(([, , own]) => own)]) {
      expect([source, SOURCES.some((form) => form.test(source))]).toEqual([source, true]);
    }
  });
});
