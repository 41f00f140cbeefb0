/**
 * The one place that selects the driver: cards of this machine through the kernel, or an emulated node, which a program never uses without a notice.
 */

import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import { rdmaDeviceNames } from '../driver/kernel/discovery.ts';
import { KernelNode } from '../driver/kernel/kernel-node.ts';
import type { DriverNode } from '../driver/port.ts';
import {
  type CardIdentity,
  connectEmulatedNode,
  createEmulatedNode,
  defaultSocketPath,
  type EmulatedNodeOptions,
  findEmulatedNode,
  placesOf,
} from '../emulator/index.ts';
import type { ConfigValues } from '../ucs/config/config.ts';
import type { Log } from '../ucs/debug/log.ts';
import type { Clock } from '../ucs/sys/clock.ts';
import { isUcxError, withArgumentNames } from '../ucs/type/error.ts';
import { cardsInTable } from '../uct/gaudi/base/mapping-table.ts';
import { IB_CONFIG_TABLE } from '../uct/ib/base/config.ts';
import { Libibverbs } from '../verbs/libibverbs/libibverbs.ts';
import { loadLibibverbs } from '../verbs/libibverbs/library.ts';
import type { VerbsPort } from '../verbs/port.ts';
import { GAUDI_CONFIG_TABLE } from './program/config.ts';

/** Inputs of the selection. */
export interface OpenNodeOptions {
  readonly config: ConfigValues;
  readonly log: Log;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Opens the node selected by UCX_GAUDI_DRIVER.
 * @throws UcxError ERR_INVALID_PARAM for an invalid emulated node; ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED from the node server
 */
export function openNode(options: OpenNodeOptions): DriverNode {
  return chooseNode(options, (socket) => {
    options.log.warn(`the node server at ${socket} is gone: this process emulates a node of its own`);
    return undefined;
  });
}

/**
 * Opens the node for a command that shows it. Where {@link openNode} emulates a node because the node server was killed, this refuses: its cards would be taken
 * for those of the server.
 * @throws UcxError as {@link openNode}
 */
export function openShownNode(options: OpenNodeOptions): DriverNode {
  return chooseNode(options, connectEmulatedNode);
}

/** @param onKilled called with the socket of a node server that does not listen any more: returns a node to use, or nothing for an emulated one of this process */
function chooseNode(options: OpenNodeOptions, onKilled: (socket: string) => DriverNode | undefined): DriverNode {
  const { config, log, clock, env } = options;
  const values = config.get(GAUDI_CONFIG_TABLE);
  if (typeof values.DRIVER === 'object') return connectEmulatedNode(values.DRIVER.socket);
  if (values.DRIVER === 'emulator') return createOwnNode(options);
  const kernel = new KernelNode({ clock, log: log.child('driver') });
  if (values.DRIVER === 'kernel' || kernel.cards().length > 0) return kernel;
  kernel.close();
  const socket = defaultSocketPath(env['XDG_RUNTIME_DIR']);
  const server = findEmulatedNode(socket);
  if (server !== undefined) {
    log.info(`no card of the habanalabs driver on this machine: using the node server at ${socket}`);
    return server;
  }
  if (existsSync(socket)) {
    const started = onKilled(socket);
    if (started !== undefined) return started;
  } else log.info('no card of the habanalabs driver on this machine: using an emulated node of this process');
  return createOwnNode(options, () => warnOfEmulation(log, kernel));
}

/**
 * The RDMA devices that go with a node, by UCX_IB_DRIVER; undefined for none. A node has emulated ones only if it was given some, so `auto` prefers those.
 * @param sysRoot mount point of sysfs
 * @throws UcxError ERR_LIBRARY_NOT_FOUND, ERR_LIBRARY_UNUSABLE, ERR_LIBRARY_SYMBOL of libibverbs, unless `auto` looks for it
 */
export function openVerbs(
  { verbs }: Pick<DriverNode, 'verbs'>,
  { config, log }: Pick<OpenNodeOptions, 'config' | 'log'>,
  sysRoot = '/sys',
): VerbsPort | undefined {
  const { DRIVER } = config.get(IB_CONFIG_TABLE);
  if (DRIVER === 'verbs') return new Libibverbs(loadLibibverbs());
  if (DRIVER === 'emulator' || verbs !== undefined) return verbs;
  const names = rdmaDeviceNames(sysRoot);
  if (names.length === 0) return undefined;
  try {
    return new Libibverbs(loadLibibverbs(), names);
  } catch (error) {
    if (!isUcxError(error)) throw error;
    log.info(`the RDMA devices of this machine (${names.join(', ')}) are not used: ${error.message}`);
    return undefined;
  }
}

/** Data of the thread, which the threads that it starts later inherit. */
const EMULATION_IS_KNOWN = 'gaudi-ucx: the user knows that Gaudi memory is emulated';

/** For programs that label all emulated results: they need no warning. */
export function labelsEmulation(): void {
  setEnvironmentData(EMULATION_IS_KNOWN, true);
}

/** Warns once per process, except that each of several threads warns if they were started before the first warning. */
function warnOfEmulation(log: Log, kernel: KernelNode): void {
  if (getEnvironmentData(EMULATION_IS_KNOWN) === true) return;
  setEnvironmentData(EMULATION_IS_KNOWN, true);
  const choices = 'UCX_GAUDI_DRIVER=emulator silences this warning, UCX_GAUDI_DRIVER=kernel forbids emulation';
  log.warn(`Gaudi memory is emulated, as no card was found; ${choices}; ${kernel.whyNoCards()}`);
}

/** Number of processors from which on a thread for the DMA engines saves time: a polling program, its peer and the thread occupy one each. */
const PROCESSORS_FOR_ENGINES = 3;

/** The variable of the option hbmBytes of an emulated node. */
export const HBM_VARIABLE = 'UCX_GAUDI_EMULATOR_HBM';

/** An emulated node in this process, whose engines share its processors. */
function createOwnNode(options: OpenNodeOptions, onAllocation?: () => void): DriverNode {
  const processors = availableParallelism();
  const given: EmulatedNodeOptions = {
    ...(processors < PROCESSORS_FOR_ENGINES ? { dmaThreads: 0 } : {}),
    ...nodeOptions(options),
    ...(onAllocation === undefined ? {} : { onAllocation }),
  };
  const node = withArgumentNames({ hbmBytes: HBM_VARIABLE }, () => createEmulatedNode(given));
  const { dmaThreads } = node.config;
  const where = dmaThreads === 0 ? 'inside the calls' : `in ${dmaThreads} thread(s)`;
  options.log.info(`the DMA engines of the emulated cards run ${where}; this process has ${processors} processor(s)`);
  return node;
}

/** Options of an emulated node from UCX_GAUDI_EMULATOR_*; its cards include those that GAUDI_MAPPING_TABLE names, up to its number of cards. */
export function nodeOptions({ config, log, clock, env }: OpenNodeOptions): EmulatedNodeOptions {
  const values = config.get(GAUDI_CONFIG_TABLE);
  return {
    asic: values.EMULATOR_ASIC,
    cards: values.EMULATOR_CARDS,
    nics: values.EMULATOR_NICS,
    nicSockets: true,
    identities: identitiesIn(env['GAUDI_MAPPING_TABLE'], values.EMULATOR_CARDS),
    clock,
    log: log.child('emulator'),
    ...(values.EMULATOR_DMA_THREADS === 'auto' ? {} : { dmaThreads: values.EMULATOR_DMA_THREADS }),
    ...(values.EMULATOR_HBM === 'auto' ? {} : { hbmBytes: values.EMULATOR_HBM }),
  };
}

/** The cards of a table, unless no node can have them: then opening the cards rejects the table. */
function identitiesIn(table: string | undefined, cards: number): readonly CardIdentity[] {
  const identities = table === undefined ? [] : cardsInTable(table).slice(0, cards);
  try {
    placesOf(cards, identities);
    return identities;
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return [];
  }
}
