/**
 * The cards of one program. They are selected by the environment or detected, and all opened at once, so that an unusable card or a missing capability
 * (UCX_GAUDI_COPY_*=y) is reported at the start and not at the first transfer. Also their scale-out ports (UCX_GAUDI_COPY_NIC_SCALE_OUT).
 */

import {
  cardLabel,
  type Device,
  type DriverNode,
  exportBlock,
  GaudiErrorCode,
  gaudiError,
  getHwBlock,
  getNicPorts,
  namedCards,
  open,
} from '../../../hlthunk/index.ts';
import { close as closeFd } from '../../../sys/index.ts';
import type { Ternary } from '../../../ucs/config/value.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { invalidParam, isUcxError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { GaudiCopyConfig } from './config.ts';
import { Landings } from './landings.ts';
import { type MappedCard, parseMappingTable } from './mapping-table.ts';

/** An open card under its logical index. */
export interface GaudiCard {
  /** Logical index: part of the device name for users, and the system device. */
  readonly index: number;
  readonly device: Device;
  readonly landings: Landings;
  /** False for a device that the application has opened and will close. */
  readonly isOwned: boolean;
  /** Number of transfers of the context in flight. */
  inFlight: number;
}

export interface GaudiCardsOptions {
  readonly node: DriverNode;
  /** The selection by the environment. */
  readonly choice: CardChoice;
  readonly log: Log;
  readonly clock: Clock;
  /** Called for a card that cannot be opened, unless there is a mapping table. */
  readonly onLeftOut: (name: string, error: UcxError) => void;
  /** Whether the program uses the card with this name; if omitted, it uses all cards. */
  readonly isWanted?: ((name: string) => boolean) | undefined;
}

/** Advice to the user if other programs have the cards open. */
export const BUSY_ADVICE = 'select other cards with UCX_ACC_DEVICES or GAUDI_MAPPING_TABLE';

/** A card that could not be opened. */
interface OpenFailure {
  readonly card: MappedCard;
  readonly error: UcxError;
}

/** Arguments of {@link cardLabel}. */
type Labelled = Parameters<typeof cardLabel>[0];

/** The device name of a card for users. */
export function cardName(index: number): string {
  return `gaudi${index}`;
}

/**
 * Opens the cards.
 *
 * With a mapping table every card in it must open. Without one, a card that cannot be opened is skipped, as long as another one opens.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE; ERR_INVALID_PARAM for an invalid list of cards; ERR_GAUDI_DEVICE_NOT_FOUND if there are no cards; otherwise the
 *   error of opening a card
 */
export function openGaudiCards(options: GaudiCardsOptions): GaudiCard[] {
  const { node, choice, log, clock, isWanted, onLeftOut } = options;
  const isEmpty = node.cards().length === 0;
  if (node.lostReason !== undefined) throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, node.lostReason);
  const all = chosenCards(choice, node);
  const mapped = isWanted === undefined ? all : all.filter(({ index }) => isWanted(cardName(index)));
  const opened: GaudiCard[] = [];
  const failures: OpenFailure[] = [];
  for (const card of mapped) {
    try {
      opened.push(openCard(node, card, log, clock));
    } catch (error) {
      if (!isUcxError(error)) throw error;
      if (choice.mappingTable !== undefined) {
        closeGaudiCards(opened);
        throw error.code === GaudiErrorCode.DEVICE_BUSY ? withAdvice(error) : error;
      }
      failures.push({ card, error });
      onLeftOut(cardName(card.index), error);
    }
  }
  if (opened.length > 0) return opened;
  const missing = missingCards(choice, node);
  const reason = isEmpty && node.whyNoCards !== undefined ? ` (${node.whyNoCards()})` : '';
  const why = isEmpty
    ? `the ${node.kind} node has no cards${reason}`
    : `no card is selected: ${missing ?? `UCX_ACC_DEVICES excludes all cards of the ${node.kind} node`}`;
  const failure = joinedFailure(failures);
  if (failure?.code === GaudiErrorCode.DEVICE_BUSY) throw withAdvice(failure);
  throw failure ?? gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, why);
}

/**
 * The cards for devices that the application has opened. Their indices are their positions in the list.
 * @param isWanted as in {@link GaudiCardsOptions}
 */
export function borrowedCards(devices: readonly Device[], isWanted: GaudiCardsOptions['isWanted']): GaudiCard[] {
  const cards = devices.map((device, index) => gaudiCard(index, device, false));
  return isWanted === undefined ? cards : cards.filter(({ index }) => isWanted(cardName(index)));
}

/** Closes cards in reverse order of opening. Cards of the application stay open. */
export function closeGaudiCards(cards: readonly GaudiCard[]): void {
  for (const { device, landings, isOwned } of [...cards].reverse()) {
    if (isOwned) device.close();
    landings.close();
  }
}

/**
 * Calls `onLost` once, when the driver reports that it resets the card: the contents of its memory are lost, and the card must be closed and opened again.
 * @returns a function that ends watching
 */
export function watchResets({ device }: GaudiCard, onLost: (error: UcxError) => void): () => void {
  const { card, events } = device;
  if (!events.supported) return () => {};
  const subscription = events.register(() => {
    const { lostReason } = card;
    if (lostReason === undefined) return;
    subscription.close();
    onLost(card.lostError(lostReason));
  });
  return () => subscription.close();
}

/** A single error if none of the cards could be opened: the error of a busy card, if there is one, with the reasons of all. Undefined for an empty list. */
function joinedFailure(failures: readonly OpenFailure[]): UcxError | undefined {
  const shown = failures.find(({ error }) => error.code === GaudiErrorCode.DEVICE_BUSY) ?? failures.at(-1);
  if (shown === undefined || failures.length === 1) return shown?.error;
  const { code, details } = shown.error;
  const reasons = new Map(failures.map(({ card, error }) => [card, String(error.details['reason'] ?? error.message)]));
  const cards = failures.map(({ card }) => card);
  const lines = cardLines(cards, (card) => reasons.get(card)!);
  return gaudiError(code as GaudiErrorCode, `open of ${lines.join('; ')}`, details, shown.error.cause);
}

/** Adds advice for the user to the error of a card that another program has open. */
function withAdvice({ code, status, message, details, cause }: UcxError): UcxError {
  return new UcxError({ code, status, message: `${message}; ${BUSY_ADVICE}`, details, cause });
}

function openCard(node: DriverNode, card: MappedCard, log: Log, clock: Clock): GaudiCard {
  const { index, busId, entry, absence } = card;
  if (absence !== undefined) {
    const details = { minor: card.minor, busId, reason: absence };
    throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `${cardLabel(card)}: ${absence}`, details);
  }
  const device = open(node, { busId }, { index, log: log.child(cardName(index)), dma: { clock } });
  log.debug(`${cardLabel(card)}, module ${entry?.moduleId ?? 'unknown'}`);
  return gaudiCard(index, device, true);
}

function gaudiCard(index: number, device: Device, isOwned: boolean): GaudiCard {
  return { index, device, landings: new Landings(device), isOwned, inFlight: 0 };
}

/** Lines about cards. Cards with the same description share a line with their indices: `cards 0-2, 5: in reset`; a single card has its full name. */
export function cardLines<T extends Labelled>(cards: readonly T[], textOf: (card: T) => string): string[] {
  const groups = new Map<string, T[]>();
  for (const card of cards) {
    const text = textOf(card);
    groups.set(text, [...(groups.get(text) ?? []), card]);
  }
  return [...groups].map(([text, group]) => `${groupLabel(group)}: ${text}`);
}

function groupLabel(group: readonly Labelled[]): string {
  const indices = group.flatMap(({ index }) => index ?? []);
  if (group.length === 1 || indices.length < group.length) return group.map(cardLabel).join(', ');
  return `cards ${rangesOf(indices)}`;
}

/** `0-2, 5`. */
function rangesOf(numbers: readonly number[]): string {
  const runs: { first: number; last: number }[] = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const run = runs.at(-1);
    if (run !== undefined && number === run.last + 1) run.last = number;
    else runs.push({ first: number, last: number });
  }
  return runs.map(({ first, last }) => (first === last ? String(first) : `${first}-${last}`)).join(', ');
}

/*
 * Selection of the cards of a program by environment variables. The first of these that is set decides:
 *
 * | Variable | Meaning |
 * |---|---|
 * | GAUDI_MAPPING_TABLE | The card of each logical index: see mapping-table.ts |
 * | HABANA_VISIBLE_MODULES | OCP module ids, separated by commas, as for the frameworks of the vendor |
 * | HABANA_VISIBLE_DEVICES | Logical indices, separated by commas, or `all`, as for the container runtime of the vendor |
 *
 * The last two only select cards and do not change the logical indices. UCX_ACC_DEVICES then selects among these cards by name.
 */

/** Values of the variables; undefined if not set. */
export interface CardChoice {
  /** Value of GAUDI_MAPPING_TABLE. */
  readonly mappingTable: string | undefined;
  /** Value of HABANA_VISIBLE_MODULES. */
  readonly visibleModules?: string | undefined;
  /** Value of HABANA_VISIBLE_DEVICES. */
  readonly visibleDevices?: string | undefined;
}

/** Methods of the node that are used here. */
type Cards = Pick<DriverNode, 'cards' | 'absentCards'>;

const NUMBERS = /^\d{1,3}(,\d{1,3})*$/;

/** Reads the selection from an environment. */
export function cardChoiceOf(env: Readonly<Record<string, string | undefined>>): CardChoice {
  return {
    // An empty variable counts as unset.
    mappingTable: env['GAUDI_MAPPING_TABLE'] || undefined,
    visibleModules: env['HABANA_VISIBLE_MODULES'],
    visibleDevices: env['HABANA_VISIBLE_DEVICES'],
  };
}

/**
 * Checks the types in a selection that a program passes.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkCardChoice(choice: CardChoice): void {
  for (const name of ['mappingTable', 'visibleModules', 'visibleDevices'] as const) {
    const value: unknown = choice[name];
    if (value !== undefined && typeof value !== 'string') throw invalidParam(name, 'must be a string', value);
  }
}

/**
 * The selected cards by logical index, including removed ones.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE; ERR_INVALID_PARAM for an invalid list
 */
export function chosenCards(choice: CardChoice, node: Cards): MappedCard[] {
  const { mappingTable, visibleModules, visibleDevices } = choice;
  if (mappingTable !== undefined) return parseMappingTable(mappingTable, namedCards(node));
  const all = namedCards(node);
  const modules = listOf('HABANA_VISIBLE_MODULES', visibleModules);
  if (modules !== undefined) {
    return all.filter(({ entry }) => entry?.moduleId !== undefined && modules.has(entry.moduleId));
  }
  const indices = listOf('HABANA_VISIBLE_DEVICES', visibleDevices);
  return indices === undefined ? all : all.filter(({ index }) => indices.has(index));
}

/** The variable that decides which cards are selected; undefined if all are. @throws UcxError ERR_INVALID_PARAM for an invalid list */
export function choosingVariable({ mappingTable, visibleModules, visibleDevices }: CardChoice): string | undefined {
  if (mappingTable !== undefined) return 'GAUDI_MAPPING_TABLE';
  if (listOf('HABANA_VISIBLE_MODULES', visibleModules) !== undefined) return 'HABANA_VISIBLE_MODULES';
  return listOf('HABANA_VISIBLE_DEVICES', visibleDevices) === undefined ? undefined : 'HABANA_VISIBLE_DEVICES';
}

/**
 * Describes, for users, the selected cards that this machine does not have; undefined if there are none. For a mapping table, such a card is an error
 * elsewhere.
 * @throws UcxError as {@link chosenCards}
 */
export function missingCards(choice: CardChoice, node: Cards): string | undefined {
  const all = namedCards(node);
  if (choice.mappingTable !== undefined || all.length === 0) return undefined;
  const modules = listOf('HABANA_VISIBLE_MODULES', choice.visibleModules);
  const name = modules === undefined ? 'HABANA_VISIBLE_DEVICES' : 'HABANA_VISIBLE_MODULES';
  const numbers = modules ?? listOf(name, choice.visibleDevices) ?? new Set();
  const known = modules === undefined ? all.map(({ index }) => index) : moduleIds(all);
  const missing = [...numbers].filter((number) => !known.includes(number));
  if (missing.length === 0) return undefined;
  const kind = modules === undefined ? 'indices' : 'modules';
  return `${name}=${[...numbers].join(',')} names cards that do not exist: ${missing.join(', ')}; the ${kind} of this machine are ${known.join(', ')}`;
}

function moduleIds(cards: readonly MappedCard[]): number[] {
  return cards.flatMap(({ entry }) => entry?.moduleId ?? []).sort((one, other) => one - other);
}

/** The numbers of a list; undefined if it selects all. */
function listOf(name: string, value: string | undefined): ReadonlySet<number> | undefined {
  const text = value?.replaceAll(' ', '');
  if (text === undefined || text === '' || text.toLowerCase() === 'all') return undefined;
  if (!NUMBERS.test(text)) throw invalidParam(name, 'must be numbers separated by commas, or all', value);
  return new Set(text.split(',').map(Number));
}

/** Number of bytes that are allocated and exported to test whether the driver supports export. */
const PROBE_BYTES = 4096;

/** The reason why the configuration prevents the export of a card's memory as dma-buf; undefined if it does not. The driver may still reject an export. */
export function exportLimitation({ DMABUF, MAPPED_DMABUF }: GaudiCopyConfig, { info }: Device): string | undefined {
  if (DMABUF === 'no') return 'UCX_GAUDI_COPY_DMABUF=n';
  const isMapped = info.profile.capabilities.dramMmu;
  if (isMapped && MAPPED_DMABUF === 'no') {
    return `UCX_GAUDI_COPY_MAPPED_DMABUF=n: ${info.profile.name} exports mapped memory only`;
  }
  return undefined;
}

/**
 * Checks that the cards have the capabilities that the configuration requires.
 * @throws UcxError ERR_UNSUPPORTED with the card, the setting and the missing capability
 */
export function checkDemands(cards: readonly GaudiCard[], config: GaudiCopyConfig): void {
  for (const { index, device } of cards) {
    const { profile } = device.info;
    if (config.MAPPED_DMABUF === 'yes' && !profile.capabilities.dramMmu) {
      throw unmetDemand(index, 'MAPPED_DMABUF', `${profile.name} exports physical memory only`);
    }
    if (config.DMABUF === 'yes') {
      const why = exportLimitation(config, device) ?? failureOf(() => exportProbe(device));
      if (why !== undefined) throw unmetDemand(index, 'DMABUF', why);
    }
    if (config.HW_BLOCK_ACCESS === 'yes') {
      const [block] = profile.userBlocks;
      const why = failureOf(() => getHwBlock(device, block?.address ?? profile.cfg.start));
      if (why !== undefined) throw unmetDemand(index, 'HW_BLOCK_ACCESS', why);
    }
  }
}

function exportProbe(device: Device): void {
  const block = device.memory.allocate(PROBE_BYTES, { dedicated: true });
  try {
    closeFd(exportBlock(block).fd);
  } finally {
    block.free();
  }
}

function failureOf(attempt: () => unknown): string | undefined {
  try {
    attempt();
    return undefined;
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return error.message;
  }
}

/**
 * The error for a missing required capability. Not NO_DEVICE, by which a memory domain reports that the machine has no cards: a context would continue without
 * them.
 */
function unmetDemand(index: number, field: string, why: string): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: `${cardName(index)} does not support UCX_GAUDI_COPY_${field}=y: ${why}; set UCX_GAUDI_COPY_${field}=try to continue without`,
    details: { index, field },
  });
}

/** Whether scale-out ports are detected: `yes` requires them, `try` uses existing ones. */
export type ScaleOutMode = Ternary;

/**
 * Detects the scale-out ports of open cards and logs them.
 * @throws UcxError ERR_UNSUPPORTED if they are required and a card has none, or its driver does not report ports
 */
export function detectScaleOut(cards: readonly GaudiCard[], node: DriverNode, mode: ScaleOutMode, log: Log): void {
  if (mode === 'no') return;
  for (const { index, device } of cards) {
    const external = getNicPorts(device, device.info, node)?.filter((port) => port.external);
    if (external !== undefined && external.length > 0) {
      const up = external.filter(({ linkUp }) => linkUp !== false).length;
      log.debug(`gaudi${index}: scale-out ports ${external.map(({ port }) => port).join(', ')}, ${up} with a link`);
    } else if (mode === 'yes') {
      const why = external === undefined ? 'the driver does not report NIC ports' : 'the card has no scale-out ports';
      throw unmetDemand(index, 'NIC_SCALE_OUT', why);
    }
  }
}
