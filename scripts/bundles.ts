/** The bundles of the package, and of the programs that tests start, as data; see rolldown.config.ts. */

import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';

/** A folder of bundles. Paths are relative to the repository. */
export interface Bundle {
  readonly folder: string;
  /** Module of each entry by its name. */
  readonly entries: Readonly<Record<string, string>>;
}

const ENGINE_THREAD = { 'engine-thread': 'src/emulator/device/engine/engine-thread.ts' };

const PACKAGE: Bundle = {
  folder: 'dist/lib',
  entries: {
    index: 'src/index.ts',
    uct: 'src/uct.ts',
    hlthunk: 'src/hlthunk.ts',
    emulator: 'src/emulator/index.ts',
    coll: 'src/coll/index.ts',
    main: 'src/tools/main.ts',
    'explain-peer-program': 'src/tools/explain/explain-peer-program.ts',
    'coll-rank-program': 'src/tools/coll/coll-rank-program.ts',
    'pattern-rank-program': 'src/tools/perftest/pattern/pattern-rank-program.ts',
    'perftest-thread': 'src/tools/perftest/perftest-thread.ts',
    'card-program': 'src/tools/demo/card-program.ts',
    'device-server-program': 'src/tools/node/device-server-program.ts',
    'supervisor-program': 'src/tools/node/supervisor-program.ts',
    'mount-guard-thread': 'src/emulator/device-nodes/mount-guard-thread.ts',
    ...ENGINE_THREAD,
  },
};

/** Modules that tests start as processes or threads. */
const PROGRAM = /-(program|thread)\.ts$/;
/** The modules of a folder of the repository, with paths relative to it. */
function modulesOf(root: string, folder: string): readonly string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => join(folder, file));
}

/**
 * All bundles of the repository: that of the package, and that of the programs of tests: programs, threads, examples, and modules that programs
 * written as text by tests import.
 * @param root the folder of the repository
 */
export function bundlesOf(root: string): readonly Bundle[] {
  const programs = modulesOf(root, 'test').filter((file) => PROGRAM.test(file));
  // Those of test runners load modules as they do.
  const examples = modulesOf(root, 'examples').filter((file) => !file.startsWith('examples/testing/'));
  const modules = [...programs, ...examples].map((file) => [basename(file, '.ts'), file] as const);
  const entries = { sys: 'src/sys/index.ts', ...ENGINE_THREAD, ...Object.fromEntries(modules) };
  return [PACKAGE, { folder: 'dist/programs', entries }];
}
