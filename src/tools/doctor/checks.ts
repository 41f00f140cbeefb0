/** Checks of `gaudi-ucx doctor` for frequent errors of deployments, each with its remedy. */

import { cardLabel, cardLines } from '../../assembly/open-node.ts';
import { formatBytes } from '../base/text-table.ts';
import type { CardFacts, Facts, IoctlFamily } from './facts.ts';

/** `ok`; `note`: information; `warning`: reduced speed or function; `failure`: a function does not work. */
export type CheckState = 'ok' | 'note' | 'warning' | 'failure';

/** A result. */
export interface Check {
  readonly name: string;
  readonly state: CheckState;
  /** Finding: one line, or one for each group of cards with the same state. */
  readonly found: string;
  /** Remedy; undefined if none is needed. */
  readonly remedy?: string | undefined;
}

const MIB = 2 ** 20;
const MEMLOCK_MIN = 64 * MIB;
const SHARED_MEMORY_MIN = 64 * MIB;
const OPEN_FILES_MIN = 1024;
/** A context of eight emulated cards with two workers takes 90 descriptors. */
const OPEN_FILES_LEAST = 128;
const FAST_CLOCKS: readonly string[] = ['tsc', 'kvm-clock', 'arch_sys_counter', 'hyperv_clocksource_tsc_page'];
/** The families of ioctls of the driver. */
const ABIS: Readonly<Record<IoctlFamily, string>> = {
  drm: 'ioctls of DRM (Linux 6.7 or newer)',
  habanalabs: 'ioctls of the driver before DRM',
};
const OPERATIONAL = 'operational';

/** Bits of include/uapi/linux/capability.h. */
const CAP_IPC_LOCK = 14;
const CAP_SYS_PTRACE = 19;

function hasCapability(capabilities: bigint, bit: number): boolean {
  return ((capabilities >> BigInt(bit)) & 1n) === 1n;
}

/** All checks, in the order of the output. */
export function runChecks(facts: Facts): readonly Check[] {
  return [
    memlock(facts),
    openFiles(facts),
    sharedMemory(facts),
    ptrace(facts),
    namespaces(facts),
    sockets(facts),
    driver(facts),
    cards(facts),
    links(facts),
    hostDmabufs(facts),
    library(facts),
    networks(facts),
    ports(facts),
    clock(facts),
    processors(facts),
  ];
}

function memlock({ memlockBytes, capabilities }: Facts): Check {
  const name = 'locked memory';
  if (memlockBytes === undefined)
    return { name, state: 'note', found: '/proc/self/limits has no limit of locked memory' };
  const found = memlockBytes === Number.POSITIVE_INFINITY ? 'no limit' : `limit ${bytesOrNone(memlockBytes)}`;
  if (memlockBytes >= MEMLOCK_MIN) return { name, state: 'ok', found };
  if (hasCapability(capabilities, CAP_IPC_LOCK)) {
    return { name, state: 'ok', found: `${found}, not enforced with the capability CAP_IPC_LOCK` };
  }
  const remedy =
    'RDMA and real cards pin memory: raise the limit by ulimit -l unlimited, LimitMEMLOCK=infinity (systemd) or --ulimit memlock=-1 (docker)';
  return { name, state: 'warning', found, remedy };
}

function openFiles({ openFilesMax }: Facts): Check {
  const name = 'open files';
  if (openFilesMax === undefined) return { name, state: 'note', found: '/proc/self/limits has no limit of open files' };
  const found = openFilesMax === Number.POSITIVE_INFINITY ? 'no limit' : `limit ${openFilesMax}`;
  if (openFilesMax >= OPEN_FILES_MIN) return { name, state: 'ok', found };
  return {
    name,
    state: openFilesMax < OPEN_FILES_LEAST ? 'failure' : 'warning',
    found,
    remedy: `connections and cards need file descriptors: raise the limit by ulimit -n ${OPEN_FILES_MIN} or more`,
  };
}

function sharedMemory({ sharedMemory: memory }: Facts): Check {
  const name = 'shared memory';
  const remedy =
    'posix allocates shared memory there: mount a larger file system, by --shm-size=1g (docker) or an emptyDir with medium Memory (kubernetes)';
  if (memory === undefined) {
    return { name, state: 'failure', found: '/dev/shm, or the folder of UCX_POSIX_DIR, does not exist', remedy };
  }
  const { folder, freeBytes, totalBytes, connectionBytes, failure } = memory;
  const fit = `enough for ${Math.floor(freeBytes / connectionBytes)} connections of ${formatBytes(connectionBytes)}`;
  const found = `${folder}: ${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} free, ${fit}`;
  if (failure !== undefined && freeBytes >= connectionBytes) {
    const cause = 'posix creates its files there: make it writable for this user, with free inodes (df -i)';
    return { name, state: 'failure', found: failure, remedy: `${cause}, or set UCX_POSIX_DIR` };
  }
  if (freeBytes >= SHARED_MEMORY_MIN) return { name, state: 'ok', found };
  return { name, state: freeBytes < connectionBytes ? 'failure' : 'warning', found, remedy };
}

function ptrace({ ptraceScope, capabilities }: Facts): Check {
  const name = 'memory of peers';
  if (ptraceScope === undefined) return { name, state: 'ok', found: 'Yama does not restrict process_vm_readv' };
  const found = `kernel.yama.ptrace_scope is ${ptraceScope}`;
  if (ptraceScope === 0 || (ptraceScope < 3 && hasCapability(capabilities, CAP_SYS_PTRACE)))
    return { name, state: 'ok', found };
  const enable = 'posix still works. To enable cma, run as root: sysctl kernel.yama.ptrace_scope=0';
  const remedy =
    ptraceScope === 1
      ? `cma can read memory of descendants of a process only; ${enable}`
      : ptraceScope === 2
        ? `cma needs the capability CAP_SYS_PTRACE; ${enable}`
        : 'cma is off until the machine is booted with kernel.yama.ptrace_scope below 3; posix still works';
  return { name, state: 'warning', found, remedy };
}

function namespaces({ ownNamespaces, isInitialUserNamespace, processesElsewhere }: Facts): Check {
  const name = 'namespaces';
  const own = ownNamespaces ?? [];
  const parts = [
    ...(ownNamespaces === undefined ? ['not known'] : []),
    ...(own.length === 0 ? [] : [`${own.join(' and ')} differ from those of the machine`]),
    ...(isInitialUserNamespace ? [] : ['not the initial user namespace']),
  ];
  const found = parts.length === 0 ? 'those of the machine' : parts.join('; ');
  if (processesElsewhere > 0) {
    const remedy =
      'cma, gaudi_ipc and posix need a shared pid namespace, gaudi_ipc and posix also a shared /dev/shm: use --pid and --ipc (docker), shareProcessNamespace (kubernetes); with UCX_POSIX_USE_PROC_LINK=n, posix works without a shared pid namespace';
    return {
      name,
      state: 'warning',
      found: `${found}; ${processesElsewhere} processes of this user are in other pid namespaces`,
      remedy,
    };
  }
  return { name, state: parts.length === 0 ? 'ok' : 'note', found };
}

function sockets({ sockets: { folder, failure }, processes }: Facts): Check {
  const name = 'socket folder';
  const found = `${folder}, sockets of ${processes} processes that have a context`;
  if (failure === undefined) return { name, state: 'ok', found };
  const remedy =
    'node servers and gaudi-ucx inspect need a folder owned by this user, with mode 0700 and free inodes (df -i): set XDG_RUNTIME_DIR, or remove the folder';
  return { name, state: 'failure', found: `${folder}: ${failure}`, remedy };
}

function driver({ node, moduleVersion }: Facts): Check {
  const name = 'driver';
  if (node.failure !== undefined) {
    return {
      name,
      state: 'failure',
      found: node.failure,
      remedy: 'UCX_GAUDI_DRIVER selects the driver; gaudi-ucx node up starts a node server',
    };
  }
  const version = node.driverVersion ?? moduleVersion;
  const about = version === undefined ? '' : ` ${version}`;
  if (node.kind === 'kernel') {
    const ioctls = node.abi === undefined ? '' : `, ${ABIS[node.abi]}`;
    const found = `habanalabs${about}, ${node.cards.length} cards${ioctls}`;
    if (node.cards.length > 0 && node.whyNoCards === undefined) return { name, state: 'ok', found };
    return {
      name,
      state: node.usesCards ? 'failure' : 'note',
      found: `${node.whyNoCards ?? 'no card'}${node.usesCards ? '' : '; excluded by UCX_TLS'}`,
      remedy: 'modprobe habanalabs; check dmesg and the permissions of /dev/accel',
    };
  }
  const place = node.isOwn ? 'in this process' : 'by a node server';
  const found = `${node.cards.length} cards are emulated ${place}`;
  if (moduleVersion === undefined)
    return { name, state: 'note', found: `${found}; the habanalabs module is not loaded` };
  return {
    name,
    state: 'warning',
    found: `${found}, though habanalabs ${moduleVersion} is loaded`,
    remedy: 'check the permissions of /dev/accel, and UCX_GAUDI_DRIVER',
  };
}

function cards({ node }: Facts): Check {
  const name = 'cards';
  if (node.failure !== undefined || node.cards.length === 0) return { name, state: 'note', found: 'none' };
  const used = node.cards.filter(({ excludedBy }) => excludedBy === undefined);
  const excluded = node.cards.filter(({ excludedBy }) => excludedBy !== undefined);
  const broken = used.filter(({ state }) => state !== OPERATIONAL);
  const busy = used.filter(({ owner }) => owner !== undefined);
  const found = [
    ...cardLines(broken, stateText),
    ...cardLines(busy, ({ owner }) => `used by process ${owner}`),
    ...(broken.length + busy.length === 0 && used.length > 0 ? [`${used.length} operational, none in use`] : []),
    ...cardLines(excluded, exclusionText),
    ...(node.missing === undefined ? [] : [node.missing]),
  ].join('\n');
  const check = (state: CheckState, remedy?: string): Check => ({ name, state, found, remedy });
  if (broken.length > 0) {
    return check('failure', 'a card in reset recovers without help; for others, dmesg has the reason');
  }
  if (node.missing !== undefined)
    return check('warning', 'correct the variable: until then, programs use the other cards only');
  if (used.length > 0 && busy.length === used.length) {
    return check(
      'warning',
      'no card is free: wait, or end those processes; to share cards, limit the cards of each program by UCX_ACC_DEVICES',
    );
  }
  return check(excluded.length === 0 ? 'ok' : 'note');
}

function stateText({ state, reason }: CardFacts): string {
  return reason === undefined ? state : `${state} (${reason})`;
}

function exclusionText(card: CardFacts): string {
  const state = card.state === OPERATIONAL ? '' : `${stateText(card)}; `;
  return `${state}excluded by ${card.excludedBy}`;
}

function links({ node }: Facts): Check {
  const name = 'links';
  if (node.failure !== undefined || node.cards.length < 2) return { name, state: 'ok', found: 'none between cards' };
  if (node.links === undefined) return { name, state: 'note', found: 'this driver does not report their state' };
  const down = node.links.filter((pair) => pair.down > 0);
  const total = node.links.reduce((sum, pair) => sum + pair.total, 0);
  if (down.length === 0) return { name, state: 'ok', found: `${total} between cards, none down` };
  const found = down.map(({ cards: [left, right], ...pair }) => {
    return `${cardLabel(left)} to ${cardLabel(right)}: ${pair.down} of ${pair.total} down`;
  });
  const remedy =
    'transfers between these cards are slower, or staged through host memory if all links are down: list the ports by gaudi-ucx smi -n link; for emulated cards, gaudi-ucx node fault CARD link-up --peer PEER';
  return { name, state: 'warning', found: found.join('\n'), remedy };
}

function hostDmabufs({ udmabuf: { refusal, bytesMax } }: Facts): Check {
  const name = 'host dma-bufs';
  if (refusal !== undefined) {
    const remedy = 'needed only to export host memory as a dma-buf: modprobe udmabuf, and give this user access to it';
    return { name, state: 'note', found: refusal, remedy };
  }
  const limit = bytesMax === undefined ? '' : `, at most ${formatBytes(bytesMax)} each (udmabuf.size_limit_mb)`;
  return { name, state: 'ok', found: `/dev/udmabuf${limit}` };
}

function library({ library: { version, reason } }: Facts): Check {
  const name = 'UCX library';
  if (version !== undefined) return { name, state: 'ok', found: `UCX ${version}` };
  const remedy = 'needed only for UCX_ENGINE=libucx: install libucx0, or set UCX_LIBUCP_PATH';
  return { name, state: 'note', found: reason ?? 'none', remedy };
}

function networks({ networks: names }: Facts): Check {
  const name = 'networks';
  if (names.length > 0) return { name, state: 'ok', found: names.join(', ') };
  return {
    name,
    state: 'note',
    found: 'only loopback has an address',
    remedy: 'without another network device, peers on other hosts cannot connect',
  };
}

function ports({ ports: range }: Facts): Check {
  const name = 'ports';
  if (range === undefined) return { name, state: 'ok', found: 'any free port (UCX_TCP_PORT_RANGE)' };
  const found = `${range.inUse} of ${range.count} ports of UCX_TCP_PORT_RANGE are in use`;
  if (range.inUse < range.count) return { name, state: 'ok', found };
  return { name, state: 'failure', found, remedy: 'each tcp interface needs a free port: set a wider range' };
}

function clock({ clockSource }: Facts): Check {
  const name = 'clock';
  if (clockSource === undefined) return { name, state: 'note', found: 'the clock source is unknown' };
  if (FAST_CLOCKS.includes(clockSource)) return { name, state: 'ok', found: clockSource };
  const remedy =
    'reading it is a system call, which slows down polling: set clocksource=tsc on the kernel command line, if the processor has a stable TSC';
  return { name, state: 'warning', found: clockSource, remedy };
}

function processors({ processors: count, processes, workers }: Facts): Check {
  const name = 'processors';
  const found = `${count} for this process; ${processes} processes with ${workers} workers run`;
  if (processes <= count) return { name, state: 'ok', found };
  const remedy =
    'polling processes on one processor delay each other: run fewer processes, allow more processors, or set UCX_PROGRESS_SPIN=0';
  return { name, state: 'warning', found, remedy };
}

function bytesOrNone(bytes: number): string {
  return bytes === Number.POSITIVE_INFINITY ? 'none' : formatBytes(bytes);
}
