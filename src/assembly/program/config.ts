/**
 * The configuration of the composition root: engine, driver, options of the emulated node, and inspection of the process; and the list of all configuration
 * tables of this library. A field is documented in its table, next to its reader.
 */

import { isAbsolute } from 'node:path';
import { LIBUCX_CONFIG_TABLE } from '../../libucx/c/config.ts';
import type { AsicName } from '../../uapi/index.ts';
import { UCP_CONFIG_TABLE } from '../../ucp/resources/config.ts';
import type { AnyConfigTable, ConfigTable } from '../../ucs/config/config.ts';
import { listType } from '../../ucs/config/list.ts';
import {
  type ConfigType,
  enumType,
  memoryUnitsType,
  orAuto,
  restricted,
  type Ternary,
  ternaryAutoType,
  ternaryType,
  uintType,
} from '../../ucs/config/value.ts';
import { GLOBAL_CONFIG_TABLE } from '../../ucs/debug/global-config.ts';
import { PROFILE_CONFIG_TABLE } from '../../ucs/profile/profile-config.ts';
import { STATS_CONFIG_TABLE } from '../../ucs/stats/stats-config.ts';
import { signalNumber } from '../../ucs/stats/stats-output.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../../uct/gaudi/base/config.ts';
import { GAUDI_IPC_CONFIG_TABLE } from '../../uct/gaudi/ipc/config.ts';
import { IB_CONFIG_TABLE, RC_CONFIG_TABLE } from '../../uct/ib/base/config.ts';
import { CMA_CONFIG_TABLE } from '../../uct/shm/cma/config.ts';
import { POSIX_CONFIG_TABLE } from '../../uct/shm/posix/config.ts';
import { TCP_CM_CONFIG_TABLE, TCP_CONFIG_TABLE } from '../../uct/tcp/config.ts';

/** A signal, or none. */
export type DebugSignal = NodeJS.Signals | 'none';

/** The values of {@link INSPECT_CONFIG_TABLE}. */
export interface InspectConfig {
  readonly INSPECT: Ternary;
  readonly DEBUG_SIGNO: DebugSignal;
  readonly HANDLE_ERRORS: readonly FatalErrorHandling[];
  readonly ERROR_SIGNALS: readonly NodeJS.Signals[];
  /** `try` prints the table from level info on. */
  readonly PRINT_TRANSPORT_TABLES: Ternary;
}

/** What C UCX does at a fatal signal; this library supports only `freeze`. */
const ERROR_HANDLINGS = ['none', 'bt', 'freeze', 'debug'] as const;
export type FatalErrorHandling = (typeof ERROR_HANDLINGS)[number];

const NONE = '0';

const fatalSignalType: ConfigType<NodeJS.Signals> = {
  syntax: 'the name or number of a signal other than SIGKILL and SIGSTOP',
  parse: signalNumber,
  print: (value) => value.replace(/^SIG/, ''),
};

const signalType: ConfigType<DebugSignal> = {
  syntax: '0 for none, or the name or number of a signal other than SIGKILL and SIGSTOP',
  parse(text) {
    if (text.trim() === NONE) return 'none';
    return signalNumber(text);
  },
  print: (value) => (value === 'none' ? NONE : value),
};

/** `UCX_INSPECT`, `UCX_DEBUG_SIGNO`, `UCX_PRINT_TRANSPORT_TABLES`. */
export const INSPECT_CONFIG_TABLE: ConfigTable<InspectConfig> = {
  prefix: '',
  fields: [
    {
      name: 'INSPECT',
      type: ternaryType,
      default: 'try',
      doc: 'Serve a socket in the runtime directory, for this user only, through which gaudi-ucx inspect and gaudi-ucx metrics show the state of this process: y, fail if it cannot be created; n, no socket; try, continue without it.',
    },
    {
      name: 'DEBUG_SIGNO',
      type: signalType,
      default: NONE,
      doc: 'Signal at which the process logs the output of gaudi-ucx inspect, once its event loop runs; 0 for none. The signal no longer ends the process. Only contexts of the main thread support it; a context of a worker thread logs a warning.',
    },
    {
      name: 'HANDLE_ERRORS',
      type: listType(enumType(ERROR_HANDLINGS)),
      default: 'none',
      doc: 'Reaction to a signal of UCX_ERROR_SIGNALS, from the first context on. freeze: the thread waits for a debugger instead of ending the process; none, bt, debug: the process ends without a backtrace, because JavaScript cannot run in the handler of such a signal; to get one, allow core dumps (ulimit -c unlimited).',
    },
    {
      name: 'ERROR_SIGNALS',
      type: listType(fatalSignalType),
      default: 'ILL,SEGV,BUS,FPE',
      doc: 'Signals handled by UCX_HANDLE_ERRORS.',
    },
    {
      name: 'PRINT_TRANSPORT_TABLES',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Log the transports and devices of each new context, and the unusable ones with the reason: y; n; try or auto: if UCX_LOG_LEVEL is info or finer.',
    },
  ],
};

const ASICS: readonly AsicName[] = ['gaudi', 'gaudi2', 'gaudi3'];

/** Selection of the driver: by a rule, or the node server at a socket. */
export type DriverChoice = 'auto' | 'kernel' | 'emulator' | { readonly socket: string };

const SERVER_PREFIX = 'emulator:';

const driverType: ConfigType<DriverChoice> = {
  syntax: 'auto, kernel, emulator or emulator:<absolute path of the socket of a node server>',
  parse(text) {
    const trimmed = text.trim();
    const word = trimmed.toLowerCase();
    if (word === 'auto' || word === 'kernel' || word === 'emulator') return word;
    const socket = trimmed.slice(SERVER_PREFIX.length);
    return word.startsWith(SERVER_PREFIX) && isAbsolute(socket) ? { socket } : undefined;
  },
  print: (value) => (typeof value === 'string' ? value : `${SERVER_PREFIX}${value.socket}`),
};

/** Choice of the engine. */
export const ENGINE_CHOICES = ['native', 'libucx', 'auto'] as const;
export type EngineChoice = (typeof ENGINE_CHOICES)[number];

/** The values of the table. */
export interface EngineConfig {
  readonly ENGINE: EngineChoice;
}

/** `UCX_ENGINE`. */
export const ENGINE_CONFIG_TABLE: ConfigTable<EngineConfig> = {
  prefix: '',
  fields: [
    {
      name: 'ENGINE',
      type: enumType(ENGINE_CHOICES),
      default: 'native',
      doc: 'Engine that runs the operations: native, the transports of this library; libucx, the UCX library of this host (1.13 or newer), with the transports of this library for device memory; auto, libucx if it is installed, else native.',
    },
  ],
};

/** The values of the table. */
export interface GaudiConfig {
  readonly DRIVER: DriverChoice;
  readonly EMULATOR_ASIC: AsicName;
  readonly EMULATOR_CARDS: number;
  readonly EMULATOR_NICS: number;
  readonly EMULATOR_HBM: number | 'auto';
  readonly EMULATOR_DMA_THREADS: number | 'auto';
}

/** `UCX_GAUDI_*`. */
export const GAUDI_CONFIG_TABLE: ConfigTable<GaudiConfig> = {
  prefix: 'GAUDI_',
  fields: [
    {
      name: 'DRIVER',
      type: driverType,
      default: 'auto',
      doc: 'Source of the cards. kernel: the habanalabs driver of this host; emulator: emulated cards in this process; emulator:<socket>: emulated cards of a node server; auto: kernel if it has cards, else the node server at its default socket if one runs, else emulator.',
    },
    {
      name: 'EMULATOR_ASIC',
      type: enumType(ASICS),
      default: 'gaudi2',
      doc: 'Generation of the emulated cards.',
    },
    {
      name: 'EMULATOR_CARDS',
      type: restricted(uintType, 'an unsigned integer, 1 to 8', (cards) => cards >= 1 && cards <= 8),
      default: '8',
      doc: 'Number of emulated cards, 1 to 8.',
    },
    {
      name: 'EMULATOR_NICS',
      type: restricted(uintType, 'an unsigned integer, 0 to 8', (nics) => nics <= 8),
      default: '0',
      doc: 'Number of RDMA devices of the emulated node that this process starts, 0 to 8: hca0, hca1 and so on. They can communicate with those of other processes of this user, and access the memory of the cards of the node. With a node server, each client gets as many RDMA devices as the server was started with (node up --nics, or this variable in the environment of the server).',
    },
    {
      name: 'EMULATOR_HBM',
      type: memoryUnitsType,
      default: 'auto',
      doc: 'HBM of an emulated card; auto is the size of the real card. Memory is sparse: only used pages occupy host memory.',
    },
    {
      name: 'EMULATOR_DMA_THREADS',
      type: orAuto(restricted(uintType, 'an unsigned integer, 0 to 8', (threads) => threads <= 8)),
      default: 'auto',
      doc: 'Threads that run the emulated DMA engines, 0 to 8; 0 runs them inside the calls. auto is 1, but 0 in two cases: if the cards are in this process and it has fewer than three processors (a polling program would starve the thread), or if the program is a bundle without the module of the thread.',
    },
  ],
};

export { TCP_CONFIG_TABLE };

/** The tables, in the print order of `info -c`. */
export const CONFIG_TABLES: readonly AnyConfigTable[] = [
  GLOBAL_CONFIG_TABLE,
  STATS_CONFIG_TABLE,
  PROFILE_CONFIG_TABLE,
  INSPECT_CONFIG_TABLE,
  ENGINE_CONFIG_TABLE,
  UCP_CONFIG_TABLE,
  POSIX_CONFIG_TABLE,
  CMA_CONFIG_TABLE,
  TCP_CM_CONFIG_TABLE,
  TCP_CONFIG_TABLE,
  IB_CONFIG_TABLE,
  RC_CONFIG_TABLE,
  GAUDI_CONFIG_TABLE,
  GAUDI_COPY_CONFIG_TABLE,
  GAUDI_IPC_CONFIG_TABLE,
  LIBUCX_CONFIG_TABLE,
];
