/**
 * Node server in this process for the programs that it starts, with its socket in a temporary folder. Other programs do not find it, unlike that of `node
 * up`.
 */

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

/** Starts a node server. Throws the errors of {@link startNodeServer}. */
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
