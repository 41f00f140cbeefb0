/**
 * Selects the driver: cards of this host through the kernel, or an emulated node, always with a notice. Also the names of the cards of a node for the tools,
 * and the cards that the configuration allows a program to use; whether a card is free is only known once it is opened.
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

/** Dependencies of selecting a node. */
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
    const hasEnded = details['errno'] === Errno.ECONNREFUSED;
    const what = hasEnded ? `the node server at ${socket} has ended` : message;
    const remedy = hasEnded ? '; start it again by gaudi-ucx node up, then restart this program' : '';
    options.log.warn(`${what}, so this process has its own emulated cards, which other processes do not see${remedy}`);
    return undefined;
  });
}

/**
 * Opens the node for a command that shows it. If the node server was killed, {@link openNode} emulates a node, but this function fails: the user would take
 * its cards for those of the server.
 * @throws UcxError as {@link openNode}
 */
export function openShownNode(options: NodeServices): DriverNode {
  return chooseNode(options, connectEmulatedNode);
}

/**
 * @param onUnreachable called with the socket of an unusable node server, which was killed or whose folder other users may enter, and the error: returns a
 * node to use, or undefined for an emulated node in this process
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
    log.info(`the habanalabs driver has no cards on this host: using the node server at ${socket}`);
    return server;
  }
  if (existsSync(socket)) {
    const started = onUnreachable(socket, server);
    if (started !== undefined) return started;
  } else log.info('the habanalabs driver has no cards on this host: using an emulated node in this process');
  return createOwnNode(options, () => warnOfEmulation(log, kernel));
}

/** Connects to the node server, or returns the error if it is unreachable. @throws UcxError ERR_NODE_REFUSED */
function connectIfReachable(socket: string): DriverNode | UcxError {
  try {
    return connectEmulatedNode(socket);
  } catch (error) {
    if (isUcxError(error) && error.code === 'ERR_NODE_UNREACHABLE') return error;
    throw error;
  }
}

/**
 * The RDMA devices for a node, by UCX_IB_DRIVER; undefined for none. A node has emulated ones only if the user configured them, so `auto` prefers those.
 * @param sysRoot mount point of sysfs
 * @throws UcxError ERR_LIBRARY_NOT_FOUND, ERR_LIBRARY_UNUSABLE, ERR_LIBRARY_SYMBOL of libibverbs, unless it is optional by `auto`
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
    log.info(`the RDMA devices of this host (${names.join(', ')}) are unusable: ${error.message}`);
    return undefined;
  }
}

/** Environment data of the thread, inherited by the threads that it starts later. */
export const EMULATION_IS_KNOWN = 'gaudi-ucx: the user knows that Gaudi memory is emulated';

/** For programs that label all emulated results: they need no warning. */
export function labelsEmulation(): void {
  setEnvironmentData(EMULATION_IS_KNOWN, true);
}

/** Warns once per process; threads started before the first warning warn separately. */
function warnOfEmulation(log: Log, kernel: KernelNode): void {
  if (getEnvironmentData(EMULATION_IS_KNOWN) === true) return;
  setEnvironmentData(EMULATION_IS_KNOWN, true);
  log.warn(`Gaudi memory is emulated, because no card was found (${kernel.whyNoCards()}); ${EMULATION_CHOICES}`);
}

/**
 * For a command that shows cards, a notice if they are emulated in its process because no others exist, which the user may not know. Undefined for real
 * cards, and for cards that the user has selected by UCX_GAUDI_DRIVER or a node server.
 */
export function emulationNotice(program: Pick<Program, 'config'>, node: DriverNode): string | undefined {
  const isChosen = program.config.get(GAUDI_CONFIG_TABLE).DRIVER !== 'auto';
  if (isChosen || node.kind !== 'emulator' || node.serverPid !== undefined) return undefined;
  return `these cards are emulated, because neither a card nor a node server was found; ${EMULATION_CHOICES}`;
}

const EMULATION_CHOICES = 'UCX_GAUDI_DRIVER=emulator avoids this message, UCX_GAUDI_DRIVER=kernel forbids emulation';

/** Minimum number of processors for which a thread for the DMA engines saves time: a polling program, its peer and the thread occupy one each. */
const PROCESSORS_FOR_ENGINES = 3;

/** The variable of the option hbmBytes of an emulated node. */
export const HBM_VARIABLE = 'UCX_GAUDI_EMULATOR_HBM';

/** An emulated node in this process; its engines share the processors of the process. */
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

/** Options of an emulated node from UCX_GAUDI_EMULATOR_*; the cards in GAUDI_MAPPING_TABLE determine the identities, up to the number of cards. */
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

/** The cards of a table; empty if no node can have them: then opening the cards rejects the table. */
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

/** A card that the configuration allows. */
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

/** Settings of a program that uses exactly one card. */
export function cardSettings({
  name,
  index,
  card: { busId, moduleId },
}: AllowedCard): Readonly<Record<string, string>> {
  const entry = { index, ...(moduleId === undefined ? {} : { module_id: moduleId }), bus_id: busId };
  return { UCX_ACC_DEVICES: name, GAUDI_MAPPING_TABLE: JSON.stringify([entry]) };
}

/** Removed cards that a program could otherwise use. Throws like {@link allowedCards}. */
export function removedCards(program: Program, node: DriverNode): NamedCard[] {
  return admittedCards(program, node).filter(({ absence }) => absence !== undefined);
}

function admittedCards({ config, env }: Program, node: DriverNode): MappedCard[] {
  const { admitsDevice } = new ResourceFilter(config.get(UCP_CONFIG_TABLE));
  return chosenCards(cardChoiceOf(env), node).filter(({ index }) => admitsDevice(DeviceType.ACC, cardName(index)));
}

/** Selection of the cards of a node by the environment of a program. */
export interface PermittedCards {
  /** False if UCX_TLS excludes the transports of cards. */
  readonly usesCards: boolean;
  /** A sentence about cards in the environment that the node lacks; undefined if there are none. */
  readonly missing: string | undefined;
  /** The variable that excludes a card; undefined for an included card. */
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
      // The module of a removed card is unknown: it may be the missing one.
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
 * All cards of a node, including removed ones, with the indices that a program sees: those of GAUDI_MAPPING_TABLE, otherwise by bus id.
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
