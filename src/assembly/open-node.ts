/**
 * The one place that selects the driver: cards of this machine through the kernel, or an emulated node, always with a notice. The cards of a node:
 * their names for all tools, and those that the configuration allows a program to use. Only opening a card shows whether it is free.
 */

import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import { type NamedCard, namedCards } from '../driver/card-names.ts';
import { rdmaDeviceNames } from '../driver/kernel/discovery.ts';
import { KernelNode } from '../driver/kernel/kernel-node.ts';
import type { CardEntry, DriverNode } from '../driver/port.ts';
import {
  type CardIdentity,
  connectEmulatedNode,
  createEmulatedNode,
  defaultSocketPath,
  type EmulatedNodeOptions,
  placesOf,
} from '../emulator/index.ts';
import { Errno } from '../sys/index.ts';
import { UCP_CONFIG_TABLE } from '../ucp/resources/config.ts';
import { type NamedTransport, ResourceFilter } from '../ucp/resources/resource-filter.ts';
import type { ConfigValues } from '../ucs/config/config.ts';
import type { Log } from '../ucs/debug/log.ts';
import type { Clock } from '../ucs/sys/clock.ts';
import { isUcxError, type UcxError, withArgumentNames } from '../ucs/type/error.ts';
import { DeviceType } from '../uct/api/iface.ts';
import { cardChoiceOf, cardName, choosingVariable, chosenCards, missingCards } from '../uct/gaudi/base/cards.ts';
import { cardsInTable, type MappedCard } from '../uct/gaudi/base/mapping-table.ts';
import { GAUDI_COPY_ALIASES, GAUDI_COPY_TRANSPORT } from '../uct/gaudi/copy/endpoint.ts';
import { GAUDI_IPC_ALIASES, GAUDI_IPC_NAME } from '../uct/gaudi/ipc/config.ts';
import { IB_CONFIG_TABLE } from '../uct/ib/base/config.ts';
import { Libibverbs } from '../verbs/libibverbs/libibverbs.ts';
import { loadLibibverbs } from '../verbs/libibverbs/library.ts';
import type { VerbsPort } from '../verbs/port.ts';
import { GAUDI_CONFIG_TABLE } from './program/config.ts';
import type { Program } from './program/program.ts';

/** What the selection of a node works with. */
export interface NodeServices {
  readonly config: ConfigValues;
  readonly log: Log;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Opens the node selected by UCX_GAUDI_DRIVER.
 * @throws UcxError ERR_INVALID_PARAM for an invalid emulated node; ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED from the node server
 */
export function openNode(options: NodeServices): DriverNode {
  return chooseNode(options, (socket, { details, message }) => {
    const what = details['errno'] === Errno.ECONNREFUSED ? `the node server at ${socket} has ended` : message;
    options.log.warn(`${what}: this process emulates its own node`);
    return undefined;
  });
}

/**
 * Opens the node for a command that shows it. Where {@link openNode} emulates a node because the node server was killed, this refuses: its cards would be taken
 * for those of the server.
 * @throws UcxError as {@link openNode}
 */
export function openShownNode(options: NodeServices): DriverNode {
  return chooseNode(options, connectEmulatedNode);
}

/**
 * @param onUnreachable called with the socket of a node server that cannot be used, which was killed or whose folder others may enter, and the error: returns a
 * node to use, or nothing for an emulated one of this process
 */
function chooseNode(
  options: NodeServices,
  onUnreachable: (socket: string, error: UcxError) => DriverNode | undefined,
): DriverNode {
  const { config, log, clock, env } = options;
  const values = config.get(GAUDI_CONFIG_TABLE);
  if (typeof values.DRIVER === 'object') return connectEmulatedNode(values.DRIVER.socket);
  if (values.DRIVER === 'emulator') return createOwnNode(options);
  const kernel = new KernelNode({ clock, log: log.child('driver') });
  if (values.DRIVER === 'kernel' || kernel.cards().length > 0) return kernel;
  kernel.close();
  const socket = defaultSocketPath(env['XDG_RUNTIME_DIR']);
  const server = connectIfReachable(socket);
  if (!isUcxError(server)) {
    log.info(`no card of the habanalabs driver on this machine: using the node server at ${socket}`);
    return server;
  }
  if (existsSync(socket)) {
    const started = onUnreachable(socket, server);
    if (started !== undefined) return started;
  } else log.info('no card of the habanalabs driver on this machine: using an emulated node of this process');
  return createOwnNode(options, () => warnOfEmulation(log, kernel));
}

/** The node server, or the error of one that cannot be reached. @throws UcxError ERR_NODE_REFUSED */
function connectIfReachable(socket: string): DriverNode | UcxError {
  try {
    return connectEmulatedNode(socket);
  } catch (error) {
    if (isUcxError(error) && error.code === 'ERR_NODE_UNREACHABLE') return error;
    throw error;
  }
}

/**
 * The RDMA devices that go with a node, by UCX_IB_DRIVER; undefined for none. A node has emulated ones only if it was given some, so `auto` prefers those.
 * @param sysRoot mount point of sysfs
 * @throws UcxError ERR_LIBRARY_NOT_FOUND, ERR_LIBRARY_UNUSABLE, ERR_LIBRARY_SYMBOL of libibverbs, unless `auto` looks for it
 */
export function openVerbs(
  { verbs }: Pick<DriverNode, 'verbs'>,
  { config, log }: Pick<NodeServices, 'config' | 'log'>,
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
export const EMULATION_IS_KNOWN = 'gaudi-ucx: the user knows that Gaudi memory is emulated';

/** For programs that label all emulated results: they need no warning. */
export function labelsEmulation(): void {
  setEnvironmentData(EMULATION_IS_KNOWN, true);
}

/** Warns once per process, except that each of several threads warns if they were started before the first warning. */
function warnOfEmulation(log: Log, kernel: KernelNode): void {
  if (getEnvironmentData(EMULATION_IS_KNOWN) === true) return;
  setEnvironmentData(EMULATION_IS_KNOWN, true);
  log.warn(`Gaudi memory is emulated, as no card was found; ${EMULATION_CHOICES}; ${kernel.whyNoCards()}`);
}

/**
 * For a command that shows cards, a sentence if they are emulated in its process because there are no others: the user may not know. Undefined for cards
 * that the user has chosen, by UCX_GAUDI_DRIVER or a node server, and for real ones.
 */
export function emulationNotice(program: Pick<Program, 'config'>, node: DriverNode): string | undefined {
  const isChosen = program.config.get(GAUDI_CONFIG_TABLE).DRIVER !== 'auto';
  if (isChosen || node.kind !== 'emulator' || node.serverPid !== undefined) return undefined;
  return `these cards are emulated, as no card and no node server was found; ${EMULATION_CHOICES}`;
}

const EMULATION_CHOICES = 'UCX_GAUDI_DRIVER=emulator silences this warning, UCX_GAUDI_DRIVER=kernel forbids emulation';

/** Number of processors from which on a thread for the DMA engines saves time: a polling program, its peer and the thread occupy one each. */
const PROCESSORS_FOR_ENGINES = 3;

/** The variable of the option hbmBytes of an emulated node. */
export const HBM_VARIABLE = 'UCX_GAUDI_EMULATOR_HBM';

/** An emulated node in this process, whose engines share its processors. */
function createOwnNode(options: NodeServices, onAllocation?: () => void): DriverNode {
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
export function nodeOptions({ config, log, clock, env }: NodeServices): EmulatedNodeOptions {
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

export { cardLabel } from '../driver/card-names.ts';
export { BUSY_ADVICE, cardLines } from '../uct/gaudi/base/cards.ts';

/** A card that may be used. */
export interface AllowedCard {
  /** Name of its device, such as `gaudi0`. */
  readonly name: string;
  /** Logical index. */
  readonly index: number;
  readonly card: CardEntry;
}

/**
 * Returns the cards, in the order of their logical indices.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE, ERR_INVALID_PARAM
 */
export function allowedCards(program: Program, node: DriverNode): AllowedCard[] {
  return admittedCards(program, node).flatMap(({ index, entry }) =>
    entry === undefined ? [] : [{ name: cardName(index), index, card: entry }],
  );
}

/** Settings of a program that needs one card, and uses no other. */
export function cardSettings({
  name,
  index,
  card: { busId, moduleId },
}: AllowedCard): Readonly<Record<string, string>> {
  const entry = { index, ...(moduleId === undefined ? {} : { module_id: moduleId }), bus_id: busId };
  return { UCX_ACC_DEVICES: name, GAUDI_MAPPING_TABLE: JSON.stringify([entry]) };
}

/** The cards that a program could use if they were not removed. Throws like {@link allowedCards}. */
export function removedCards(program: Program, node: DriverNode): NamedCard[] {
  return admittedCards(program, node).filter(({ absence }) => absence !== undefined);
}

function admittedCards({ config, env }: Program, node: DriverNode): MappedCard[] {
  const { admitsDevice } = new ResourceFilter(config.get(UCP_CONFIG_TABLE));
  return chosenCards(cardChoiceOf(env), node).filter(({ index }) => admitsDevice(DeviceType.ACC, cardName(index)));
}

/** What the environment of a program says about the cards of a node. */
export interface PermittedCards {
  /** False if UCX_TLS leaves out the transports of cards. */
  readonly usesCards: boolean;
  /** A sentence about cards that the environment names and the node does not have; undefined if there is none. */
  readonly missing: string | undefined;
  /** The variable by which a program does not open a card; undefined for one that it opens. */
  readonly exclusionOf: (card: Pick<NamedCard, 'busId' | 'entry'>) => string | undefined;
}

/** Reads the selection of cards. Throws like {@link allowedCards}. */
export function cardSelection({ config, env }: Pick<Program, 'config' | 'env'>, node: DriverNode): PermittedCards {
  const choice = cardChoiceOf(env);
  const chosen = chosenCards(choice, node);
  const variable = choosingVariable(choice);
  const missing = missingCards(choice, node);
  const filter = new ResourceFilter(config.get(UCP_CONFIG_TABLE));
  const usesCards = CARD_TRANSPORTS.some((transport) => filter.admitsTransport(transport));
  return {
    usesCards,
    missing,
    exclusionOf: ({ busId, entry }) => {
      if (!usesCards) return 'UCX_TLS';
      const card = chosen.find((each) => each.busId === busId);
      if (card !== undefined) {
        return filter.admitsDevice(DeviceType.ACC, cardName(card.index)) ? undefined : 'UCX_ACC_DEVICES';
      }
      // A removed card has no known module: it may be the missing one.
      const mayBeWanted = variable === 'HABANA_VISIBLE_MODULES' && entry === undefined && missing !== undefined;
      return mayBeWanted ? undefined : variable;
    },
  };
}

const CARD_TRANSPORTS: readonly NamedTransport[] = [
  { name: GAUDI_COPY_TRANSPORT, aliases: GAUDI_COPY_ALIASES },
  { name: GAUDI_IPC_NAME, aliases: GAUDI_IPC_ALIASES },
];

/**
 * All cards of a node, also removed ones, under the indices that a program has for them: those of GAUDI_MAPPING_TABLE, else the order of their bus ids.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE
 */
export function cardsOf(node: DriverNode, { env }: Pick<Program, 'env'>): NamedCard[] {
  const { mappingTable } = cardChoiceOf(env);
  const all = namedCards(node);
  if (mappingTable === undefined) return all;
  const mapped = chosenCards({ mappingTable }, node);
  const others = all.filter(({ busId }) => mapped.every((card) => card.busId !== busId));
  return [...mapped, ...others.map((card) => ({ ...card, index: undefined }))];
}
