/** What is bundled, and where that goes: the package, and the programs of the tests. It bundles nothing itself; see rolldown.config.ts. */

import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';

/** A folder of bundles. Paths are relative to the repository. */
export interface Bundle {
  readonly folder: string;
  /** Each entry by its name: the module that it is made of. */
  readonly entries: Readonly<Record<string, string>>;
}

const ENGINE_THREAD = { 'engine-thread': 'src/emulator/device/engine-thread.ts' };

const PACKAGE: Bundle = {
  folder: 'dist/lib',
  entries: {
    index: 'src/index.ts',
    uct: 'src/uct/index.ts',
    hlthunk: 'src/hlthunk.ts',
    emulator: 'src/emulator/index.ts',
    main: 'src/tools/main.ts',
    'explain-peer-program': 'src/tools/explain/explain-peer-program.ts',
    'card-program': 'src/tools/demo/card-program.ts',
    ...ENGINE_THREAD,
  },
};

/** Modules that tests start as processes or threads. */
const PROGRAM = /-(program|thread)\.ts$/;

/**
 * All bundles of the repository: that of the package, and that of what tests start: programs, threads, examples, and what programs import that tests
 * write as text.
 * @param root the folder of the repository
 */
export function bundlesOf(root: string): readonly Bundle[] {
  const programs = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((file) => PROGRAM.test(file))
    .map((file) => join('test', file));
  const examples = readdirSync(join(root, 'examples'))
    .filter((file) => file.endsWith('.ts'))
    .map((file) => join('examples', file));
  const modules = [...programs, ...examples].map((file) => [basename(file, '.ts'), file] as const);
  const entries = { sys: 'src/sys/index.ts', ...ENGINE_THREAD, ...Object.fromEntries(modules) };
  return [PACKAGE, { folder: 'dist/programs', entries }];
}
