/** Every call of `gaudi-ucx/emulator` with bad values in the place of each argument: errors are typed, nothing leaks, and nodes stay usable. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as emulator from '../../../src/emulator/index.ts';
import { type Calls, Misuse, uncovered } from '../../fixtures/calls/misuse.ts';
import { publicCalls } from '../../fixtures/calls/public-calls.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { createTestLog } from '../../fixtures/test-log.ts';

const DECLARED = publicCalls('src/emulator/index.ts');
const SMALL: emulator.EmulatedNodeOptions = { cards: 1, dmaThreads: 0, log: createTestLog().log };
/** A descriptor that is not open: a server ends the connection of a client that sends it an open one of another kind. */
const NO_FILE = 0x7fff_ffff;
const LIBRARY = 'the library calls it';

/** Public calls without a case, with the reason. */
const SUPERVISOR = 'a step of `gaudi-ucx run`, for sockets that it makes itself';
const EXEMPT = {
  'typeof EmulatedNode.new': LIBRARY,
  'typeof RemoteNode.new': LIBRARY,
  'typeof EmulatedVerbs.new': LIBRARY,
  '.endServer': 'it ends the server, and checks its argument as identifyServer does',
  '.enterPrivateTree': 'it replaces the mount namespace of the thread',
  '.sendTree': SUPERVISOR,
  '.sendFilter': SUPERVISOR,
  '.superviseProgram': SUPERVISOR,
};

/** Where a string in the place of a path makes its files. */
let folder: string;
const home = process.cwd();
let server: TestNodeServer;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'misuse-'));
  process.chdir(folder);
  server = await TestNodeServer.start({ cards: 2, dmaThreads: 0 });
});
afterAll(async () => {
  await server.stop();
  process.chdir(home);
  rmSync(folder, { recursive: true });
});
expectNoLeaks();

const close = (made: unknown): void => (made as { close(): void } | undefined)?.close();

const TOTAL = 'returns undefined for what the node does not have';

/** Calls that every node has. */
const DRIVER_CALLS: Calls = {
  ownerOf: { args: () => [0], total: TOTAL },
  open: { args: () => [0], undo: close },
  openControl: { args: () => [0], undo: close },
  attribute: { args: () => [0, 'module_id'], total: TOTAL },
  links: { args: () => [0], total: TOTAL },
  temperature: { args: () => [0], total: TOTAL },
  inject: { args: () => [0, { kind: 'link-up', port: 0 }] },
};

function callsOf(): Readonly<Record<string, Calls>> {
  const path = join(folder, 'node.sock');
  return {
    '': {
      placesOf: { args: () => [1, [{ moduleId: 1 }]] },
      parseLinks: { args: () => ['full'] },
      readFault: { args: () => [{ kind: 'recover' }] },
      connectEmulatedNode: { args: () => [server.socketPath], undo: close },
      findEmulatedNode: { args: () => [server.socketPath], undo: close },
      identifyServer: { args: () => [server.socketPath] },
      defaultSocketPath: { args: () => [undefined] },
      prepareFolder: { args: () => [path] },
      createEmulatedNode: { args: () => [SMALL], undo: close },
      diffTraces: { args: () => ['', ''] },
    },
    EmulatedNode: { ...DRIVER_CALLS, card: { args: () => [0] }, debugFs: { args: () => [0] } },
    RemoteNode: {
      ...DRIVER_CALLS,
      serveDevices: { args: () => [NO_FILE] },
    },
    EmulatedVerbs: { open: { args: () => ['hca0'], undo: close }, device: { args: () => ['hca0'] } },
    'typeof NodeServer': { new: { args: () => [{ node: SMALL, socketPath: path }], undo: close } },
  };
}

it('every public call has a case', () => {
  expect(uncovered(DECLARED, callsOf(), EXEMPT)).toEqual([]);
});

it('every argument is checked', { timeout: 60_000 }, async () => {
  const node = emulator.createEmulatedNode({ ...SMALL, nics: 1 });
  const remote = emulator.connectEmulatedNode(server.socketPath);
  const misuse = new Misuse(node, remote);
  const objects = {
    '': emulator,
    EmulatedNode: node,
    RemoteNode: remote,
    EmulatedVerbs: node.verbs!,
    'typeof NodeServer': emulator.NodeServer,
  };
  for (const [type, calls] of Object.entries(callsOf())) {
    await misuse.tryMethods(type, objects[type as keyof typeof objects], calls, DECLARED.get(type));
    await misuse.settled();
  }
  expect(misuse.surprises).toEqual([]);
  expect(misuse.accepted).toEqual([]);
  expect(misuse.refused).toEqual([]);
  for (const used of [node, remote]) {
    expect(used.cards().length).toBeGreaterThan(0);
    used.open(0).close();
    used.close();
  }
});
