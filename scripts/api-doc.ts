/**
 * Which public symbols have no doc comment: the exports of the package's entries and their public members. Run by test/api-doc.test.ts; the reference itself is
 * made by typedoc (`npm run docs`), which takes too long for every change.
 */

import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';

/** A public symbol without a doc comment. */
export interface Undocumented {
  /** `Worker.listener` for a member, `FEATURES` for an export. */
  readonly name: string;
  /** Relative to the root. */
  readonly file: string;
  /** From 1. */
  readonly line: number;
}

/** The entries of the package at `root`, relative to it: those that typedoc documents. */
export function documentedEntries(root: string): string[] {
  return (JSON.parse(readFileSync(join(root, 'typedoc.json'), 'utf8')) as { entryPoints: string[] }).entryPoints;
}

/** The program of the package's entries at `root`, with the sources alone: comments need neither the standard library nor dependencies. */
export function entryProgram(root: string): ts.Program {
  const options: ts.CompilerOptions = {
    allowImportingTsExtensions: true,
    module: ts.ModuleKind.Node20,
    noEmit: true,
    noLib: true,
    target: ts.ScriptTarget.ESNext,
    types: [],
  };
  return ts.createProgram(
    documentedEntries(root).map((entry) => join(root, entry)),
    options,
  );
}

/** Every symbol that the root files of `program` export, and every public member of one, that has no doc comment; in the order of the files. */
export function undocumented(program: ts.Program, root: string): Undocumented[] {
  const checker = program.getTypeChecker();
  const found = new Map<ts.Node, Undocumented>();
  const report = (node: ts.Node, name: string): void => {
    const source = node.getSourceFile();
    const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
    found.set(node, { name, file: relative(root, source.fileName), line });
  };
  const exported = program.getRootFileNames().flatMap((file) => {
    const module = checker.getSymbolAtLocation(program.getSourceFile(file)!);
    return module === undefined ? [] : checker.getExportsOfModule(module);
  });
  for (const alias of exported) {
    const symbol = alias.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(alias) : alias;
    const declarations = symbol.declarations ?? [];
    if (!declarations.some(isDocumented)) for (const node of declarations) report(node, alias.name);
    for (const declaration of declarations) {
      if (isKernelTable(declaration, root)) continue;
      for (const member of membersOf(declaration)) {
        if (!isDocumented(member) && !isInheritedDocumented(member, declaration, checker)) {
          report(member, `${alias.name}.${member.name!.getText()}`);
        }
      }
    }
  }
  return [...found.values()].sort((a, b) => (a.file === b.file ? a.line - b.line : a.file < b.file ? -1 : 1));
}

/** The named public members of an interface, a class, a type of an object, or a constant object of codes. */
function membersOf(declaration: ts.Declaration): ts.NamedDeclaration[] {
  const members = memberNodes(declaration).filter((member) => member.name !== undefined && !isDiscriminant(member));
  const documented = new Set(members.filter(isDocumented).map(({ name }) => name!.getText()));
  // Of overloads, and of a pair of accessors, one has the comment.
  return members.filter((member) => isDocumented(member) || !documented.has(member.name!.getText()));
}

function memberNodes(declaration: ts.Node): readonly ts.NamedDeclaration[] {
  if (ts.isInterfaceDeclaration(declaration) || ts.isTypeLiteralNode(declaration)) return [...declaration.members];
  if (ts.isClassDeclaration(declaration)) return declaration.members.filter(isPublic);
  if (ts.isTypeAliasDeclaration(declaration)) return partsOf(declaration.type).flatMap(memberNodes);
  if (ts.isVariableDeclaration(declaration) && declaration.initializer !== undefined) {
    const value = withoutAssertion(declaration.initializer);
    if (declaration.type === undefined && ts.isObjectLiteralExpression(value)) return [...value.properties];
  }
  return [];
}

/** Whether this is a table of the kernel ABI, whose entries have the names, and so the meaning, of the kernel header. */
function isKernelTable(declaration: ts.Node, root: string): boolean {
  const file = relative(root, declaration.getSourceFile().fileName);
  return ts.isVariableDeclaration(declaration) && file.startsWith('src/uapi/');
}

/** `kind: 'open'`: the word is its own meaning. */
function isDiscriminant(member: ts.NamedDeclaration): boolean {
  return ts.isPropertySignature(member) && member.type !== undefined && ts.isLiteralTypeNode(member.type);
}

/** The types that a union, an intersection or parentheses are made of. */
function partsOf(type: ts.TypeNode): ts.TypeNode[] {
  if (ts.isUnionTypeNode(type) || ts.isIntersectionTypeNode(type)) return type.types.flatMap(partsOf);
  return ts.isParenthesizedTypeNode(type) ? partsOf(type.type) : [type];
}

function withoutAssertion(value: ts.Expression): ts.Expression {
  return ts.isAsExpression(value) || ts.isSatisfiesExpression(value) ? withoutAssertion(value.expression) : value;
}

function isPublic(member: ts.ClassElement): boolean {
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  if (ts.isConstructorDeclaration(member) || ts.isClassStaticBlockDeclaration(member)) return false;
  // [Symbol.dispose] and [Symbol.asyncDispose] have their meaning from the language.
  if (member.name === undefined || ts.isPrivateIdentifier(member.name) || ts.isComputedPropertyName(member.name))
    return false;
  return (ts.getCombinedModifierFlags(member) & hidden) === 0;
}

/** Whether a declaration has a doc comment with text or with a tag. */
function isDocumented(declaration: ts.Node): boolean {
  const comments = ts.getJSDocCommentsAndTags(declaration).filter(ts.isJSDoc);
  return comments.some(({ comment, tags }) => (comment !== undefined && comment.length > 0) || (tags?.length ?? 0) > 0);
}

/** Whether a member of a class is one of a type that the class extends or implements, and has its comment there. */
function isInheritedDocumented(member: ts.NamedDeclaration, owner: ts.Node, checker: ts.TypeChecker): boolean {
  if (!ts.isClassDeclaration(owner) && !ts.isInterfaceDeclaration(owner)) return false;
  const bases = owner.heritageClauses?.flatMap(({ types }) => [...types]) ?? [];
  return bases.some((base) => {
    const inherited = checker.getTypeAtLocation(base).getProperty(member.name!.getText());
    return inherited?.declarations?.some(isDocumented) ?? false;
  });
}
