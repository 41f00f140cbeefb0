/**
 * Opens the libucp context of a program. If no transport for endpoints is left, the error names the usable transports of this machine: libucp reports only
 * "no such device", or fails every endpoint later. Also prints the information of a context.
 */

import { FEATURES } from '../../api/contract/context.ts';
import { textWrittenBy } from '../../sys/index.ts';
import type { Config } from '../../ucs/config/config.ts';
import { checkStatus, isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_API_MAJOR, UCP_API_MINOR, UCP_PARAM_FIELD, UCP_PARAMS } from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { featureBits, type Libucp } from '../c/library.ts';
import { requireDescriptors } from '../c/limits.ts';
import { UcpConfiguration } from '../c/ucp-configuration.ts';

/** Transports of libucp that cannot support an endpoint alone, and why (1.13 to 1.22). */
const WITHOUT_MESSAGES: Readonly<Record<string, string>> = {
  self: 'does not report completed sends, which a sleeping program needs',
  cma: 'needs another transport for messages',
  knem: 'needs another transport for messages',
};

/** Settings that restrict transports and devices. */
const CHOICES: readonly string[] = ['TLS', 'NET_DEVICES', 'SHM_DEVICES', 'ACC_DEVICES', 'SELF_DEVICES'];
const EVERYTHING = Object.fromEntries(CHOICES.map((name) => [`UCX_${name}`, 'all']));

export interface ContextToOpen {
  readonly libucp: Libucp;
  readonly config: Config;
  readonly configuration: UcpConfiguration;
  /** Bits of UCP_FEATURE. */
  readonly features: number;
  /** Native transports that are not used in this context, such as those of emulated devices. */
  readonly unusedNative: readonly string[];
}

/** @throws UcxError ERR_NO_TRANSPORT; ERR_CONFIG_VALUE; of ucp_init */
export function openContext(parts: ContextToOpen): number {
  const { functions } = parts.libucp;
  let handle: number;
  try {
    handle = initContext(functions, parts.configuration, parts.features);
  } catch (error) {
    if (!isUcxError(error) || error.status !== Status.NO_DEVICE) throw error;
    throw noTransport(parts, [], error);
  }
  const opened = transportsIn(textWrittenBy((stream) => functions.ucp_context_print_info(handle, stream)));
  // An empty list means that the format of the output is not known.
  if (opened.length === 0 || opened.some((name) => !(name in WITHOUT_MESSAGES))) return handle;
  functions.ucp_cleanup(handle);
  throw noTransport(parts, opened);
}

/** The transports in the information that libucp prints about a context: `resource 0 : md 0 dev 0 flags -- tcp/lo`. */
export function transportsIn(text: string): readonly string[] {
  const names = [...text.matchAll(/^#\s+resource \d+ .*?(\w+)\/\S+\s*$/gm)].map(([, name]) => name!);
  return [...new Set(names)];
}

function noTransport(parts: ContextToOpen, opened: readonly string[], cause?: UcxError): UcxError {
  const { libucp, config, unusedNative } = parts;
  const choices = config.entries.filter(({ name, source }) => source !== 'default' && CHOICES.includes(name.slice(4)));
  const chosen = choices.map(({ name, text }) => `${name}=${text}`).join(', ');
  const reasons = opened.map((name) => `${name} ${WITHOUT_MESSAGES[name]}`);
  const requested = choices.flatMap(({ text }) => text.split(',').map((name) => name.trim()));
  const ofNative = unusedNative.filter((name) =>
    requested.some((item) => item === name || item.startsWith(`${name}_`)),
  );
  if (ofNative.length > 0) reasons.push(`libucp cannot use ${ofNative.join(' and ')} of the emulated node`);
  const usable = transportsIn(printedContext(libucp, config, EVERYTHING)).filter((name) => !(name in WITHOUT_MESSAGES));
  const why = [chosen, ...reasons].filter((text) => text !== '').join('; ');
  const has = usable.length === 0 ? 'has none' : `has ${usable.join(', ')}`;
  const remedy = usable.length === 0 ? 'use engine native' : `add one to UCX_TLS, or use engine native`;
  return new UcxError({
    code: 'ERR_NO_TRANSPORT',
    status: Status.NO_DEVICE,
    message: `no libucp transport for messages is selected (${why}); UCX ${libucp.version} ${has} on this machine: ${remedy}`,
    details: { usable: usable.join(', '), reasons: reasons.join('; ') },
    cause,
  });
}

/**
 * Creates a context of libucp.
 * @param features bits of UCP_FEATURE
 * @throws UcxError ERR_CONFIG_VALUE; ERR_SYSCALL_EMFILE; of ucp_init
 */
function initContext(functions: LibucpFunctions, configuration: UcpConfiguration, features: number): number {
  requireDescriptors('ucp_init');
  using params = new Fields(UCP_PARAMS);
  using context = new OutValue();
  params.setU64('field_mask', UCP_PARAM_FIELD.FEATURES).setU64('features', features);
  const { address } = context;
  configuration.use((ucpConfig) => {
    const status = functions.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params.address, ucpConfig, address);
    checkStatus(status, 'ucp_init');
  });
  return context.value;
}

/** The caller reports the same problems, or selects the other engine. */
const SILENT: Readonly<Record<string, string>> = { UCX_WARN_INVALID_CONFIG: 'n' };

/**
 * The information that libucp prints about a context with this configuration: its components, memory domains, transports and devices.
 * @param overrides variables of libucp with precedence over the configuration
 * @throws UcxError ERR_CONFIG_VALUE; of ucp_init, such as NO_DEVICE
 */
export function printedContext(
  { functions }: Libucp,
  config: Config,
  overrides: Readonly<Record<string, string>> = {},
): string {
  const features = featureBits(FEATURES);
  const configuration = new UcpConfiguration(functions, config, features, { ...SILENT, ...overrides });
  const context = initContext(functions, configuration, features);
  try {
    return textWrittenBy((stream) => functions.ucp_context_print_info(context, stream));
  } finally {
    functions.ucp_cleanup(context);
  }
}
