/** The unit tests of the folder of a source, for StrykerJS. */

import { dirname } from 'node:path';
import { defineConfig, type ViteUserConfig } from 'vitest/config';

const folder = dirname(process.env['MUTATED_FILE']!);

const config: ViteUserConfig = defineConfig({
  test: {
    env: { UCX_GAUDI_DRIVER: 'emulator' },
    include: [`${folder}/*.test.ts`],
    setupFiles: ['test/run/every-file.ts'],
    pool: 'forks',
    isolate: false,
  },
});

export default config;
