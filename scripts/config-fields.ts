/**
 * Finds the readers of every configuration field, by its type and not by its name alone. Run by test/config-fields.test.ts, because a
 * variable that nothing reads must not exist. It examines sources only; the test compares the tables at run time.
 */

import { join, relative } from 'node:path';
import ts from 'typescript';

/** An exported table of the sources with the fields of its type. */
export interface DeclaredTable {
  /** Name of the constant: `POSIX_CONFIG_TABLE`. */
  readonly name: string;
  /** Relative to the root. */
  readonly file: string;
  readonly fields: readonly string[];
  /** Fields that no code reads from a value of that type. */
  readonly unread: readonly string[];
}

/** The program of the sources at `root`, as tsconfig.json has it, without their tests. */
export function repositoryProgram(root: string): ts.Program {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile) as { config: unknown };
  const { options, fileNames } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  return ts.createProgram(
    fileNames.filter((file) => relative(root, file).startsWith('src/') && !file.endsWith('.test.ts')),
    options,
  );
}

/** Every exported `*_CONFIG_TABLE` of a program. Test files are ignored. */
export function declaredTables(program: ts.Program, root: string): DeclaredTable[] {
  const checker = program.getTypeChecker();
  const sources = program
    .getSourceFiles()
    .filter(({ fileName }) => !/\/node_modules\/|\.d\.ts$|\.test\.ts$/.test(fileName));
  const read = new Set(sources.flatMap((source) => readProperties(source, checker)));
  return sources.flatMap((source) =>
    tablesOf(source).map(({ name }) => {
      const values = checker.getTypeArguments(checker.getTypeAtLocation(name) as ts.TypeReference)[0];
      const fields = values === undefined ? [] : checker.getPropertiesOfType(values);
      return {
        name: name.getText(),
        file: relative(root, source.fileName),
        fields: fields.map((field) => field.name),
        unread: fields.filter(({ declarations }) => !declarations?.some((each) => read.has(each))).map((f) => f.name),
      };
    }),
  );
}

function tablesOf(source: ts.SourceFile): ts.VariableDeclaration[] {
  return source.statements
    .filter(ts.isVariableStatement)
    .filter(({ modifiers }) => modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword))
    .flatMap(({ declarationList }) => [...declarationList.declarations])
    .filter(({ name }) => /_CONFIG_TABLE$/.test(name.getText()));
}

/** The declarations of the properties in capitals that a file reads from objects: `values.TLS`, `const { TLS } = values`, also as a parameter. */
function readProperties(source: ts.SourceFile, checker: ts.TypeChecker): ts.Node[] {
  const found: ts.Node[] = [];
  const take = (object: ts.Node, name: string): void => {
    if (!/^[A-Z][A-Z0-9_]*$/.test(name)) return;
    const property = checker.getPropertyOfType(checker.getTypeAtLocation(object), name);
    found.push(...(property?.declarations ?? []));
  };
  const visit = (node: ts.Node): void => {
    if (ts.isPropertyAccessExpression(node)) take(node.expression, node.name.text);
    else if (ts.isBindingElement(node) && ts.isObjectBindingPattern(node.parent)) {
      take(node.parent, (node.propertyName ?? node.name).getText(source));
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}
