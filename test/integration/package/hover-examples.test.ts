/** The functions with which programs begin have an example in their doc comments, which editors show; each compiles. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';
import { entryProgram } from '../../../scripts/api-doc.ts';
import { ROOT } from '../../fixtures/tools/built.ts';

/** The declarations that need an example, by entry: `Type.member`, or the name of a function. */
const NEEDED: Readonly<Record<string, readonly string[]>> = {
  'src/index.ts': [
    'Context.create',
    'Context.memMap',
    'Context.worker',
    'Context.packRkey',
    'Worker.endpoint',
    'Worker.connect',
    'Worker.listener',
    'Worker.tagRecv',
    'Worker.setAmHandler',
    'Worker.messages',
    'Worker.notifications',
    'Endpoint.put',
    'Endpoint.get',
    'Endpoint.putList',
    'Endpoint.notify',
    'Endpoint.atomic',
    'Endpoint.tagSend',
    'Endpoint.amSend',
    'Endpoint.streamSend',
    'Endpoint.streamRecv',
    'Endpoint.stream',
  ],
  'src/hlthunk.ts': ['open', 'openDevice', 'dmaHostToDeviceAsync'],
  'src/emulator/index.ts': ['createEmulatedNode'],
  'src/coll/index.ts': ['createTeam'],
};

/** What an example may use besides the names of its entry. */
const GIVEN = `
import type { Context as GivenContext, Endpoint, MemoryHandle, RemoteKey, Worker } from 'ROOT/src/index.ts';
import type { Device } from 'ROOT/src/hlthunk.ts';
export async function example(given: {
  context: GivenContext, worker: Worker, endpoint: Endpoint, memory: MemoryHandle, rkey: RemoteKey, peerAddress: Uint8Array, device: Device,
}): Promise<void> {
  const { context, worker, endpoint, memory, rkey, peerAddress, device } = given;
  void [context, worker, endpoint, memory, rkey, peerAddress, device];
  {
    EXAMPLE
  }
}
`;

const TSC = join(ROOT, 'node_modules/typescript-7/bin/tsc');
const OPTIONS = {
  allowImportingTsExtensions: true,
  exactOptionalPropertyTypes: true,
  lib: ['es2023', 'esnext.disposable'],
  module: 'node20',
  noEmit: true,
  noUncheckedIndexedAccess: true,
  skipLibCheck: true,
  strict: true,
  target: 'es2023',
  typeRoots: [join(ROOT, 'node_modules/@types')],
  types: ['node'],
};

/** The examples of an entry, in the doc comments of its exports and of their members, by name. */
function examplesOf(program: ts.Program, entry: string): ReadonlyMap<string, string> {
  const checker = program.getTypeChecker();
  const found = new Map<string, string>();
  const read = (name: string, symbol: ts.Symbol): void => {
    for (const { name: tag, text } of symbol.getJsDocTags(checker)) {
      const [, code] = /```ts\n([\s\S]*?)```/.exec(ts.displayPartsToString(text)) ?? [];
      if (tag === 'example' && code !== undefined) found.set(name, code);
    }
  };
  for (const exported of checker.getExportsOfModule(
    checker.getSymbolAtLocation(program.getSourceFile(join(ROOT, entry))!)!,
  )) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    read(exported.name, symbol);
    const types = [checker.getDeclaredTypeOfSymbol(symbol), checker.getTypeOfSymbol(symbol)];
    for (const member of types.flatMap((type) => type.getProperties())) {
      const isOwn = member.declarations?.some((node) => node.getSourceFile().fileName.startsWith(join(ROOT, 'src')));
      if (isOwn === true) read(`${exported.name}.${member.name}`, member);
    }
  }
  return found;
}

/** What the compiler says about programs of examples, by the names of the examples. */
function errorsOf(programs: ReadonlyMap<string, string>): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-examples-'));
  try {
    const names = [...programs.keys()];
    for (const [i, text] of [...programs.values()].entries()) writeFileSync(join(folder, `example-${i}.ts`), text);
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: OPTIONS }));
    const { stdout } = spawnSync(process.execPath, [TSC, '-p', folder], { encoding: 'utf8' });
    return stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => line.replace(/^.*example-(\d+)\.ts/, (_, i: string) => names[Number(i)]!));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The program of an example, which imports every value that it uses from its entry. */
function textOf(entry: string, code: string, values: readonly string[]): string {
  const used = values.filter((name) => new RegExp(`\\b${name}\\b`).test(code));
  const imports = used.length === 0 ? '' : `import { ${used.join(', ')} } from 'ROOT/${entry}';\n`;
  return (imports + GIVEN).replaceAll('ROOT', ROOT).replace('EXAMPLE', () => code);
}

it('has them, and they compile', { timeout: 60_000 }, () => {
  const program = entryProgram(ROOT);
  const checker = program.getTypeChecker();
  const programs = new Map<string, string>();
  for (const [entry, needed] of Object.entries(NEEDED)) {
    const examples = examplesOf(program, entry);
    expect(needed.filter((name) => !examples.has(name))).toEqual([]);
    const module = checker.getSymbolAtLocation(program.getSourceFile(join(ROOT, entry))!)!;
    const values = checker.getExportsOfModule(module).map(({ name }) => name);
    for (const [name, code] of examples) programs.set(name, textOf(entry, code, values));
  }
  expect(errorsOf(programs)).toEqual([]);
});

it('says what does not compile', () => {
  const programs = new Map([['Endpoint.put', textOf('src/index.ts', 'await endpoint.putt(memory, rkey);', [])]]);
  expect(errorsOf(programs)).toEqual([expect.stringMatching(/^Endpoint\.put.*Property 'putt' does not exist/)]);
});
