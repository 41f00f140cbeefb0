/** A node server of this process for the programs that it tells about it: at a socket in a temporary folder. Not that of `node up`, which others find by themselves. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type NodeDescription, type NodeServer, startNodeServer } from '../../assembly/node-server.ts';
import type { Program } from '../../assembly/program/program.ts';

/** The server. */
export interface PrivateNode {
  readonly server: NodeServer;
  readonly socketPath: string;
  /** Ends the server, and removes the folder. */
  close(): Promise<void>;
}

/** Starts one. Throws what {@link startNodeServer} throws. */
export function startPrivateNode(program: Program, description: NodeDescription = {}): PrivateNode {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-node-'));
  const removeFolder = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    const socketPath = join(folder, 'node.sock');
    const server = startNodeServer(program, socketPath, description);
    return {
      server,
      socketPath,
      close: async () => {
        server.close();
        await server.closed;
        removeFolder();
      },
    };
  } catch (error) {
    removeFolder();
    throw error;
  }
}
