/**
 * The configuration of libucp: its own files and environment, overridden by the configuration of this program. The overrides are set in the C environment
 * while libucp reads it, because ucp_config_modify does not reach the transports in every version and warns about variables that it does not know.
 */

import { getEnvironment, setEnvironment, withEnvironmentLock } from '../../sys/index.ts';
import type { Config } from '../../ucs/config/config.ts';
import { GLOBAL_CONFIG_TABLE } from '../../ucs/debug/global-config.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { joinedError, statusError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_FEATURE } from './abi.ts';
import { fieldUseOf } from './field-use.ts';
import { OutValue } from './fields.ts';
import type { LibucpFunctions } from './functions.ts';
import type { Libucp } from './library.ts';
import { ucxVariableNamed, ucxVariableNames } from './ucx-variables.ts';
import type { HiddenTransport } from './worker-address.ts';

const PREFIX = 'UCX_';
/** Names in UCX_TLS of transports that only this library has, and names of cards in UCX_ACC_DEVICES: libucp would warn about them. */
const OWN_TRANSPORT = /^\\?gaudi(_copy|_cpy|_gdr|_ipc|_?\*)?$/;
const OWN_DEVICE = /^gaudi/;
/** Variables whose values libucp requires per memory type, such as `host:512k`; this library also accepts a single value, for host memory. */
const BY_MEMORY_TYPE: readonly string[] = ['RNDV_FRAG_SIZE', 'RNDV_FRAG_ALLOC_COUNT'];

/** Variables that libucs reads from the C environment only while it is loaded. */
const READ_AT_LOAD =
  /^(LOG|MEM|MEMTRACK|ASYNC|VFS|STATS|PROFILE|MODULE|BUILTIN_MEMCPY|ERROR|RCACHE_STAT)_|^(HANDLE_ERRORS|DEBUG_SIGNO|GDB_COMMAND|MODULES|TOPO_PRIO|RCACHE_CHECK_PFN|MEMTYPE_CACHE)$/;

/** Values that disable a switch of libucp. */
const OFF = /^(n|no|off|0)$/i;

/** A value of UCX_PROTO_INFO that only this library has. libucp does not print protocols by default. */
const OWN_PROTO_INFO = /^auto$/i;

/**
 * Defaults of this engine that differ from libucp: shared memory that detects the end of the peer, as the native engine does. Used only with tags or
 * active messages: without them, a plain UCX server with the same features aborts when a client connects (1.13, `ep_addr_index < address->num_ep_addrs` in
 * wireup.c), also if the client is a C program with these variables.
 */
const DEFAULTS: readonly (readonly [name: string, value: string, transport: HiddenTransport])[] = [
  ['UCX_POSIX_ERROR_HANDLING', 'y', 'posix'],
  ['UCX_SYSV_ERROR_HANDLING', 'y', 'sysv'],
];

export class UcpConfiguration {
  readonly #functions: LibucpFunctions;
  readonly #settings: ReadonlyMap<string, string>;
  readonly #ownDetection: readonly HiddenTransport[];

  /**
   * @param features feature bits of the context (UCP_FEATURE)
   * @param overrides variables of libucp with precedence over the configuration
   */
  constructor(
    functions: LibucpFunctions,
    config: Config,
    features: number,
    overrides: Readonly<Record<string, string>> = {},
  ) {
    this.#functions = functions;
    const defaults = (features & (UCP_FEATURE.TAG | UCP_FEATURE.AM)) !== 0 ? DEFAULTS : [];
    const changed = Object.entries(overrides).map(([name, text]) => [name, readable(ownName(name), text)] as const);
    const given = new Map([...settingsOf(config), ...changed]);
    const added = withEnvironmentLock(() =>
      defaults.filter(([name]) => !given.has(name) && getEnvironment(name) === undefined),
    );
    this.#settings = new Map([...added.map(([name, value]) => [name, value] as const), ...given]);
    this.#ownDetection = added.map(([, , transport]) => transport);
  }

  /** True if a switch is on that libucp enables by default. The configuration files of libucp are not considered. */
  isOn(name: string): boolean {
    return !OFF.test(this.#settings.get(name) ?? withEnvironmentLock(() => getEnvironment(name)) ?? '');
  }

  /** Transports that detect the end of the peer only because this engine enabled it: other UCX programs cannot reply on them with error handling. */
  get ownDetection(): readonly HiddenTransport[] {
    return this.#ownDetection;
  }

  /** Runs code in which libucp reads the configuration of its transports: creating contexts and workers. */
  run<T>(read: () => T): T {
    return withEnvironment(this.#settings, read);
  }

  /**
   * Runs code with the configuration of libucp (ucp_config_t).
   * @throws UcxError ERR_CONFIG_VALUE for a value that libucp rejects
   */
  use<T>(run: (ucpConfig: number) => T): T {
    using out = new OutValue();
    const status = this.run(() => this.#functions.ucp_config_read(null, null, out.address));
    if (status < 0) throw this.#rejectedValues(status);
    try {
      return this.run(() => run(out.value));
    } finally {
      this.#functions.ucp_config_release(out.value);
    }
  }

  /** Finds the values that libucp rejects, by trying each one alone. */
  #rejectedValues(status: number): UcxError {
    const refused = [...this.#settings].filter(([name, value]) => !this.#accepts(name, value));
    const errors = refused.map(([name, value]) => {
      const message = `libucp rejects ${name}=${value}: correct it, or unset it; ucx_info -cf prints its syntax`;
      return new UcxError({
        code: 'ERR_CONFIG_VALUE',
        status: Status.INVALID_PARAM,
        message,
        details: { name, value },
      });
    });
    return joinedError(errors) ?? statusError(status, 'cannot read the configuration of libucp');
  }

  #accepts(name: string, value: string): boolean {
    using out = new OutValue();
    const read = (): number => this.#functions.ucp_config_read(null, null, out.address);
    // The other variables may also be in the environment of the process: they are unset.
    const alone = new Map([...this.#settings.keys()].map((other) => [other, other === name ? value : undefined]));
    if (withEnvironment(alone, read) < 0) return false;
    this.#functions.ucp_config_release(out.value);
    return true;
  }
}

/**
 * Rejects settings that must not be ignored.
 * @throws UcxError ERR_UNSUPPORTED with the variable
 */
export function rejectUnsupported(config: Config): void {
  const entry = config.entries.find(({ name, text, field }) => {
    return fieldUseOf(ownName(name)) === 'refused' && text !== field.default;
  });
  if (entry === undefined) return;
  const { name, text, source } = entry;
  throw new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: `engine libucx does not support ${name}=${text} (${source}): use engine native, or unset ${name}`,
    details: { name, value: text, source },
  });
}

/** Settings of a program that this engine does not support, as `NAME=value`. */
export function unsupportedSettings(config: Config): readonly string[] {
  return config.entries
    .filter(({ name, source, text, field }) => {
      const use = fieldUseOf(ownName(name));
      return (use === 'none' && source !== 'default') || (use === 'refused' && text !== field.default);
    })
    .map(({ name, text }) => `${name}=${text}`);
}

/**
 * Warns about settings without effect: variables that neither this library nor libucp reads, and fields that only the native engine reads.
 * UCX_WARN_UNUSED_ENV_VARS can disable the warnings. Call this when there is a context: libucp has loaded its transports then.
 */
export function warnOfUnused({ variables, version }: Libucp, config: Config, log: Log): void {
  if (!config.get(GLOBAL_CONFIG_TABLE).WARN_UNUSED_ENV_VARS) return;
  for (const setting of unsupportedSettings(config)) log.warn(`${setting} has no effect with engine libucx`);
  const passed = config.entries.filter(
    ({ source, name }) => source !== 'default' && fieldUseOf(ownName(name)) === 'passed',
  );
  if (config.unused.length + passed.length === 0) return;
  const theirs = variables();
  for (const { name } of passed) {
    if (theirs !== undefined && !readsVariable(theirs, name)) {
      log.warn(`${name} has no effect: UCX ${version} lacks it`);
    }
  }
  for (const unused of config.unused) {
    const { variable } = unused;
    const name = ucpName(variable);
    if (name !== undefined && (theirs === undefined || readsVariable(theirs, name))) continue;
    // A name that another version of UCX has is not a misspelling.
    if (ucxVariableNamed(variable) === undefined) log.warn(unused.warningBeside(theirs ?? ucxVariableNames()));
    else log.warn(`${name} has no effect: UCX ${version} lacks it`);
  }
}

/** Prefixes of libucp tables whose fields several transports inherit, and one of these transports; fields without a prefix are inherited by all. */
const INHERITED = /^UCX_(?:(IB|RC|MM|SM|SCOPY)_|(?=(?:ALLOC|FAILURE|MAX_NUM_EPS)$))/;
const INHERITING: Readonly<Record<string, string>> = {
  IB: 'RC_',
  RC: 'RC_',
  MM: 'POSIX_',
  SM: 'POSIX_',
  SCOPY: 'CMA_',
};

/** True if libucp reads a variable, possibly through a transport that inherits it: UCX_RC_TIMEOUT sets UCX_RC_VERBS_TIMEOUT. */
export function readsVariable(theirs: ReadonlySet<string>, name: string): boolean {
  if (theirs.has(name)) return true;
  const match = INHERITED.exec(name);
  if (match === null) return false;
  const field = `_${name.slice(match[0].length)}`;
  const heirs = `UCX_${INHERITING[match[1] ?? ''] ?? ''}`;
  return [...theirs].some((variable) => variable.startsWith(heirs) && variable.endsWith(field));
}

/** The field of this library with the name of a variable. */
function ownName(variable: string): string {
  return variable.slice(PREFIX.length);
}

/** The name of a variable for libucp: in the program it may have another prefix before `UCX_`. */
function ucpName(variable: string): string | undefined {
  const at = variable.indexOf(PREFIX);
  return at < 0 ? undefined : variable.slice(at);
}

function settingsOf(config: Config): Map<string, string> {
  const settings = new Map<string, string>();
  for (const { variable, text } of config.unused) {
    const name = ucpName(variable);
    if (name !== undefined && !READ_AT_LOAD.test(name.slice(PREFIX.length))) settings.set(name, text);
  }
  for (const { name, text, source } of config.entries) {
    const own = ownName(name);
    if (source !== 'default' && fieldUseOf(own) === 'passed') settings.set(name, readable(own, text));
  }
  return settings;
}

/** Runs code with variables set in the C environment, then restores the previous values. Contexts of other threads wait meanwhile. */
function withEnvironment<T>(settings: ReadonlyMap<string, string | undefined>, run: () => T): T {
  return withEnvironmentLock(() => withVariables(settings, run));
}

function withVariables<T>(settings: ReadonlyMap<string, string | undefined>, run: () => T): T {
  const before = [...settings.keys()].map((name) => [name, getEnvironment(name)] as const);
  for (const [name, value] of settings) setEnvironment(name, value);
  try {
    return run();
  } finally {
    for (const [name, value] of before) setEnvironment(name, value);
  }
}

/** Converts values that only this library accepts to values that libucp accepts. */
function readable(name: string, text: string): string {
  if (name === 'TLS') return withoutOwn(text, OWN_TRANSPORT, 'self');
  if (name === 'ACC_DEVICES') return withoutOwn(text, OWN_DEVICE, 'all');
  if (name === 'PROTO_INFO' && OWN_PROTO_INFO.test(text)) return 'n';
  return BY_MEMORY_TYPE.includes(name) && !text.includes(':') ? `host:${text}` : text;
}

/** Removes the names that only this library has from a list. @param otherwise result if nothing is left; for UCX_TLS at least loopback */
function withoutOwn(text: string, own: RegExp, otherwise: string): string {
  const isNegated = text.startsWith('^');
  const names = text.slice(isNegated ? 1 : 0).split(',');
  const others = names.filter((name) => !own.test(name.trim()));
  if (others.length > 0) return (isNegated ? '^' : '') + others.join(',');
  return isNegated ? 'all' : otherwise;
}
