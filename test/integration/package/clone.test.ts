/** A project that depends on a clone, as a link and as a tarball, by the commands of docs/guide/getting-started.md and templates/README.md. */

import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { Started } from '../../fixtures/processes/started.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { withoutSettings } from '../../fixtures/tools/command-line.ts';
import { FolderRegistry } from '../../fixtures/transports/folder-registry.ts';

/** The blocks of commands of a page that are about a clone. */
function blocksOf(page: string): string[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  return [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)]
    .map(([, block]) => block!)
    .filter((block) => /\.\.\/gaudi-ucx/.test(block));
}

describe('a project beside a clone', { timeout: 120_000 }, () => {
  const folders: string[] = [];
  const programs: Started[] = [];
  afterEach(async () => {
    for (const { child } of programs) child.kill('SIGKILL');
    for (const { ended } of programs.splice(0)) await ended;
    for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
  });

  const pages = ['docs/guide/getting-started.md', 'templates/README.md'] as const;
  it.each(pages.map((page) => [page, blocksOf(page)] as const))(
    'is built by the commands of %s',
    async (page, blocks) => {
      expect(blocks).toHaveLength(page === 'templates/README.md' ? 1 : 2);
      const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-clone-'));
      folders.push(folder);
      symlinkSync(ROOT, join(folder, 'gaudi-ucx'));
      await using registry = await FolderRegistry.open(new Map());
      const env = {
        ...withoutSettings(),
        npm_config_registry: registry.url,
        npm_config_cache: join(folder, 'cache'),
        // The build that there is: another one would replace it under the other tests.
        npm_config_ignore_scripts: 'true',
        UCX_GAUDI_DRIVER: 'emulator',
      };
      for (const block of blocks) {
        await promisify(execFile)('sh', ['-e', '-c', block], { cwd: folder, env });
        const manifest = JSON.parse(readFileSync(join(folder, 'my-project/package.json'), 'utf8'));
        expect(manifest.dependencies['gaudi-ucx']).toMatch(
          block.includes('npm pack') ? /^file:.*\.tgz$/ : /^file:(?!.*\.tgz$)/,
        );
        const program = join(folder, 'my-project/dist/rpc.js');
        const server = new Started(program, ['serve'], { cwd: folder, env });
        programs.push(server);
        const [, address, port] = await server.saw(/serving at (\S+) (\d+)/);
        const call = new Started(program, ['call', address!, port!, 'upper', 'gaudi'], { cwd: folder, env });
        programs.push(call);
        expect([await call.ended, call.printed]).toEqual([0, 'GAUDI\n']);
      }
    },
  );
});
