/** TCP port of the page. */

import { invalidParam } from '../../ucs/type/error.ts';

/** Default port. */
export const WEB_PORT = '9480';
const PORT_MAX = 65_535;

/** The port that an option names; 0 for a free one. @throws UcxError ERR_INVALID_PARAM */
export function webPortOf(name: string, text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= PORT_MAX) return port;
  throw invalidParam(name, `must be a port from 0 to ${PORT_MAX}`, text);
}
