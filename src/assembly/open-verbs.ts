/** The one place that selects the RDMA devices: those of an emulated node, or those of the machine. */

import type { DriverNode } from '../driver/port.ts';
import type { Config } from '../ucs/config/config.ts';
import { IB_CONFIG_TABLE } from '../uct/ib/base/config.ts';
import { Libibverbs } from '../verbs/libibverbs/libibverbs.ts';
import { loadLibibverbs } from '../verbs/libibverbs/library.ts';
import type { VerbsPort } from '../verbs/port.ts';

/**
 * The RDMA devices that go with a node, by UCX_IB_DRIVER; undefined for none.
 * @throws UcxError ERR_LIBRARY_NOT_FOUND, ERR_LIBRARY_UNUSABLE, ERR_LIBRARY_SYMBOL of libibverbs
 */
export function openVerbs(node: DriverNode, config: Config): VerbsPort | undefined {
  return config.get(IB_CONFIG_TABLE).DRIVER === 'verbs' ? new Libibverbs(loadLibibverbs()) : node.verbs;
}
