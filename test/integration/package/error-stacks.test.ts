/** The stack of an error of the built package begins where the program has called it, for errors that are thrown and for promises that are rejected. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';

const { skipReason } = installedLibucp();

const IMPORTS = `
  import { Context, Config, MemoryType } from ENTRY(src/index.ts);
  import * as uct from ENTRY(src/uct.ts);
  import * as hlthunk from ENTRY(src/hlthunk.ts);
  import { createEmulatedNode, connectEmulatedNode, parseLinks, readFault } from ENTRY(src/emulator/index.ts);
  import { createTeam, dtypeBytes, listenerExchange, localExchange } from ENTRY(src/coll/index.ts);
  import { setTimeout as delay } from 'node:timers/promises';
`;

/** What the calls use. */
const SETUP = `
  const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
  const context = await Context.create({ engine: ENGINE, driver: 'emulator', config: { TLS: TRANSPORTS } });
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const host = context.memMap({ allocate: 4096 });
  const rkey = endpoint.unpackRkey(context.packRkey(host));
  const device = hlthunk.open(node, {});
  const team = await createTeam(worker, { rank: 0, size: 1, exchange: localExchange(1) });
  const bytes = new Uint8Array(64);
  const fired = AbortSignal.abort();
  const soon = () => ({ signal: AbortSignal.timeout(20) });
`;

/** Calls that throw. */
const THROWN: readonly string[] = [
  'context.memMap({ allocate: -1 })',
  "context.worker({ clientId: 'x' })",
  'worker.listener({ port: -1 })',
  'worker.endpoint(bytes)',
  'worker.setAmHandler(-1, () => {})',
  'endpoint.putNbx(bytes, 0, 8192, rkey, 0)',
  'endpoint.unpackRkey(bytes)',
  "endpoint.explain('push', bytes)",
  "Config.read({ env: {}, configDirectories: [] }).get('BOGUS')",
  'uct.selfComponent().openMd(5)',
  "hlthunk.open(node, { name: 'gaudi9' })",
  'hlthunk.deviceMemoryAlloc(device, -1)',
  'hlthunk.deviceMemoryAlloc(device, 2 ** 45)',
  "createEmulatedNode({ cards: 'x' })",
  "connectEmulatedNode('/nowhere/node.sock')",
  "parseLinks('x')",
  'readFault({})',
  "dtypeBytes('int3')",
  "team.allReduceNbx(bytes, bytes, { dtype: 'x' })",
];

/** Calls whose promise rejects, at once or later. */
const REJECTED: readonly string[] = [
  "Context.create({ engin: 'native' })",
  "Context.create({ engine: 'native', config: { TLS: 'posix,bogus', MAX_EAGER_LANES: 'x' } })",
  'endpoint.put(bytes, {})',
  'endpoint.get(bytes, rkey, { remoteOffset: 9000 })',
  'endpoint.tagSend(7)',
  'endpoint.putList([{ local: bytes, rkey, byteLength: 9000 }])',
  'endpoint.put([{ memory: bytes }], rkey, { remoteOffset: 9000, notify: bytes })',
  'endpoint.get([{ memory: bytes }], rkey, { remoteOffset: 9000 })',
  'endpoint.get([{ memory: bytes }], rkey, { signal: fired })',
  "endpoint.atomic('add', 'x', rkey)",
  'endpoint.flush({ signal: fired })',
  'endpoint.streamRecv(bytes, soon())',
  'endpoint.stream(soon()).next()',
  'worker.tagRecv(bytes, { tag: 5, ...soon() })',
  '(endpoint.tagSend(new Uint8Array(128), { tag: 6 }), worker.tagRecv(bytes, { tag: 6 }))',
  'worker.connect({ host: "127.0.0.1", port: 1 })',
  'worker.connect({ host: "localhost", port: 1, signal: fired })',
  'worker.messages(40, soon()).next()',
  'worker.notifications(soon()).next()',
  'worker.wait(soon())',
  'worker.listener({ address: "127.0.0.1" }).next(soon())',
  'host.write(new Uint8Array(5000))',
  "host.read('x')",
  'Promise.all([endpoint.put(bytes, {}), delay(1)])',
  'hlthunk.waitForCsAsync(device, 99n, 1000)',
  'hlthunk.receiveHandle("/tmp/gaudi-ucx-error-stacks.sock", soon())',
  'device.dma.wait(-1)',
  'createTeam(worker, { rank: 3, size: 1, exchange: localExchange(1) })',
  "createTeam(worker, { rank: 1, size: 2, exchange: listenerExchange({ rank: 1, size: 2, host: '127.0.0.1', port: 1, timeoutMs: 50 }) })",
  "createTeam(worker, { rank: 0, size: 2, exchange: listenerExchange({ rank: 0, size: 2, host: '127.0.0.1', port: 0, timeoutMs: 50 }) })",
  "team.allReduce(bytes, bytes, { dtype: 'x' })",
  'team.split({ color: -5 })',
  'team.allReduce(bytes, bytes, { signal: fired })',
];

/** Calls after the objects were closed. */
const CLOSED: readonly string[] = [
  'endpoint.put(bytes, rkey)',
  'endpoint.amSend(1, bytes)',
  'worker.tagRecv(bytes)',
  'worker.flush()',
  'team.barrier()',
];

const functions = (calls: readonly string[], prefix: string): string =>
  calls.map((call, i) => `async function ${prefix}${i}() { return await (${call}); }`).join('\n');

/** Prints, for each function, the first frame of its error, and the error if there is none. */
const PROGRAM = `
  ${functions(THROWN, 'thrown')}
  ${functions(REJECTED, 'rejected')}
  ${functions(CLOSED, 'closed')}
  const found = [];
  async function tryAll(calls) {
    for (const call of calls) {
      const error = await call().then(() => undefined, (error) => error);
      const [, frame = ''] = /\\n    at ([^\\n]*)/.exec(error?.stack ?? '') ?? [];
      found.push({ name: call.name, frame, title: error?.stack.startsWith(error.name + ': ' + error.message), message: error?.message });
    }
  }
  await tryAll([${THROWN.map((_, i) => `thrown${i}`)}]);
  await tryAll([${REJECTED.map((_, i) => `rejected${i}`)}]);
  await team.close();
  await context.close();
  await tryAll([${CLOSED.map((_, i) => `closed${i}`)}]);
  device.close();
  node.close();
  console.log(JSON.stringify(found));`;

interface Found {
  readonly name: string;
  readonly frame: string;
  readonly title: boolean;
  readonly message: string | undefined;
}

/** The errors of a program with these calls. */
function errorsOf(engine: string, transports: string, args: readonly string[] = []): readonly Found[] {
  const text = (IMPORTS + SETUP + PROGRAM)
    .replace(/ENTRY\(([^)]*)\)/g, (_match, entry: string) => builtSpecifier(join(ROOT, entry)))
    .replace('ENGINE', JSON.stringify(engine))
    .replace('TRANSPORTS', JSON.stringify(transports));
  const { status, stdout, stderr } = spawnSync(process.execPath, [...args, '--input-type=module', '--eval', text], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: 60_000,
    env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator', UCX_LOG_LEVEL: 'fatal' },
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return JSON.parse(stdout);
}

const NAMES = [
  ...THROWN.map((_, i) => `thrown${i}`),
  ...REJECTED.map((_, i) => `rejected${i}`),
  ...CLOSED.map((_, i) => `closed${i}`),
];

function expectOwnFrames(found: readonly Found[]): void {
  const calls = [...THROWN, ...REJECTED, ...CLOSED];
  const wrong = found.filter(({ name, frame, title }) => !title || !new RegExp(`^(async )?${name} `).test(frame));
  expect(wrong.map((one) => ({ call: calls[NAMES.indexOf(one.name)], ...one }))).toEqual([]);
  expect(found.map(({ name }) => name)).toEqual(NAMES);
}

describe('the first frame of an error is that of the program', { timeout: 90_000 }, () => {
  it.each([
    ['by default', []],
    ['with source maps', ['--enable-source-maps']],
    ['with few frames', ['--stack-trace-limit=2']],
  ])('%s', (_name, args) => expectOwnFrames(errorsOf('native', 'self,posix,tcp,gaudi', args)));

  it.skipIf(skipReason)('over libucp (needs libucx0)', () => {
    expectOwnFrames(errorsOf('libucx', 'self,shm,tcp,gaudi'));
  });
});
