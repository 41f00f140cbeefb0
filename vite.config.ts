/** How the page of `gaudi-ucx web` is bundled: into dist/web, with hashed names, without anything from elsewhere. */

import { defineConfig, type UserConfig } from 'vite';

const config: UserConfig = defineConfig({
  root: 'src/tools/web/page',
  base: './',
  build: {
    outDir: '../../../../dist/web',
    emptyOutDir: true,
    target: 'es2022',
    // Data URLs would need exceptions in the policy of the page.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
  },
});

export default config;
