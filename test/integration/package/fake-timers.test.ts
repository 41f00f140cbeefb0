/** Test runners fake timers, the immediates among them: operations, handlers and closing work under them, and after them. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ENGINES } from '../../fixtures/pair.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';

const PROGRAM = `
  import { mock } from 'node:test';
  const { Context } = await import(${builtSpecifier(join(ROOT, 'src/index.ts'))});
  const exchange = async () => {
    const context = await Context.create({ configDirectories: [], config: { TLS: 'posix,tcp,self' } });
    const [one, two] = [context.worker(), context.worker()];
    const endpoint = one.endpoint(two.address());
    const arrived = new Promise((resolve) => two.setAmHandler(1, (message) => resolve(message.data[0])));
    await endpoint.amSend(1, Uint8Array.of(7));
    const target = new Uint8Array(3_000_000);
    await Promise.all([endpoint.tagSend(new Uint8Array(3_000_000).fill(9), { tag: 1 }), two.tagRecv(target, { tag: 1 })]);
    const bytes = [await arrived, target.at(-1)];
    await context.close();
    return bytes;
  };
  for (const isFaked of [false, true, false, true, false]) {
    if (isFaked) mock.timers.enable({ apis: ['setInterval', 'setTimeout', 'setImmediate', 'Date'] });
    console.log(String(await exchange()));
    mock.timers.reset();
  }
  process.exit(0);`;

it.each(ENGINES)(
  'over %s',
  (engine) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', PROGRAM], {
      encoding: 'utf8',
      timeout: 40_000,
      env: { ...process.env, UCX_ENGINE: engine, UCX_GAUDI_DRIVER: 'kernel', NODE_NO_WARNINGS: '1' },
    });
    expect([status, stdout], stderr).toEqual([0, '7,9\n'.repeat(5)]);
  },
  60_000,
);
