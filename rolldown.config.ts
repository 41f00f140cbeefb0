/**
 * How the package is bundled: one file for each entry point, thread and program, and the parts that they share, all in one folder. Node.js opens
 * the modules of a package all at once: 600 of them take a second and do not fit under `ulimit -n 128`. Types and checks are the compiler's.
 */

import { defineConfig, type RolldownOptions } from 'rolldown';

const options: RolldownOptions = defineConfig({
  input: {
    index: 'src/index.ts',
    uct: 'src/uct/index.ts',
    hlthunk: 'src/hlthunk.ts',
    emulator: 'src/emulator/index.ts',
    main: 'src/tools/main.ts',
    'engine-thread': 'src/emulator/device/engine-thread.ts',
    'explain-peer-program': 'src/tools/explain-peer-program.ts',
    'card-program': 'src/tools/demo/card-program.ts',
  },
  platform: 'node',
  transform: { target: 'es2023' },
  external: ['koffi', 'commander'],
  output: { dir: 'dist/lib', cleanDir: true, chunkFileNames: '[name]-[hash].js', sourcemap: true, keepNames: true },
});

export default options;
