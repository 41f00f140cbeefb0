/**
 * Finds tests that assert nothing: whose function reaches neither `expect` nor a helper that does, in their file or in a fixture that it imports. Run by
 * test/assertions.test.ts.
 */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import ts from 'typescript';

/** Names of assertions: `expect`, `expectSame`, `fc.assert`, and the parts of other names that say the same. */
const ASSERTS = /^(expect|assert)/;
/** Functions whose calls are tests. */
const TESTS: ReadonlySet<string> = new Set(['it', 'test']);

/** A test without an assertion. */
export interface EmptyTest {
  /** From 1. */
  readonly line: number;
  readonly title: string;
}

/** What a file declares. */
interface Declared {
  readonly source: ts.SourceFile;
  /** Functions, values and methods by their names. */
  readonly bodies: ReadonlyMap<string, readonly ts.Node[]>;
  /** The file and the name of everything that is imported from another file, or exported again. */
  readonly imports: ReadonlyMap<string, readonly [file: string, name: string]>;
}

/** Reads the sources of tests and of their fixtures, each once. */
export class AssertionCheck {
  readonly #files = new Map<string, Declared | undefined>();
  readonly #found = new Map<string, boolean>();
  readonly #textOf: (file: string) => string | undefined;

  /** @param textOf the text of a file; undefined if there is none */
  constructor(textOf: (file: string) => string | undefined = textOfFile) {
    this.#textOf = textOf;
  }

  /** The tests of a file that assert nothing. */
  emptyTests(file: string): readonly EmptyTest[] {
    const declared = this.#load(file);
    const found: EmptyTest[] = [];
    const visit = (node: ts.Node): void => {
      if (ts.isCallExpression(node) && isTest(node) && !this.#runs(node, file)) {
        const { source } = declared!;
        const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
        found.push({ line, title: node.arguments[0]!.getText(source) });
      }
      ts.forEachChild(node, visit);
    };
    if (declared !== undefined) visit(declared.source);
    return found;
  }

  /** Whether the function of a test reaches an assertion. */
  #runs({ arguments: [, ...rest] }: ts.CallExpression, file: string): boolean {
    return rest.some((each) => (ts.isIdentifier(each) ? this.#asserts(each.text, file) : this.#reaches(each, file)));
  }

  #reaches(node: ts.Node, file: string): boolean {
    if (ts.isCallExpression(node) && this.#callAsserts(node, file)) return true;
    // Functions that a list has, and a loop over it.
    const listed = ts.isArrayLiteralExpression(node)
      ? node.elements
      : ts.isForOfStatement(node)
        ? [node.expression]
        : [];
    if ([...listed].filter(ts.isIdentifier).some(({ text }) => this.#asserts(text, file))) return true;
    return ts.forEachChild(node, (child) => this.#reaches(child, file) || undefined) ?? false;
  }

  /** Whether a call is an assertion, or calls or passes on a function that reaches one. */
  #callAsserts({ expression, arguments: args }: ts.CallExpression, file: string): boolean {
    const names = [...args].filter(ts.isIdentifier).map(({ text }) => text);
    if (ts.isIdentifier(expression)) names.push(expression.text);
    if (ts.isPropertyAccessExpression(expression)) {
      const { text } = expression.name;
      const { expression: object } = expression;
      if (ASSERTS.test(text) || (ts.isIdentifier(object) && ASSERTS.test(object.text))) return true;
      // A method of an object that is declared or imported here.
      const files = [...(this.#load(file)?.imports.values() ?? [])].map(([from]) => from);
      if ([file, ...files].some((from) => this.#asserts(text, from))) return true;
    }
    return names.some((name) => ASSERTS.test(name) || this.#asserts(name, file));
  }

  /** Whether something that a name stands for in a file reaches an assertion. */
  #asserts(name: string, file: string): boolean {
    const key = `${file} ${name}`;
    const known = this.#found.get(key);
    if (known !== undefined) return known;
    // Functions that call each other.
    this.#found.set(key, false);
    const declared = this.#load(file);
    const imported = declared?.imports.get(name);
    const result =
      (declared?.bodies.get(name) ?? []).some((body) => this.#reaches(body, file)) ||
      (imported !== undefined && (ASSERTS.test(imported[1]) || this.#asserts(imported[1], imported[0])));
    this.#found.set(key, result);
    return result;
  }

  #load(file: string): Declared | undefined {
    if (!this.#files.has(file)) {
      const text = this.#textOf(file);
      this.#files.set(file, text === undefined ? undefined : declaredIn(file, text));
    }
    return this.#files.get(file);
  }
}

/** Sources of the product do not assert. */
function textOfFile(file: string): string | undefined {
  const isTestCode = /\.test\.ts$|\/test\//.test(file);
  return isTestCode && existsSync(file) ? readFileSync(file, 'utf8') : undefined;
}

/** Whether a call defines a test with a function: `it(...)`, `it.skipIf(...)(...)`, `it.each(...)(...)`. */
function isTest({ expression, arguments: args }: ts.CallExpression): boolean {
  let callee: ts.Expression = expression;
  while (ts.isCallExpression(callee) || ts.isPropertyAccessExpression(callee)) callee = callee.expression;
  const isDefined = ts.isIdentifier(callee) && TESTS.has(callee.text);
  return isDefined && args.slice(1).some((each) => ts.isArrowFunction(each) || ts.isIdentifier(each));
}

function declaredIn(file: string, text: string): Declared {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const bodies = new Map<string, ts.Node[]>();
  const imports = new Map<string, readonly [string, string]>();
  const take = (elements: ts.NodeArray<ts.ImportSpecifier | ts.ExportSpecifier>, from: ts.Expression): void => {
    if (!ts.isStringLiteral(from) || !from.text.startsWith('.')) return;
    for (const { name, propertyName } of elements) {
      imports.set(name.text, [join(dirname(file), from.text), (propertyName ?? name).text]);
    }
  };
  const visit = (node: ts.Node): void => {
    const name = nameOf(node);
    if (name !== undefined) bodies.set(name, [...(bodies.get(name) ?? []), node]);
    if (ts.isImportDeclaration(node)) {
      const named = node.importClause?.namedBindings;
      if (named !== undefined && ts.isNamedImports(named)) take(named.elements, node.moduleSpecifier);
    } else if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined) {
      const { exportClause } = node;
      if (exportClause !== undefined && ts.isNamedExports(exportClause))
        take(exportClause.elements, node.moduleSpecifier);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { source, bodies, imports };
}

/** The name of a function, a method or a value. */
function nameOf(node: ts.Node): string | undefined {
  if (ts.isVariableDeclaration(node) && node.initializer === undefined) return undefined;
  const isNamed =
    ts.isFunctionDeclaration(node) ||
    ts.isClassDeclaration(node) ||
    ts.isMethodDeclaration(node) ||
    ts.isVariableDeclaration(node) ||
    ts.isPropertyAssignment(node);
  return isNamed && node.name !== undefined && ts.isIdentifier(node.name) ? node.name.text : undefined;
}
