/**
 * What the parts of a context see of it (struct hl_ctx). Types only: context.ts implements it and owns the parts.
 */

import type { GaudiDevice } from '../device/gaudi-device.ts';
import type { BufferTable } from './buffer-table.ts';
import type { CardPort } from './card-port.ts';
import type { CsCounters } from './cs-counters.ts';
import type { SubmissionTable } from './submission.ts';
import type { UserMemory } from './user-memory.ts';

/** A compute context. */
export interface ContextPort {
  readonly card: CardPort;
  readonly device: GaudiDevice;
  readonly userMemory: UserMemory;
  readonly buffers: BufferTable;
  readonly submissions: SubmissionTable;
  readonly counters: CsCounters;
}
