/** The package in a context of node:vm, in which jest and the vm pools of vitest load modules: globals, errors and symbols are separate there. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';

const PROGRAM = `
  import { readFileSync } from 'node:fs';
  import vm from 'node:vm';
  const own = vm.createContext({});
  // What a test runner provides: the globals of Node.js, and the classes of its buffers.
  const given = Object.getOwnPropertyNames(globalThis).filter((name) => !vm.runInContext(\`'\${name}' in globalThis\`, own));
  for (const name of [...given, 'Uint8Array', 'ArrayBuffer']) if (name !== 'globalThis') own[name] = globalThis[name];
  const modules = new Map();
  async function load(specifier, parent) {
    const isFile = specifier.startsWith('file:') || specifier.startsWith('.');
    const url = isFile ? new URL(specifier, parent).href : specifier;
    if (!modules.has(url)) modules.set(url, isFile ? source(url) : await foreign(url));
    return modules.get(url);
  }
  const source = (url) => new vm.SourceTextModule(readFileSync(new URL(url), 'utf8'), {
    context: own,
    identifier: url,
    initializeImportMeta: (meta) => { meta.url = url; meta.dirname = new URL('.', url).pathname; },
    importModuleDynamically: (specifier) => evaluated(specifier, url),
  });
  async function foreign(url) {
    const from = url.startsWith('node:') ? await import(url) : await import(import.meta.resolve(url, PARENT));
    const names = Object.keys(from);
    return new vm.SyntheticModule(names, function () { for (const name of names) this.setExport(name, from[name]); }, { context: own });
  }
  async function evaluated(specifier, parent) {
    const loaded = await load(specifier, parent);
    if (loaded.status === 'unlinked') await loaded.link((each, { identifier }) => load(each, identifier));
    if (loaded.status !== 'evaluated') await loaded.evaluate();
    return loaded;
  }
  const { namespace: { Context, MemoryType } } = await evaluated(PARENT, PARENT);
  const context = await Context.create();
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const hbm = context.memMap({ allocate: 4096, memoryType: MemoryType.GAUDI });
  const rkey = endpoint.unpackRkey(context.packRkey(hbm));
  await endpoint.put(Buffer.alloc(4096, 7), rkey);
  const target = new Uint8Array(4096);
  await endpoint.get(target, rkey);
  await Promise.all([worker.tagRecv(target.subarray(0, 8), { tag: 1n }), endpoint.tagSend(Buffer.alloc(8, 9), { tag: 1n })]);
  const refusal = await endpoint.tagSend(undefined, { tag: 1n }).catch(({ code }) => code);
  await context.close();
  console.log(target[7], target[8], refusal);`;

it('it moves data and refuses arguments', () => {
  const program = PROGRAM.replaceAll('PARENT', builtSpecifier(join(ROOT, 'src/index.ts')));
  const args = ['--experimental-vm-modules', '--no-warnings', '--input-type=module', '--eval', program];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: 30_000,
    env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator' },
  });
  expect({ status, stderr, stdout }).toEqual({ status: 0, stderr: '', stdout: '9 7 ERR_INVALID_PARAM\n' });
});
