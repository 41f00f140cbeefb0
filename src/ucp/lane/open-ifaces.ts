/** The interfaces of a new worker. */

import type { Log } from '../../ucs/debug/log.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { OpenMd } from '../resources/resources.ts';
import type { OpenIface } from './lanes.ts';

/** Errors of a directory that has become full, read-only or inaccessible since the context was made, and of a limit of locked memory (`ulimit -l`). */
const NO_PLACE: readonly string[] = ['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'ENOENT', 'ENOMEM'].map(
  (name) => `ERR_SYSCALL_${name}`,
);

/** Domains of which it was told: each worker of a context would repeat it. */
const told = new WeakSet<OpenMd>();

/**
 * Opens an interface for every resource. One that finds no place for its files or buffers is left out with a warning, as long as there are others.
 * @throws the error of opening an interface; no interface is left open
 */
export function openIfaces(mds: readonly OpenMd[], log: Log): readonly OpenIface[] {
  const open: OpenIface[] = [];
  let refusal: unknown;
  try {
    for (const md of mds) {
      for (const resource of md.resources) {
        try {
          open.push({ md, iface: md.md.openIface(resource) });
        } catch (error) {
          if (!isUcxError(error) || !NO_PLACE.includes(error.code)) throw error;
          refusal ??= error;
          const what = `${resource.transport} is not used by a worker: ${error.message}`;
          if (told.has(md)) log.debug(what);
          else log.warn(what);
          told.add(md);
        }
      }
    }
    if (open.length === 0) throw refusal;
    return open;
  } catch (error) {
    for (const { iface } of open) iface.close();
    throw error;
  }
}
