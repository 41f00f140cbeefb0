/**
 * The installed UCX library: finds it, rejects unusable versions, and binds its functions. The contexts of a thread share one library, which stays open.
 * Also the features of a libucp context: their bits, differences between versions, and the check that an operation has its feature, without which libucp
 * fails the operation without a reason or crashes.
 */

import { type Feature, missingFeature } from '../../api/contract/context.ts';
import {
  allocateScratch,
  DynamicLibrary,
  getEnvironment,
  setEnvironment,
  textAt,
  textWrittenBy,
  viewAt,
  withEnvironmentLock,
} from '../../sys/index.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_API_MAJOR, UCP_API_MINOR, UCP_FEATURE } from './abi.ts';
import type { LibucxConfig } from './config.ts';
import { FUNCTIONS, type LibucpFunctions } from './functions.ts';

/** Function that prints all configuration tables to a stream, with a prefix for the names. */
const PRINT_TABLES = 'ucs_config_parser_print_all_opts';
type PrintTables = (stream: number, prefix: string, flags: number, tables: number, filter: number) => void;
/** Variable: the list of the tables of libucs, libucp and the loaded transports. */
const TABLES = 'ucs_config_global_list';
/** UCS_CONFIG_PRINT_CONFIG, _DOC (which includes inherited names), _HIDDEN. */
const PRINT_FLAGS = 0b1101;
/** Variable: the array of the names of memory types in libucs. */
const MEMORY_TYPE_NAMES = 'ucs_memory_type_names';
/** The entry after the last memory type. */
const MEMORY_TYPE_UNKNOWN = 'unknown';
/** Limit for reading memory types: twenty more than version 1.23 has. */
const MEMORY_TYPES_MAX = 30;

/**
 * Variables that libucs reads once, while it is loaded, and their values for a Node.js process: no signal handlers, because Node.js handles fatal signals;
 * no warnings about the `UCX_...` variables of this package; messages on standard error, because programs print results on standard output. Values that
 * the user set have precedence, except those of {@link OWN_AT_LOAD}.
 */
const ENVIRONMENT_AT_LOAD: Readonly<Record<string, string>> = {
  UCX_HANDLE_ERRORS: 'none',
  UCX_DEBUG_SIGNO: '0',
  UCX_WARN_UNUSED_ENV_VARS: 'n',
  UCX_LOG_FILE: 'stderr',
  // libucm would patch mmap, munmap and brk in the C library while threads of Node.js execute them: observed to crash (1.13). Without libucm, libucp
  // has no registration cache; mapping registers memory.
  UCX_MEM_EVENTS: 'n',
};

/** Variables of this library that libucs would apply too: it would write its own profile and statistics to the same files, and handle the same signal. */
const OWN_AT_LOAD: readonly string[] = [
  'UCX_PROFILE_MODE',
  'UCX_PROFILE_FILE',
  'UCX_PROFILE_LOG_SIZE',
  'UCX_STATS_DEST',
  'UCX_STATS_TRIGGER',
  'UCX_STATS_FILTER',
  'UCX_DEBUG_SIGNO',
];

export interface Libucp {
  /** The path or name given to {@link openLibucp}. */
  readonly path: string;
  /** The file that was loaded. */
  readonly file: string;
  readonly major: number;
  readonly minor: number;
  /** Such as `1.13.1`. */
  readonly version: string;
  /** Names of the memory types of this library; the index of a name is the number of the type. */
  readonly memoryTypes: readonly string[];
  readonly functions: LibucpFunctions;
  /** The variables that libucp and its transports read, available once there is a context; undefined if this version does not report them. */
  variables(): ReadonlySet<string> | undefined;
}

/** The libraries of this thread by the path or name that opened them. */
const loaded = new Map<string, Libucp>();

/**
 * Opens the library, once per thread: the same result for the same path. It stays loaded until the process ends.
 * @throws UcxError ERR_LIBUCX_NOT_FOUND if it is not installed; ERR_LIBUCX_UNUSABLE if it cannot be loaded, is not UCX, or lacks functions;
 * ERR_LIBUCX_VERSION if it is older than 1.13 or not 1.x
 */
export function openLibucp({ PATH: path }: Pick<LibucxConfig, 'PATH'>): Libucp {
  let libucp = loaded.get(path);
  if (libucp === undefined) {
    libucp = bind(withEnvironmentLock(() => load(path)));
    loaded.set(path, libucp);
  }
  return libucp;
}

function load(path: string): DynamicLibrary {
  const given = new Map(
    [...OWN_AT_LOAD, ...Object.keys(ENVIRONMENT_AT_LOAD)].map((name) => [name, getEnvironment(name)]),
  );
  for (const [name, value] of Object.entries(ENVIRONMENT_AT_LOAD)) setEnvironment(name, given.get(name) ?? value);
  for (const name of OWN_AT_LOAD) setEnvironment(name, ENVIRONMENT_AT_LOAD[name]);
  try {
    return new DynamicLibrary([path]);
  } catch (error) {
    if (!isUcxError(error)) throw error;
    const isAbsent = error.code === 'ERR_LIBRARY_NOT_FOUND';
    throw unusable(
      isAbsent ? 'ERR_LIBUCX_NOT_FOUND' : 'ERR_LIBUCX_UNUSABLE',
      path,
      isAbsent
        ? 'is not installed: install UCX 1.13 or newer (Debian and Ubuntu: apt install libucx0), or set UCX_LIBUCP_PATH'
        : 'cannot be loaded',
      error,
    );
  } finally {
    // Code that runs later, and child processes, must see only the variables that the user set.
    for (const [name, value] of given) setEnvironment(name, value);
  }
}

function bind(library: DynamicLibrary): Libucp {
  const path = library.name;
  if (!library.has('ucp_get_version')) {
    throw unusable('ERR_LIBUCX_UNUSABLE', path, 'is not UCX: it lacks ucp_get_version');
  }
  const [major, minor, release] = versionOf(library);
  const version = `${major}.${minor}.${release}`;
  if (major !== UCP_API_MAJOR || minor < UCP_API_MINOR) {
    const rule = `must be ${UCP_API_MAJOR}.${UCP_API_MINOR} or newer, and ${UCP_API_MAJOR}.x`;
    throw unusable(
      'ERR_LIBUCX_VERSION',
      path,
      `is UCX ${version}; it ${rule}: install another one, or set UCX_LIBUCP_PATH`,
    );
  }
  const missing = [...Object.keys(FUNCTIONS), MEMORY_TYPE_NAMES].filter((name) => !library.has(name));
  if (missing.length > 0) {
    throw unusable('ERR_LIBUCX_UNUSABLE', path, `is UCX ${version} and lacks ${missing.join(', ')}`);
  }
  return {
    path,
    file: library.fileOf('ucp_get_version'),
    major,
    minor,
    version,
    memoryTypes: memoryTypesOf(library),
    functions: bindAll(library),
    variables: () => variablesOf(library),
  };
}

/** Names and aliases of all variables, extracted from the tables that libucs prints as a configuration file. */
function variablesOf(library: DynamicLibrary): ReadonlySet<string> | undefined {
  if (!library.has(PRINT_TABLES) || !library.has(TABLES)) return undefined;
  // Newer versions have one more argument, a filter (NULL for all); older ones ignore it.
  const print = library.function<PrintTables>(PRINT_TABLES, 'void', ['uint64_t', 'str', 'int', 'uint64_t', 'uint64_t']);
  const tables = library.symbolAddress(TABLES);
  const text = textWrittenBy((stream) => print(stream, 'UCX_', PRINT_FLAGS, tables, 0));
  return new Set(text.match(/\bUCX_[A-Z0-9_]+(?=[=,]|$)/gm));
}

function versionOf(library: DynamicLibrary): [major: number, minor: number, release: number] {
  const { result, parameters } = FUNCTIONS.ucp_get_version;
  const getVersion = library.function<LibucpFunctions['ucp_get_version']>('ucp_get_version', result, parameters);
  using numbers = allocateScratch(12);
  getVersion(numbers.address, numbers.address + 4, numbers.address + 8);
  const [major = 0, minor = 0, release = 0] = numbers.words;
  return [major, minor, release];
}

function bindAll(library: DynamicLibrary): LibucpFunctions {
  const bound = Object.entries(FUNCTIONS).map(([name, { result, parameters }]) => [
    name,
    library.function(name, result, parameters),
  ]);
  return Object.fromEntries(bound) as LibucpFunctions;
}

function memoryTypesOf(library: DynamicLibrary): string[] {
  const array = library.symbolAddress(MEMORY_TYPE_NAMES);
  const names: string[] = [];
  while (names.length < MEMORY_TYPES_MAX) {
    const [address = 0n] = new BigUint64Array(viewAt(array + names.length * 8, 8));
    const name = address === 0n ? MEMORY_TYPE_UNKNOWN : textAt(Number(address));
    if (name === MEMORY_TYPE_UNKNOWN) break;
    names.push(name);
  }
  return names;
}

function unusable(code: string, path: string, text: string, cause?: UcxError): UcxError {
  const why = cause === undefined ? '' : ` (${cause.message})`;
  return new UcxError({
    code,
    status: Status.UNSUPPORTED,
    message: `the UCX library ${path} ${text}${why}`,
    details: { path },
    cause,
  });
}

const BITS: Readonly<Record<Feature, number>> = {
  tag: UCP_FEATURE.TAG,
  rma: UCP_FEATURE.RMA,
  amo32: UCP_FEATURE.AMO32,
  amo64: UCP_FEATURE.AMO64,
  stream: UCP_FEATURE.STREAM,
  am: UCP_FEATURE.AM,
};

/** First minor version whose ucp_worker_fence may flush and wait for replies of the peers: observed in 1.18; 1.13 never waits. */
const FENCE_BLOCKS_MINOR = 14;

/** True if ucp_worker_fence must not be called: it would wait for peers that make progress only in this thread. */
export function fenceBlocks({ minor }: { readonly minor: number }): boolean {
  return minor >= FENCE_BLOCKS_MINOR;
}

/** The feature bits for ucp_init, always with wake-up. */
export function featureBits(features: readonly Feature[]): number {
  return features.reduce<number>((bits, feature) => bits | BITS[feature], UCP_FEATURE.WAKEUP);
}

/**
 * @param bits of the context
 * @param bit of the feature
 * @throws UcxError ERR_FEATURE_MISSING if the context lacks the feature
 */
export function requireFeature(bits: number, bit: number): void {
  if ((bits & bit) !== 0) return;
  const [name] = Object.entries(BITS).find(([, value]) => value === bit)!;
  throw missingFeature(name as Feature);
}
