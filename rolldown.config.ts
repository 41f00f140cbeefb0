/**
 * How the package and the programs of its tests are bundled: one file for each entry point, thread and program, and the parts that they share, all in
 * one folder. Node.js opens the modules of a package all at once: 600 of them take a second and do not fit under `ulimit -n 128`. Types
 * and checks are the compiler's.
 */

import { defineConfig, type OutputOptions, type RolldownOptions } from 'rolldown';
import { dts } from 'rolldown-plugin-dts';
import { type Bundle, bundlesOf } from './scripts/bundles.ts';

type Groups = NonNullable<Exclude<OutputOptions['codeSplitting'], boolean | undefined>['groups']>;

const GROUPS: Groups = [
  // A separate chunk, so that it is evaluated before a file that imports the FFI.
  { name: 'platform', test: /src\/sys\/base\/platform\.ts$/, priority: 2 },
  // Not with it: the command line prints its refusal as it prints other errors.
  { name: 'type', test: /src\/ucs\/type\/(?!.*\.test\.ts)/, priority: 3 },
  // All that the thread of an engine needs, which starts with its node: a fifth of the part that it shares with programs.
  {
    name: 'engine',
    test: /src\/(?!.*\.test\.ts)(sys\/|ucs\/(sys\/clock|datastruct\/(interval-map|recent-finds)|debug\/uncaught)\.ts$|emulator\/device\/engine\/(dma-ring|engine-program)\.ts$)/,
    priority: 2,
  },
  // All that `gaudi-ucx --version` needs.
  { name: 'package', test: /src\/ucs\/sys\/package\.ts$/, priority: 3 },
];
/** One part for what many entries share: a program that imports the package opens 13 files instead of 30, which takes 12 ms less of 90. */
const SHARED: Groups = [{ name: 'shared', test: /src\/(?!tools\/)/, minShareCount: 13, priority: 1 }];

function bundle({ folder, entries }: Bundle, options: RolldownOptions): RolldownOptions {
  return {
    platform: 'node',
    transform: { target: 'es2023' },
    ...options,
    input: { ...entries },
    output: {
      dir: folder,
      cleanDir: true,
      entryFileNames: '[name].js',
      chunkFileNames: '[name]-[hash].js',
      sourcemap: true,
      // What V8 reads at every start: it keeps a source with one other character in twice the memory.
      comments: false,
      minify: { compress: false, mangle: false, codegen: { removeWhitespace: false, asciiOnly: true } },
      // A class that is renamed, because the bundle has another of its name, gets it back, which makes `instanceof` of it slow: those of hot paths
      // have names of their own.
      keepNames: true,
      codeSplitting: { groups: [...GROUPS, ...SHARED] },
    },
  };
}

/** The declarations that the compiler has made: a file for each entry, and what they share, without those that no entry reaches. */
const DECLARATIONS: RolldownOptions = {
  input: {
    index: 'dist/src/index.d.ts',
    uct: 'dist/src/uct.d.ts',
    hlthunk: 'dist/src/hlthunk.d.ts',
    emulator: 'dist/src/emulator/index.d.ts',
    coll: 'dist/src/coll/index.d.ts',
  },
  plugins: [dts({ dtsInput: true })],
  external: ['koffi', 'commander', 'prom-client'],
  output: { dir: 'dist/types', cleanDir: true, chunkFileNames: 'shared/[name].d.ts' },
};

const options: RolldownOptions[] = defineConfig([
  // No other package may come into a bundle; see test/fixtures/tools/built.test.ts.
  ...bundlesOf('.').map((one) =>
    bundle(one, { external: ['koffi', 'commander', 'prom-client', 'vitest', 'fastify', '@opentelemetry/api'] }),
  ),
  DECLARATIONS,
]);

export default options;
