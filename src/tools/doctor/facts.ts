/** Facts of `gaudi-ucx doctor` about the machine, the process and the node. Values of missing files are undefined. */

import { readFileSync, readlinkSync, statfsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { findUcxLibrary } from '../../assembly/engine.ts';
import { inspectProcesses } from '../../assembly/inspect/inspect-client.ts';
import { inspectSockets, socketFolder, trySocketFolder } from '../../assembly/inspect/inspect-sockets.ts';
import { cardSelection, cardsOf, openShownNode } from '../../assembly/open-node.ts';
import { TCP_CONFIG_TABLE } from '../../assembly/program/config.ts';
import {
  type Program,
  type SharedMemorySpace,
  sharedMemoryFailure,
  sharedMemorySpace,
} from '../../assembly/program/program.ts';
import { type ControlDevice, type DriverNode, getNicPorts, linksBetween, type NicPort } from '../../hlthunk/index.ts';
import { isInitialUserNamespace, pidNamespace, processCommand, schedGetAffinity, Udmabuf } from '../../sys/index.ts';
import { DRM_IOCTL_TYPE, ioctlType } from '../../uapi/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { askCard } from '../node-access/card.ts';

const COMMAND_LENGTH_MAX = 60;
const TIMEOUT_NS = 500e6;

/** A card of the node. */
export interface CardFacts {
  readonly index: number | undefined;
  readonly minor: number | undefined;
  readonly busId: string;
  readonly state: string;
  /** Reason why the card cannot be queried. */
  readonly reason: string | undefined;
  /** The process that has its compute context, as `4711 (command)`. */
  readonly owner: string | undefined;
  /** The variable that excludes the card for programs in this environment; undefined for an included card. */
  readonly excludedBy: string | undefined;
}

/** Families of the ioctls of the driver. */
export type IoctlFamily = 'drm' | 'habanalabs';

/** The node, or the reason why there is none. */
export type NodeFacts =
  | {
      readonly kind: 'kernel' | 'emulator';
      readonly emulated: boolean;
      /** Whether the cards are emulated in this process only. */
      readonly isOwn: boolean;
      readonly driverVersion: string | undefined;
      /** Family of the ioctls that the cards accept; undefined if no card responds. */
      readonly abi: IoctlFamily | undefined;
      readonly cards: readonly CardFacts[];
      /** False if UCX_TLS excludes the transports of cards. */
      readonly usesCards: boolean;
      /** Devices or cards that the environment names but the node lacks, as a sentence. */
      readonly missing: string | undefined;
      /** Pairs of cards with links whose state is known; undefined if the driver reports no states. */
      readonly links: readonly LinkFacts[] | undefined;
      readonly whyNoCards: string | undefined;
      readonly failure?: undefined;
    }
  | { readonly failure: string };

/** Links between two cards of the node. */
export interface LinkFacts {
  readonly cards: readonly [CardFacts, CardFacts];
  readonly total: number;
  /** Links whose port is down at one of the two ends. */
  readonly down: number;
}

/** Space in the folder of posix. */
interface SpaceFacts {
  readonly totalBytes: number;
  readonly freeBytes: number;
  /** Reason why posix cannot create its files there; undefined if it can. */
  readonly failure: string | undefined;
}

/** All facts. */
export interface Facts {
  /** Effective capabilities, as bits (capabilities(7)). */
  readonly capabilities: bigint;
  /** Bytes, Infinity for no limit; undefined if unknown. */
  readonly memlockBytes: number | undefined;
  readonly openFilesMax: number | undefined;
  readonly sharedMemory: (SharedMemorySpace & SpaceFacts) | undefined;
  /** Value of Yama's ptrace_scope; undefined without Yama. */
  readonly ptraceScope: number | undefined;
  readonly isInitialUserNamespace: boolean;
  /** Names of namespaces, such as `ipc`, that differ from the initial ones of the host; undefined if unknown. */
  readonly ownNamespaces: readonly string[] | undefined;
  /** Inspected processes of this user in other pid namespaces. */
  readonly processesElsewhere: number;
  readonly sockets: { readonly folder: string; readonly failure: string | undefined };
  readonly node: NodeFacts;
  /** Version of the kernel module; undefined if it is not loaded. */
  readonly moduleVersion: string | undefined;
  readonly library: { readonly version?: string | undefined; readonly reason?: string | undefined };
  /** /dev/udmabuf: the reason why it is unusable, and the limit of a dma-buf in bytes; both undefined if usable without a known limit. */
  readonly udmabuf: { readonly refusal: string | undefined; readonly bytesMax: number | undefined };
  readonly clockSource: string | undefined;
  readonly processors: number;
  /** Processes of this user with contexts, and their workers. */
  readonly processes: number;
  readonly workers: number;
  /** Network devices with an address, except loopback. */
  readonly networks: readonly string[];
  /** Ports of UCX_TCP_PORT_RANGE, and how many of them are in use; undefined if the range is not limited. */
  readonly ports: { readonly count: number; readonly inUse: number } | undefined;
}

/** Reads all facts. */
export async function readFacts(program: Program): Promise<Facts> {
  const { env, clock } = program;
  const runtimeDirectory = env['XDG_RUNTIME_DIR'];
  const folder = tryFolder(runtimeDirectory);
  // If the folder is unusable, no process can be found in it: the check of the folder reports why.
  const isUsable = folder.failure === undefined;
  const answers = isUsable ? await inspectProcesses({ runtimeDirectory, clock, timeoutNs: TIMEOUT_NS }) : [];
  // Inspection removes sockets of ended processes, so they are counted after it.
  const sockets = isUsable ? inspectSockets(runtimeDirectory) : [];
  const contexts = answers.flatMap(({ snapshot }) => snapshot?.contexts ?? []);
  const limits = textOf('/proc/self/limits') ?? '';
  const ptraceScope = textOf('/proc/sys/kernel/yama/ptrace_scope');
  const library = findUcxLibrary(program);
  return {
    capabilities: BigInt(`0x${/^CapEff:\s*([\da-f]+)/m.exec(textOf('/proc/self/status') ?? '')?.[1] ?? '0'}`),
    memlockBytes: limitOf(limits, 'Max locked memory'),
    openFilesMax: limitOf(limits, 'Max open files'),
    sharedMemory: sharedMemory(program),
    ptraceScope: ptraceScope === undefined ? undefined : Number(ptraceScope),
    isInitialUserNamespace: isInitialUserNamespace(),
    ownNamespaces: ownNamespaces(),
    processesElsewhere: sockets.filter(({ process }) => process.pidNamespace !== pidNamespace()).length,
    sockets: folder,
    node: nodeFacts(program),
    moduleVersion: textOf('/sys/module/habanalabs/version'),
    library: { version: library.version, reason: library.reason },
    udmabuf: udmabufFacts(),
    clockSource: textOf('/sys/devices/system/clocksource/clocksource0/current_clocksource'),
    processors: schedGetAffinity(0).length,
    processes: new Set(answers.map(({ pid }) => pid)).size,
    workers: contexts.reduce((sum, { workers }) => sum + workers.length, 0),
    networks: Object.entries(networkInterfaces())
      .filter(([, addresses]) => addresses?.some(({ internal }) => !internal) === true)
      .map(([name]) => name),
    ports: portsOf(program),
  };
}

function udmabufFacts(): Facts['udmabuf'] {
  const megabytes = textOf('/sys/module/udmabuf/parameters/size_limit_mb');
  return {
    refusal: new Udmabuf().unavailableReason,
    bytesMax: megabytes === undefined ? undefined : Number(megabytes) * 2 ** 20,
  };
}

/** A file without surrounding blanks; undefined if it cannot be read. */
function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1').trim();
  } catch {
    return undefined;
  }
}

/** The soft limit in /proc/self/limits. */
function limitOf(limits: string, name: string): number | undefined {
  const value = new RegExp(`^${name} +(\\S+)`, 'm').exec(limits)?.[1];
  if (value === undefined) return undefined;
  return value === 'unlimited' ? Number.POSITIVE_INFINITY : Number(value);
}

function sharedMemory({ config }: Program): Facts['sharedMemory'] {
  const space = sharedMemorySpace(config);
  try {
    const { blocks, bavail, bsize } = statfsSync(space.folder);
    return { ...space, totalBytes: blocks * bsize, freeBytes: bavail * bsize, failure: sharedMemoryFailure(config) };
  } catch {
    return undefined;
  }
}

/** Inodes of the initial namespaces: include/linux/proc_ns.h, Linux 6.12. Those of mount and network namespaces are not fixed. */
const INITIAL_NAMESPACES = { pid: 0xeffffffc, ipc: 0xefffffff, uts: 0xeffffffe, cgroup: 0xeffffffb };

function ownNamespaces(): readonly string[] | undefined {
  try {
    return Object.entries(INITIAL_NAMESPACES)
      .filter(([name, inode]) => readlinkSync(`/proc/self/ns/${name}`) !== `${name}:[${inode}]`)
      .map(([name]) => name);
  } catch {
    return undefined;
  }
}

function tryFolder(runtimeDirectory: string | undefined): Facts['sockets'] {
  try {
    const folder = trySocketFolder(runtimeDirectory);
    inspectSockets(runtimeDirectory);
    return { folder, failure: undefined };
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return { folder: socketFolder(runtimeDirectory), failure: error.message };
  }
}

function nodeFacts(program: Program): NodeFacts {
  try {
    const node = openShownNode(program);
    try {
      let abi: IoctlFamily | undefined;
      const portsOfCards = new Map<CardFacts, readonly NicPort[]>();
      const { usesCards, missing, exclusionOf } = cardSelection(program, node);
      const cards = cardsOf(node, program).map((card): CardFacts => {
        const { entry, index, minor, busId, absence = 'removed' } = card;
        const name = { index, minor, busId, excludedBy: exclusionOf(card) };
        if (entry === undefined) return { ...name, state: absence, reason: undefined, owner: undefined };
        const pid = node.ownerOf?.(entry.minor);
        const {
          state,
          reason,
          card: asked,
        } = askCard(node, entry.minor, (control) => {
          return { number: control.card.file.numbers.INFO, ports: portsOfCard(control, node) };
        });
        if (asked !== undefined) abi = ioctlType(asked.number) === DRM_IOCTL_TYPE ? 'drm' : 'habanalabs';
        const owner = pid === undefined ? undefined : `${pid} (${processCommand(pid, COMMAND_LENGTH_MAX) ?? 'ended'})`;
        const facts = { ...name, state, reason, owner };
        if (asked?.ports !== undefined) portsOfCards.set(facts, asked.ports);
        return facts;
      });
      return {
        kind: node.kind,
        emulated: node.emulated,
        isOwn: node.kind === 'emulator' && node.serverPid === undefined,
        driverVersion: node.driverVersion,
        abi,
        cards,
        usesCards,
        missing,
        links: linksOf(portsOfCards),
        whyNoCards: node.cards().length === 0 ? node.whyNoCards?.() : undefined,
      };
    } finally {
      node.close();
    }
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return { failure: error.message };
  }
}

/** The ports of a card; undefined if the driver does not report them, and for a card that cannot be queried. */
function portsOfCard(control: ControlDevice, node: DriverNode): readonly NicPort[] | undefined {
  try {
    return getNicPorts(control, undefined, node);
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return undefined;
  }
}

/** Only ports with a card at the far end have a link: scale-out ports may have no cable, and ports to empty slots have none. */
function linksOf(portsOfCards: ReadonlyMap<CardFacts, readonly NicPort[]>): readonly LinkFacts[] | undefined {
  const known = [...portsOfCards].filter(([, ports]) => ports.some(({ linkUp }) => linkUp !== undefined));
  if (known.length === 0) return undefined;
  return known.flatMap(([card, ports], index) =>
    known.slice(index + 1).flatMap(([peer, peerPorts]): LinkFacts[] => {
      const ends = [linksBetween(ports, peer.busId), linksBetween(peerPorts, card.busId)];
      const counts = ends.filter((links) => links !== undefined);
      const total = Math.max(0, ...counts.map((links) => links.total));
      const down = Math.max(0, ...counts.map((links) => links.total - links.up));
      return total === 0 ? [] : [{ cards: [card, peer], total, down }];
    }),
  );
}

/** Ports that listen, in hexadecimal as in /proc/net/tcp. */
const LISTENING = /^ *\d+: [\dA-F]+:([\dA-F]{4}) [\dA-F]+:[\dA-F]{4} 0A /gm;

function portsOf({ config }: Program): Facts['ports'] {
  const [first, last] = config.get(TCP_CONFIG_TABLE).PORT_RANGE;
  if (first === 0) return undefined;
  const listening = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) =>
    [...(textOf(file) ?? '').matchAll(LISTENING)].map(([, port = '']) => Number.parseInt(port, 16)),
  );
  const inUse = new Set(listening.filter((port) => port >= first && port <= last));
  return { count: last - first + 1, inUse: inUse.size };
}
