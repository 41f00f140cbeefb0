/** The state that the connections, the endpoints and the connector of one interface share. */

import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Sleeper } from '../../ucs/sys/sleeper.ts';
import type { AmHandler } from '../api/iface.ts';
import type { ComponentServices } from '../api/memory-domain.ts';
import { TransferCounters } from '../base/counters.ts';
import { sendBytesMax, type TcpConfig } from './config.ts';
import { TcpBuffers } from './connection/buffers.ts';
import { Outstanding } from './connection/operations.ts';
import type { TcpKeyTable } from './key.ts';
import type { Security } from './secure/security.ts';
import { Batches } from './sockets.ts';

const NS_PER_MS = 1e6;

/** State that the interfaces of a memory domain share. */
export interface TcpDomain {
  readonly keys: TcpKeyTable;
  /** Security required of every peer; undefined for none. */
  readonly security: Security | undefined;
}

export class TcpShared {
  readonly clock: Clock;
  /** Log for events that peers can cause. */
  readonly warnings: LimitedLog;
  readonly buffers: TcpBuffers;
  readonly keys: TcpKeyTable;
  readonly counters: TransferCounters = new TransferCounters();
  readonly outstanding: Outstanding = new Outstanding();
  /** Frames that are held back until their batches end. */
  readonly batches: Batches = new Batches();
  readonly sleeper: Sleeper;
  /** Time in milliseconds without a sign of life after which the peer counts as failed. */
  readonly peerTimeoutMs: number;
  /** Maximum number of system calls for one connection in one call of progress. */
  readonly pollsMax: number;
  /** Receives the messages; undefined while there is none. */
  handler: AmHandler | undefined = undefined;

  constructor({ keys, security }: TcpDomain, config: TcpConfig, { log, clock }: ComponentServices) {
    this.clock = clock;
    this.warnings = new LimitedLog(log, clock);
    this.buffers = new TcpBuffers(sendBytesMax(config), config.RX_SEG_SIZE, security?.level === 'encrypt');
    this.keys = keys;
    this.sleeper = new Sleeper(clock);
    this.peerTimeoutMs = config.PEER_TIMEOUT / NS_PER_MS;
    this.pollsMax = config.MAX_POLL;
  }

  get nowNs(): number {
    return this.clock.nowNs();
  }

  get nowMs(): number {
    return this.nowNs / NS_PER_MS;
  }

  close(): void {
    this.batches.close();
    this.buffers.close();
    this.warnings.reportOmitted();
  }
}
