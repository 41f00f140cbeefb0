/** Options of an emulated node, their defaults and bounds. */

import {
  type AsicName,
  type AsicProfile,
  GAUDI_PROFILE,
  GAUDI2_PROFILE,
  GAUDI3_PROFILE,
  gaudi3WithChannels,
} from '../../uapi/index.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { createLog, type Log, LogLevel, standardErrorSink } from '../../ucs/debug/log.ts';
import { type Clock, systemClock } from '../../ucs/sys/clock.ts';
import { createRandom, type Random } from '../../ucs/sys/random.ts';
import { checkFlag, checkMethods, checkNoNulls, checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { type CardIdentity, placesOf } from './card-places.ts';
import { type CardPair, checkLinks } from './links.ts';

/** Maximum number of cards in a node: those of one server. */
export const CARDS_MAX = 8;

/** Maximum number of RDMA devices in a node. */
export const NICS_MAX = 8;

/** Options of an emulated node; every one has a default. */
export interface EmulatedNodeOptions {
  /** Generation of all cards. Default `gaudi2`. */
  readonly asic?: AsicName | undefined;
  /** Number of cards, 1 to 8. Default 8. */
  readonly cards?: number | undefined;
  /**
   * Physical HBM of a card in bytes: a multiple of the DRAM page, at least the reserved part and four pages.
   * `min` is the smallest size, for tests that fill it. Default: the true size (gaudi 32 GiB, gaudi2 96 GiB, gaudi3 128 GiB). Sparse: untouched pages cost
   * nothing.
   */
  readonly hbmBytes?: number | 'min' | undefined;
  /** Number of RDMA devices, 0 to 8, named hca0, hca1 and so on. Default 0. */
  readonly nics?: number | undefined;
  /** Whether the RDMA devices register dma-bufs; otherwise they refuse them (EOPNOTSUPP), as rdma_rxe does. Default true. */
  readonly nicDmabufs?: boolean | undefined;
  /** Whether the RDMA devices also reach devices of other processes of this machine and user, over sockets; else only those of this thread. Default false. */
  readonly nicSockets?: boolean | undefined;
  /** Threads that run the DMA engines, 0 to 8; 0 runs them inside ioctl calls, reproducibly. Default 1, or 0 if this package was bundled into a program without the module of the thread. */
  readonly dmaThreads?: number | undefined;
  /** Idle time in nanoseconds before a DMA thread sleeps. Default 100 us. */
  readonly dmaSpinNs?: number | undefined;
  /** Transfers up to this many bytes run at submission when their queue is idle, 0 to 1 GiB. Default 4096. */
  readonly inlineBytesMax?: number | undefined;
  /** Whether messages of the PDMA channels of gaudi3 overtake data, as hardware may, so that a program without a barrier fails. Default false. */
  readonly strict?: boolean | undefined;
  /** The PDMA channels of users on gaudi3, bit n for channel n: driver versions differ. Default 0x7fffff. */
  readonly channelMask?: number | undefined;
  /** Whether MEMORY REG_DMABUF_FD exists: the vendor's driver has it on gaudi and gaudi2, upstream does not. Default true; false on gaudi3. */
  readonly importDmabuf?: boolean | undefined;
  /**
   * Whether HW_IP_INFO reports the masks of the NIC ports, as the vendor's newest driver does; upstream kernels report none. Default true.
   */
  readonly reportNicPorts?: boolean | undefined;
  /** Preferred ioctl family of the files; both are accepted. Default `drm`. */
  readonly ioctlFamily?: 'habanalabs' | 'drm' | undefined;
  /** Pairs of cards, by minor, without a scale-up link between them. Default none: all cards are linked. */
  readonly absentLinks?: readonly CardPair[] | undefined;
  /** Bus ids, module ids and NUMA nodes of some of the cards; default: those of an HLS-2 class server. {@link placesOf} assigns them to cards. */
  readonly identities?: readonly CardIdentity[] | undefined;
  /** Seconds after which a submission times out; default: that of the driver of the ASIC (gaudi 600, else 30). */
  readonly csTimeoutSeconds?: number | undefined;
  /** Source of time. Default: the monotonic clock of the system. */
  readonly clock?: Clock | undefined;
  /** Receives log messages. Default: warnings to standard error. */
  readonly log?: Log | undefined;
  /** Source of scheduling choices if `dmaThreads` is 0. */
  readonly random?: Random | undefined;
  /** Called after each allocation of device memory by a program. */
  readonly onAllocation?: (() => void) | undefined;
}

/** The options with their defaults, checked. */
export interface NodeConfig {
  /** Constants of the ASIC. */
  readonly profile: AsicProfile;
  /** Number of cards. */
  readonly cards: number;
  /** Physical HBM of a card in bytes. */
  readonly hbmBytes: number;
  /** Number of RDMA devices. */
  readonly nics: number;
  /** Whether the RDMA devices register dma-bufs. */
  readonly nicDmabufs: boolean;
  /** Whether the RDMA devices reach devices of other processes. */
  readonly nicSockets: boolean;
  /** Threads that run the DMA engines; 0 runs them inside ioctl calls. */
  readonly dmaThreads: number;
  /** Idle time in nanoseconds before a DMA thread sleeps. */
  readonly dmaSpinNs: number;
  /** Largest transfer in bytes that runs at submission if its queue is idle. */
  readonly inlineBytesMax: number;
  /** Whether messages of PDMA channels overtake data. */
  readonly strict: boolean;
  /** Whether MEMORY REG_DMABUF_FD exists. */
  readonly importDmabuf: boolean;
  /** Whether HW_IP_INFO reports the masks of the NIC ports. */
  readonly reportNicPorts: boolean;
  /** The ioctl family that files prefer; both are accepted. */
  readonly ioctlFamily: 'habanalabs' | 'drm';
  /** Pairs of cards without a scale-up link. */
  readonly absentLinks: readonly CardPair[];
  /** Bus ids, module ids and NUMA nodes of the cards. */
  readonly identities: readonly CardIdentity[];
  /** Seconds after which a submission times out. */
  readonly csTimeoutSeconds: number;
  /** Source of time. */
  readonly clock: Clock;
  /** Receives log messages. */
  readonly log: Log;
  /** Source of scheduling choices. */
  readonly random: Random;
  /** Called after each allocation of device memory. */
  readonly onAllocation: (() => void) | undefined;
}

const PROFILES: Readonly<Record<AsicName, AsicProfile>> = {
  gaudi: GAUDI_PROFILE,
  gaudi2: GAUDI2_PROFILE,
  gaudi3: GAUDI3_PROFILE,
};

const NODE_OPTIONS = [
  'asic',
  'cards',
  'hbmBytes',
  'nics',
  'nicDmabufs',
  'nicSockets',
  'dmaThreads',
  'dmaSpinNs',
  'inlineBytesMax',
  'strict',
  'channelMask',
  'importDmabuf',
  'reportNicPorts',
  'ioctlFamily',
  'absentLinks',
  'identities',
  'csTimeoutSeconds',
  'clock',
  'log',
  'random',
  'onAllocation',
] as const satisfies readonly (keyof EmulatedNodeOptions)[];

/** Minimum number of HBM pages of a card besides the reserved part. */
const USER_PAGES_MIN = 4;

/**
 * Checks options and fills in the defaults.
 * @param dmaThreads the default of this option
 * @throws UcxError ERR_INVALID_PARAM for a value out of its bounds
 */
export function resolveNodeOptions(options: EmulatedNodeOptions, dmaThreads = 1): NodeConfig {
  checkOptions(options, 'options', NODE_OPTIONS);
  checkNoNulls(options);
  checkCollaborators(options);
  if (options.log !== undefined) checkMethods('log', options.log, ['error', 'warn', 'info', 'debug', 'child']);
  const asic = options.asic ?? 'gaudi2';
  const usual = typeof asic === 'string' ? PROFILES[asic] : undefined;
  if (usual === undefined) throw invalidParam('asic', 'must be gaudi, gaudi2 or gaudi3', asic);
  const profile = withChannels(usual, options.channelMask);
  const config: NodeConfig = {
    profile,
    cards: options.cards ?? CARDS_MAX,
    hbmBytes: options.hbmBytes === 'min' ? hbmBytesMin(profile) : (options.hbmBytes ?? Number(profile.dram.size)),
    nics: options.nics ?? 0,
    nicDmabufs: options.nicDmabufs ?? true,
    nicSockets: options.nicSockets ?? false,
    dmaThreads: options.dmaThreads ?? dmaThreads,
    dmaSpinNs: options.dmaSpinNs ?? 100_000,
    inlineBytesMax: options.inlineBytesMax ?? 4096,
    strict: options.strict ?? false,
    importDmabuf: options.importDmabuf ?? profile.capabilities.importDmabuf,
    reportNicPorts: options.reportNicPorts ?? true,
    ioctlFamily: options.ioctlFamily ?? 'drm',
    absentLinks: options.absentLinks ?? [],
    identities: options.identities ?? [],
    csTimeoutSeconds: options.csTimeoutSeconds ?? profile.defaultCsTimeoutSeconds,
    clock: options.clock ?? systemClock,
    log: options.log ?? createLog('emulator', LogLevel.WARN, standardErrorSink),
    random: options.random ?? createRandom(1),
    onAllocation: options.onAllocation,
  };
  checkInteger('cards', config.cards, 1, CARDS_MAX);
  checkInteger('nics', config.nics, 0, NICS_MAX);
  checkInteger('dmaThreads', config.dmaThreads, 0, 8);
  checkInteger('dmaSpinNs', config.dmaSpinNs, 0, 1e9);
  checkInteger('inlineBytesMax', config.inlineBytesMax, 0, 2 ** 30);
  checkInteger('csTimeoutSeconds', config.csTimeoutSeconds, 1, 86_400);
  for (const name of FLAGS) checkFlag(name, config[name]);
  checkHbm(config);
  checkLinks(config.absentLinks, config.cards);
  placesOf(config.cards, config.identities);
  return config;
}

/** The profile with other channels of users, if given. */
function withChannels(profile: AsicProfile, channelMask: number | undefined): AsicProfile {
  if (channelMask === undefined) return profile;
  if (profile.channels === undefined)
    throw invalidParam('channelMask', 'must be omitted on gaudi and gaudi2', channelMask);
  const { groups, perGroup } = profile.channels;
  checkInteger('channelMask', channelMask, 0, 2 ** (groups.length * perGroup) - 1);
  return gaudi3WithChannels(channelMask);
}

function checkCollaborators({ ioctlFamily, clock, random, onAllocation }: EmulatedNodeOptions): void {
  if (ioctlFamily !== undefined && ioctlFamily !== 'habanalabs' && ioctlFamily !== 'drm') {
    throw invalidParam('ioctlFamily', 'must be habanalabs or drm', ioctlFamily);
  }
  if (clock !== undefined) checkMethods('clock', clock, ['nowNs', 'setTimer']);
  if (random !== undefined) checkMethods('random', random, ['nextU32', 'below']);
  if (onAllocation !== undefined && typeof onAllocation !== 'function') {
    throw invalidParam('onAllocation', 'must be a function', onAllocation);
  }
}

const HBM_BYTES_MAX = 2 ** 40;

const FLAGS = ['nicDmabufs', 'nicSockets', 'importDmabuf', 'reportNicPorts', 'strict'] as const;

function checkInteger(argument: string, value: number, min: number, max: number): void {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw invalidParam(argument, `must be an integer from ${min} to ${max}`, value);
  }
}

/** A size as options and variables take it. */
function sizeText(bytes: number): string {
  return memorySizeType.print(bytes);
}

/** The valid sizes below and above one. */
function nearestSizes(bytes: number, min: number, page: number): string[] {
  const max = HBM_BYTES_MAX - (HBM_BYTES_MAX % page);
  const below = Math.floor(bytes / page) * page;
  const sizes = [below, below + page].map((size) => Math.min(Math.max(size, min), max));
  return [...new Set(sizes)].map(sizeText);
}

function hbmBytesMin({ dram }: AsicProfile): number {
  return Number(dram.reservedSize + dram.pageSize * BigInt(USER_PAGES_MIN));
}

function checkHbm({ profile, hbmBytes }: NodeConfig): void {
  const { pageSize } = profile.dram;
  const min = hbmBytesMin(profile);
  if (
    !Number.isSafeInteger(hbmBytes) ||
    hbmBytes < min ||
    hbmBytes > HBM_BYTES_MAX ||
    hbmBytes % Number(pageSize) !== 0
  ) {
    const page = Number(pageSize);
    const nearest = Number.isFinite(hbmBytes) ? `, such as ${nearestSizes(hbmBytes, min, page).join(' or ')}` : '';
    const rule = `must be a multiple of the DRAM page of ${sizeText(page)}, from ${sizeText(min)} to ${sizeText(HBM_BYTES_MAX)}${nearest}`;
    throw invalidParam('hbmBytes', rule, hbmBytes);
  }
}
