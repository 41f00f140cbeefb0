/**
 * How the package, and the programs of its tests, are bundled: one file for each entry point, thread and program, and the parts that they share, all
 * in one folder. Node.js opens the modules of a package all at once: 600 of them take a second and do not fit under `ulimit -n 128`. Types and checks
 * are the compiler's.
 */

import { defineConfig, type RolldownOptions } from 'rolldown';
import { bundlesOf } from './scripts/bundles.ts';

const options: RolldownOptions[] = defineConfig(
  bundlesOf('.').map(
    ({ folder, entries }): RolldownOptions => ({
      input: { ...entries },
      platform: 'node',
      transform: { target: 'es2023' },
      // None of these may come into a bundle; see test/fixtures/built.test.ts.
      external: ['koffi', 'commander', 'prom-client', 'vitest'],
      output: {
        dir: folder,
        cleanDir: true,
        chunkFileNames: '[name]-[hash].js',
        sourcemap: true,
        // A class that is renamed, because the bundle has another of its name, gets it back, which makes `instanceof` of it slow: those of hot paths
        // have names of their own.
        keepNames: true,
        codeSplitting: {
          groups: [
            // By itself, so that it is evaluated before a file that imports the FFI.
            { name: 'platform', test: /src\/sys\/base\/platform\.ts$/, priority: 1 },
            // Not with it: the command line prints its refusal as it prints other errors.
            { name: 'type', test: /src\/ucs\/type\//, priority: 2 },
          ],
        },
      },
    }),
  ),
);

export default options;
