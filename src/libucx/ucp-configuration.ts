/** The configuration of libucp: what it reads by itself, and above that what this program was configured with. */

import type { Config } from '../ucs/config.ts';
import { checkStatus, UcxError } from '../ucs/error.ts';
import type { Log } from '../ucs/log.ts';
import { Status } from '../ucs/status.ts';
import { OutValue } from './fields.ts';
import type { LibucpFunctions } from './functions.ts';

const PREFIX = 'UCX_';
/** Names in UCX_TLS that are transports of this library only: libucp would warn of them. */
const OWN_TRANSPORTS: readonly string[] = ['gaudi', 'gaudi_copy', 'gaudi_cpy', 'gaudi_ipc'];

/**
 * Reads the configuration of libucp and changes it; give it to ucp_init_version, then to ucp_config_release.
 * @param variables what the program was told beside the environment of C: variables with their values
 * @throws UcxError ERR_CONFIG_VALUE for a value that libucp refuses
 */
export function readUcpConfig(functions: LibucpFunctions, config: Config, log: Log): number {
  using out = new OutValue();
  checkStatus(functions.ucp_config_read(null, null, out.address), 'ucp_config_read');
  const ucpConfig = out.value;
  try {
    for (const { name, text, source } of config.entries) {
      if (source === 'default' || !name.startsWith(PREFIX)) continue;
      modify(functions, ucpConfig, name.slice(PREFIX.length), text, log);
    }
  } catch (error) {
    functions.ucp_config_release(ucpConfig);
    throw error;
  }
  return ucpConfig;
}

function modify(functions: LibucpFunctions, ucpConfig: number, name: string, text: string, log: Log): void {
  const value = name === 'TLS' ? withoutOwn(text) : text;
  const status = functions.ucp_config_modify(ucpConfig, name, value) as Status;
  if (status === Status.OK) return;
  if (status === Status.NO_ELEM) {
    log.debug(`libucp has no ${PREFIX}${name}: this library alone reads it`);
    return;
  }
  throw new UcxError({
    code: 'ERR_CONFIG_VALUE',
    status,
    message: `libucp refuses ${PREFIX}${name}=${value}`,
    details: { name: PREFIX + name, value },
  });
}

/** UCX_TLS without the transports of this library; a list with nothing else asks libucp for the own process at least. */
function withoutOwn(text: string): string {
  const isNegated = text.startsWith('^');
  const names = text.slice(isNegated ? 1 : 0).split(',');
  const others = names.filter((name) => !OWN_TRANSPORTS.includes(name));
  if (others.length > 0) return (isNegated ? '^' : '') + others.join(',');
  return isNegated ? 'all' : 'self';
}
