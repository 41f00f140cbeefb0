/** Messages between `gaudi-ucx run` and the node server that it starts. Types only. */

import type { NodeDescription } from '../../assembly/node-server.ts';

/** The argument of the server. */
export interface ServerArguments {
  /** Path of its socket, in a folder of its own that it removes. */
  readonly socket: string;
  readonly description: NodeDescription;
  /** File for the trace of ioctls. */
  readonly trace?: string;
}

/** Answer of the server, one line. */
export type ServerAnswer =
  | { readonly serving: true }
  | { readonly serving: false; readonly message: string; readonly code?: string };
