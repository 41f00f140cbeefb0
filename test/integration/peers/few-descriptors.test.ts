/** The package under a low limit of open files: it loads, and moves data. Exhausting the limit is tested in descriptors.test.ts. */

import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ENGINES } from '../../fixtures/pair.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';

const PROGRAM = `
  const { Context, MemoryType } = await import(${builtSpecifier(join(ROOT, 'src/index.ts'))});
  const context = await Context.create();
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const hbm = context.memMap({ allocate: 65536, memoryType: MemoryType.GAUDI, sysDevice: 0 });
  const rkey = endpoint.unpackRkey(context.packRkey(hbm));
  await endpoint.put(new Uint8Array(65536).fill(42), rkey);
  const target = new Uint8Array(65536);
  await endpoint.get(target, rkey);
  context.memUnmap(hbm);
  await endpoint.close();
  await context.close();
  console.log(target.every((byte) => byte === 42));`;

describe('ulimit -n 64', () => {
  it.each(['index.ts', 'uct.ts', 'hlthunk.ts', 'emulator/index.ts'])('loads the entry %s', (entry) => {
    const specifier = builtSpecifier(join(ROOT, 'src', entry));
    expect(run(`console.log(Object.keys(await import(${specifier})).length > 0)`)).toBe('true\n');
  });

  it.each(ENGINES)('moves data to a card and back over %s', (engine) => {
    expect(run(PROGRAM, engine)).toBe('true\n');
  });
});

it.each(ENGINES)('the limit is in the error of what exceeds it over %s', (engine) => {
  const program = `const { Context } = await import(${builtSpecifier(join(ROOT, 'src/index.ts'))});
  try {
    const context = await Context.create();
    for (;;) context.worker().address();
  } catch ({ code, message }) { console.log(code, message); process.exit(); }`;
  const { status, stdout } = underLimit('-n 100', program, engine);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^ERR_SYSCALL_EMFILE .*EMFILE \(too many open files, ulimit -n is 100\)/m);
});

it('a limit of address space that the HBM of emulated cards exceeds is reported with the settings that make it less', () => {
  const program = `import { createEmulatedNode } from ${builtSpecifier(join(ROOT, 'src/emulator/index.ts'))};
  try { createEmulatedNode(); } catch ({ code, message }) { console.log(code, message); }`;
  const { status, stdout } = underLimit('-v 40000000', program);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^ERR_SYSCALL_ENOMEM .* for the hbm of an emulated card; reduce UCX_GAUDI_EMULATOR_HBM or /);
});

/** Runs a program with few descriptors; returns its output. */
function run(program: string, engine = 'native'): string {
  const { status, stdout, stderr } = underLimit('-n 64', program, engine);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout;
}

function underLimit(limit: string, program: string, engine = 'native'): SpawnSyncReturns<string> {
  const command = `ulimit ${limit} && exec "$0" --input-type=module --eval "$1"`;
  return spawnSync('sh', ['-c', command, process.execPath, program], {
    encoding: 'utf8',
    timeout: 30_000,
    env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '2', UCX_ENGINE: engine },
  });
}
