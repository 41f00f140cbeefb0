/** The node server of a program: its socket, the description of its node from texts and files, and the names of arguments in errors. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { createTestLog } from '../../test/fixtures/test-log.ts';
import { ManualClock } from '../ucs/sys/clock.ts';
import { type NodeDescription, nodeSocketPath, readNodeDescription, startNodeServer } from './node-server.ts';
import { startProgram } from './program/program.ts';

const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-server-'));
afterAll(() => rmSync(folder, { recursive: true }));

function programOf(env: Readonly<Record<string, string>>) {
  const { log } = createTestLog();
  return { ...startProgram({ env, configDirectories: [], clock: new ManualClock(1) }), log };
}

function fileWith(text: string): string {
  const path = join(folder, 'node.json');
  writeFileSync(path, text);
  return path;
}

/** What a server with this description is made of. */
function nodeOf(description: NodeDescription, env: Readonly<Record<string, string>> = {}) {
  const server = startNodeServer(programOf(env), join(folder, 'node.sock'), { dmaThreads: '0', ...description });
  try {
    const { config } = server.node;
    const { cards, nics, hbmBytes, dmaThreads, absentLinks, profile } = config;
    return { asic: profile.name, cards, nics, hbmBytes, dmaThreads, absentLinks, path: server.socketPath };
  } finally {
    server.close();
  }
}

describe('the socket', () => {
  it('is that of UCX_GAUDI_DRIVER, else the default one of the runtime directory', () => {
    const env = { XDG_RUNTIME_DIR: '/run/user/7', UCX_GAUDI_DRIVER: 'emulator:/srv/a.sock' };
    expect(nodeSocketPath(programOf(env))).toBe('/srv/a.sock');
    expect(nodeSocketPath(programOf({ ...env, UCX_GAUDI_DRIVER: 'emulator' }))).toMatch(/^\/run\/user\/7\/.+\.sock$/);
  });
});

describe('a description', () => {
  it('of a file has its fields as texts', () => {
    const all = { asic: 'gaudi', cards: 3, hbm: '1GiB', links: '^0-1', dmaThreads: 0, nics: 2 };
    expect(readNodeDescription(fileWith(JSON.stringify(all)))).toEqual({
      asic: 'gaudi',
      cards: '3',
      hbm: '1GiB',
      links: '^0-1',
      dmaThreads: '0',
      nics: '2',
    });
  });

  it.each([
    [
      '{"cards": 1, "card": 2}',
      /must not have the field "card", only asic, cards, hbm, links, dmaThreads, nics, timeoutLocked/,
    ],
    ['{"cards": [1]}', /must have a string or a number as cards/],
    ['{"hbm": null}', /must have a string or a number as hbm/],
    ['{"hbm": true}', /must have a string or a number as hbm/],
    ['null', /must be a file with a JSON object/],
    ['"cards"', /must be a file with a JSON object/],
    ['{', /must be a file with a JSON object/],
  ])('%s is refused with the field', (text, message) => {
    const path = fileWith(text);
    expect(() => readNodeDescription(path)).toThrow(
      expect.objectContaining({
        code: 'ERR_INVALID_PARAM',
        message: expect.stringMatching(message),
        details: expect.objectContaining({ argument: 'config' }) as object,
      }),
    );
    expect(() => readNodeDescription(path)).toThrow(path);
  });

  it('of a file that does not exist has the error of the file', () => {
    expect(() => readNodeDescription(join(folder, 'none.json'))).toThrow(/ENOENT|no such file/i);
  });

  it('overrides the configuration, field by field', () => {
    const env = {
      UCX_GAUDI_EMULATOR_ASIC: 'gaudi3',
      UCX_GAUDI_EMULATOR_CARDS: '4',
      UCX_GAUDI_EMULATOR_NICS: '3',
      UCX_GAUDI_EMULATOR_HBM: '8g',
    };
    expect(nodeOf({}, env)).toEqual({
      asic: 'gaudi3',
      cards: 4,
      nics: 3,
      hbmBytes: 8 * 2 ** 30,
      dmaThreads: 0,
      absentLinks: [],
      path: join(folder, 'node.sock'),
    });
    expect(nodeOf({ asic: 'gaudi2', cards: '2', hbm: '6GiB', links: '^0-1', nics: '1' }, env)).toEqual({
      asic: 'gaudi2',
      cards: 2,
      nics: 1,
      hbmBytes: 6 * 2 ** 30,
      dmaThreads: 0,
      absentLinks: [[0, 1]],
      path: join(folder, 'node.sock'),
    });
  });

  it.each(['6G', '6GB', '6GiB', '6gib', '6g'])('takes the size %s as binary', (hbm) => {
    expect(nodeOf({ cards: '1', hbm }).hbmBytes).toBe(6 * 2 ** 30);
  });

  it('takes the smallest HBM, and the time-out of submissions', () => {
    for (const [asic, gib] of [
      ['gaudi', 0.5078125],
      ['gaudi2', 3.75],
    ] as const)
      expect(nodeOf({ cards: '1', asic, hbm: 'min' }).hbmBytes).toBe(gib * 2 ** 30);
    const server = startNodeServer(programOf({}), join(folder, 'node.sock'), { cards: '1', timeoutLocked: '7' });
    expect(server.node.config.csTimeoutSeconds).toBe(7);
    server.close();
  });

  it('names what it refuses by where it was given', () => {
    const refusal = (argument: string): unknown =>
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument }) as object });
    expect(() => nodeOf({ hbm: 'much' })).toThrow(refusal('hbm'));
    expect(() => nodeOf({ hbm: '1k' })).toThrow(refusal('hbm'));
    expect(() => nodeOf({}, { UCX_GAUDI_EMULATOR_HBM: '1k' })).toThrow(refusal('UCX_GAUDI_EMULATOR_HBM'));
    expect(() => nodeOf({ cards: '2', links: '^0-5' })).toThrow(refusal('links'));
    expect(() => nodeOf({ cards: '9' })).toThrow(refusal('cards'));
    expect(() => nodeOf({ nics: '9' })).toThrow(refusal('nics'));
  });
});
