/** The node of a program and its cards: what the environment selects, the parts of an emulated node, and notices of emulation. */

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { SCRIPTED_BUSES, scriptedNode } from '../../test/fixtures/driver/scripted-node.ts';
import { createTestLog } from '../../test/fixtures/test-log.ts';
import { open } from '../hlthunk/index.ts';
import { close as closeFd, listenUnix, SocketType } from '../sys/index.ts';
import { ManualClock } from '../ucs/sys/clock.ts';
import {
  allowedCards,
  cardSelection,
  cardSettings,
  cardsOf,
  EMULATION_IS_KNOWN,
  emulationNotice,
  labelsEmulation,
  nodeOptions,
  openNode,
  openShownNode,
  removedCards,
} from './open-node.ts';
import { type Program, startProgram } from './program/program.ts';

const [BUS_0, BUS_1] = SCRIPTED_BUSES;
const REMOVED = '0000:01:00.0';
const runtime = mkdtempSync(join(tmpdir(), 'gaudi-ucx-run-'));
afterAll(() => rmSync(runtime, { recursive: true }));

// The process may have been told by a test of another file.
const wasKnown = getEnvironmentData(EMULATION_IS_KNOWN);
beforeEach(() => setEnvironmentData(EMULATION_IS_KNOWN, undefined));
afterAll(() => setEnvironmentData(EMULATION_IS_KNOWN, wasKnown));

function programOf(env: Readonly<Record<string, string>> = {}) {
  const log = createTestLog('ucp');
  const program: Program = { ...startProgram({ env, configDirectories: [], clock: new ManualClock(7) }), log: log.log };
  return { program, records: log.records };
}

/** The scripted cards, and one that was removed, whose index is 0. */
function threeCards() {
  return scriptedNode({ node: { absentCards: () => [{ minor: 6, busId: REMOVED, state: 'removed' }] } });
}

const table = (...entries: readonly (readonly [number, string])[]): string =>
  JSON.stringify(entries.map(([index, bus_id]) => ({ index, bus_id })));

describe('the cards of a program', () => {
  it('are all of the node by their indices; removed ones cannot be used', () => {
    const { program } = programOf();
    expect(allowedCards(program, threeCards()).map(({ name, index, card }) => [name, index, card.busId])).toEqual([
      ['gaudi1', 1, BUS_0],
      ['gaudi2', 2, BUS_1],
    ]);
    expect(removedCards(program, threeCards()).map(({ index, busId }) => [index, busId])).toEqual([[0, REMOVED]]);
  });

  it('are those that UCX_ACC_DEVICES admits', () => {
    const { program } = programOf({ UCX_ACC_DEVICES: 'gaudi2' });
    expect(allowedCards(program, threeCards()).map(({ name }) => name)).toEqual(['gaudi2']);
    expect(removedCards(program, threeCards())).toEqual([]);
  });

  it('have the indices of GAUDI_MAPPING_TABLE; others of the node have none and come last', () => {
    const { program } = programOf({ GAUDI_MAPPING_TABLE: table([5, BUS_1]) });
    expect(allowedCards(program, threeCards()).map(({ name, index }) => [name, index])).toEqual([['gaudi5', 5]]);
    expect(cardsOf(threeCards(), program).map(({ index, busId }) => [index, busId])).toEqual([
      [5, BUS_1],
      [undefined, REMOVED],
      [undefined, BUS_0],
    ]);
    expect(cardsOf(threeCards(), programOf().program).map(({ index }) => index)).toEqual([0, 1, 2]);
  });

  it('that need one card are given its name and a table with this card alone', () => {
    const [first] = allowedCards(programOf().program, threeCards());
    expect(cardSettings(first!)).toEqual({
      UCX_ACC_DEVICES: 'gaudi1',
      GAUDI_MAPPING_TABLE: JSON.stringify([{ index: 1, module_id: 2, bus_id: BUS_0 }]),
    });
    const unknown = { ...first!, card: { ...first!.card, moduleId: undefined } };
    expect(JSON.parse(cardSettings(unknown)['GAUDI_MAPPING_TABLE']!)).toEqual([{ index: 1, bus_id: BUS_0 }]);
  });
});

describe('the variable by which a program leaves out a card', () => {
  const exclusions = (env: Readonly<Record<string, string>>) => {
    const { program } = programOf(env);
    const { usesCards, missing, exclusionOf } = cardSelection(program, threeCards());
    return { usesCards, missing, variables: cardsOf(threeCards(), { env: {} }).map(exclusionOf) };
  };
  const none = undefined;

  it.each([
    [{}, [none, none, none]],
    [{ UCX_TLS: 'tcp' }, ['UCX_TLS', 'UCX_TLS', 'UCX_TLS']],
    [{ UCX_TLS: 'tcp,gaudi_ipc' }, [none, none, none]],
    [{ UCX_ACC_DEVICES: 'gaudi1' }, ['UCX_ACC_DEVICES', none, 'UCX_ACC_DEVICES']],
    [{ HABANA_VISIBLE_DEVICES: '2' }, ['HABANA_VISIBLE_DEVICES', 'HABANA_VISIBLE_DEVICES', none]],
    [{ GAUDI_MAPPING_TABLE: table([0, BUS_0]) }, ['GAUDI_MAPPING_TABLE', none, 'GAUDI_MAPPING_TABLE']],
    [{ HABANA_VISIBLE_MODULES: '3' }, ['HABANA_VISIBLE_MODULES', 'HABANA_VISIBLE_MODULES', none]],
    // The removed card may be module 7.
    [{ HABANA_VISIBLE_MODULES: '3,7' }, [none, 'HABANA_VISIBLE_MODULES', none]],
  ] as const)('of %o', (env, variables) => {
    expect(exclusions(env).variables).toEqual(variables);
  });

  it('is reported with the cards that do not exist, and whether any are used', () => {
    expect(exclusions({ HABANA_VISIBLE_DEVICES: '9' })).toMatchObject({
      usesCards: true,
      missing: expect.stringContaining('HABANA_VISIBLE_DEVICES=9') as string,
    });
    expect(exclusions({ UCX_TLS: 'self' })).toMatchObject({ usesCards: false, missing: undefined });
  });
});

describe('the options of an emulated node', () => {
  it('are those of UCX_GAUDI_EMULATOR_*, each under its own name', () => {
    const env = {
      UCX_GAUDI_EMULATOR_ASIC: 'gaudi3',
      UCX_GAUDI_EMULATOR_CARDS: '3',
      UCX_GAUDI_EMULATOR_NICS: '4',
      UCX_GAUDI_EMULATOR_HBM: '5g',
      UCX_GAUDI_EMULATOR_DMA_THREADS: '2',
    };
    const { program } = programOf(env);
    const { log: _log, ...rest } = nodeOptions(program);
    expect(rest).toEqual({
      asic: 'gaudi3',
      cards: 3,
      nics: 4,
      hbmBytes: 5 * 2 ** 30,
      dmaThreads: 2,
      nicSockets: true,
      identities: [],
      clock: program.clock,
    });
    const defaults = nodeOptions(programOf().program);
    expect('dmaThreads' in defaults || 'hbmBytes' in defaults).toBe(false);
  });

  it('have the cards of GAUDI_MAPPING_TABLE, as many as there are; none of a table that no node can have', () => {
    const identities = (value: string, cards = '2') => {
      const env = { GAUDI_MAPPING_TABLE: value, UCX_GAUDI_EMULATOR_CARDS: cards };
      return nodeOptions(programOf(env).program).identities;
    };
    const three = table([0, '0000:33:00.0'], [1, '0000:34:00.0'], [2, '0000:35:00.0']);
    expect(identities(three)!.map(({ busId }) => busId)).toEqual(['0000:33:00.0', '0000:34:00.0']);
    expect(identities(table([0, '0000:33:00.0'], [1, '0000:33:00.0']))).toEqual([]);
    expect(identities('not JSON')).toEqual([]);
  });

  it('are named by their variables in errors', () => {
    const { program } = programOf({ UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_HBM: '1k' });
    expect(() => openNode(program)).toThrow(/UCX_GAUDI_EMULATOR_HBM/);
  });
});

describe('the choice of the node', () => {
  const small = { UCX_GAUDI_EMULATOR_CARDS: '1', UCX_GAUDI_EMULATOR_DMA_THREADS: '0' };

  it('by a socket is the node server there, or fails', () => {
    const { program } = programOf({ UCX_GAUDI_DRIVER: `emulator:${join(runtime, 'none.sock')}` });
    expect(() => openNode(program)).toThrow(expect.objectContaining({ code: 'ERR_NODE_UNREACHABLE' }));
  });

  it('of a machine without cards and node server is an emulated one; it warns once memory is allocated, once', () => {
    const { program, records } = programOf({ ...small, XDG_RUNTIME_DIR: runtime });
    const node = openNode(program);
    expect(node.kind).toBe('emulator');
    const warnings = (): string[] => records.filter(({ level }) => level <= 3).map(({ message }) => message);
    expect(records.map(({ message }) => message)[0]).toContain('using an emulated node in this process');
    expect(warnings()).toEqual([]);
    const device = open(node, { minor: 0 }, { dma: { clock: program.clock } });
    device.memory.allocate(4096);
    device.close();
    const other = openShownNode(program);
    const second = open(other, { minor: 0 }, { dma: { clock: program.clock } });
    second.memory.allocate(4096);
    second.close();
    expect(warnings()).toEqual([
      expect.stringMatching(/^Gaudi memory is emulated, because no card was found \(.+\); .+/),
    ]);
    node.close();
    other.close();
  });

  it('warns of nothing in a program that labels emulated results', () => {
    labelsEmulation();
    const { program, records } = programOf({ ...small, XDG_RUNTIME_DIR: runtime });
    const node = openNode(program);
    const device = open(node, { minor: 0 }, { dma: { clock: program.clock } });
    device.memory.allocate(4096);
    device.close();
    node.close();
    expect(records.filter(({ level }) => level <= 3)).toEqual([]);
  });

  it('has a thread for the engines of its cards only where there are processors for it', () => {
    const { program, records } = programOf({ UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1' });
    const node = openNode(program);
    node.close();
    const processors = availableParallelism();
    const where = processors < 3 ? 'inside the calls' : 'in 1 thread(s)';
    expect(records.map(({ message }) => message)).toContain(
      `the DMA engines of the emulated cards run ${where}; this process has ${processors} processor(s)`,
    );
  });

  it('where the node server was killed is an emulated one with a warning; a command that shows cards refuses', () => {
    const folder = join(runtime, 'gaudi-ucx');
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const socket = join(folder, 'node.sock');
    const listener = listenUnix(socket, SocketType.SEQPACKET);
    // As by a kill: the path stays.
    closeFd(listener.fd);
    const { program, records } = programOf({ ...small, XDG_RUNTIME_DIR: runtime });
    expect(() => openShownNode(program)).toThrow(expect.objectContaining({ code: 'ERR_NODE_UNREACHABLE' }));
    openNode(program).close();
    expect(records.filter(({ level }) => level <= 3).map(({ message }) => message)).toEqual([
      `the node server at ${socket} has ended, so this process has its own emulated cards, which other processes do not see; start it again by gaudi-ucx node up, then restart this program`,
    ]);
    rmSync(folder, { recursive: true });
  });

  it('is shown to a user who may not know that cards are emulated', () => {
    const node = { ...threeCards(), kind: 'emulator' as const, emulated: true };
    const notice = (env: Readonly<Record<string, string>>, changes = {}) =>
      emulationNotice(programOf(env).program, { ...node, ...changes });
    expect(notice({})).toContain('these cards are emulated, because neither a card nor a node server was found');
    expect(notice({ UCX_GAUDI_DRIVER: 'emulator' })).toBeUndefined();
    expect(notice({}, { serverPid: 7 })).toBeUndefined();
    expect(notice({}, { kind: 'kernel' })).toBeUndefined();
  });
});
