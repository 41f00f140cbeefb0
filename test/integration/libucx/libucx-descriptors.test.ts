/** libucx in a process with few descriptors: libucp ends the process where it finds none in some of its steps, so the steps are refused before. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ENGINES } from '../../fixtures/pair.ts';
import { requires } from '../../fixtures/requires.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';

const LIMIT = 96;
const PROGRAM = `
  import { closeSync, openSync } from 'node:fs';
  const { Context } = await import(${builtSpecifier(join(ROOT, 'src/index.ts'))});
  const open = () => Context.create({ engine: 'libucx', configDirectories: [], logSink: () => {} });
  const exchange = async (worker) => {
    const endpoint = worker.endpoint(worker.address());
    const got = new Uint8Array(8);
    await Promise.all([endpoint.tagSend(new Uint8Array(8).fill(7), { tag: 1 }), worker.tagRecv(got, { tag: 1 })]);
    await endpoint.close();
    return got.every((byte) => byte === 7);
  };
  const whole = async () => {
    const context = await open();
    try {
      return await exchange(context.worker());
    } finally {
      await context.close();
    }
  };
  await whole();
  const kept = (await open()).worker();
  const ends = [];
  const taken = [];
  try { for (;;) taken.push(openSync('/dev/null')); } catch {}
  while (taken.length > 0) {
    closeSync(taken.pop());
    const codes = [];
    for (const step of [whole, () => exchange(kept)]) codes.push(await step().catch(({ code }) => code));
    ends.push(codes);
  }
  console.log(JSON.stringify(ends));
  process.exit(0);`;

it('with any number of free descriptors moves data, or fails with a typed error', () => {
  requires(ENGINES.includes('libucx'), 'libucp');
  const command = `ulimit -n ${LIMIT} && exec "$0" --input-type=module --eval "$1"`;
  const { status, signal, stdout, stderr } = spawnSync('sh', ['-c', command, process.execPath, PROGRAM], {
    encoding: 'utf8',
    timeout: 60_000,
    env: { ...process.env, UCX_GAUDI_DRIVER: 'kernel' },
  });
  expect([status, signal], stderr).toEqual([0, null]);
  const ends = JSON.parse(stdout) as (true | string)[][];
  for (const end of ends.flat()) expect([true, 'ERR_SYSCALL_EMFILE']).toContain(end);
  expect(ends[0]).toEqual(['ERR_SYSCALL_EMFILE', 'ERR_SYSCALL_EMFILE']);
  expect(ends.at(-1)).toEqual([true, true]);
}, 60_000);
