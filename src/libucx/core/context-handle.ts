/** The handle of a context of libucp: creating it, and the text that libucp prints about it. Its use is in context.ts. */

import { FEATURES } from '../../api/contract/context.ts';
import { textWrittenBy } from '../../sys/index.ts';
import type { Config } from '../../ucs/config/config.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import { UCP_API_MAJOR, UCP_API_MINOR, UCP_PARAM_FIELD, UCP_PARAMS } from '../c/abi.ts';
import { requireDescriptors } from '../c/descriptors.ts';
import { featureBits } from '../c/features.ts';
import { Fields, OutValue } from '../c/fields.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { Libucp } from '../c/library.ts';
import { UcpConfiguration } from '../c/ucp-configuration.ts';

/**
 * Creates a context of libucp.
 * @param features bits
 * @throws UcxError ERR_CONFIG_VALUE; ERR_SYSCALL_EMFILE; of ucp_init
 */
export function initContext(functions: LibucpFunctions, configuration: UcpConfiguration, features: number): number {
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

/** What libucp would warn about is what the text shows; and the program may use the other engine. */
const SILENT: Readonly<Record<string, string>> = { UCX_WARN_INVALID_CONFIG: 'n' };

/**
 * The text that libucp prints about a context with this configuration: its components, memory domains, transports and devices.
 * @param overrides variables of libucp that precede the configuration
 * @throws UcxError ERR_CONFIG_VALUE; of ucp_init, such as NO_DEVICE
 */
export function printedContext(
  { functions }: Libucp,
  config: Config,
  overrides: Readonly<Record<string, string>> = {},
): string {
  const configuration = new UcpConfiguration(functions, config, { ...SILENT, ...overrides });
  const context = initContext(functions, configuration, featureBits(FEATURES));
  try {
    return textWrittenBy((stream) => functions.ucp_context_print_info(context, stream));
  } finally {
    functions.ucp_cleanup(context);
  }
}
