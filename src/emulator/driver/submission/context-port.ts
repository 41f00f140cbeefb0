/**
 * The context (struct hl_ctx) as seen by its parts. Types only: context.ts implements it and owns the parts.
 */

import type { GaudiDevice } from '../../device/gaudi-device.ts';
import type { CardPort, CsCounters } from '../base/card-port.ts';
import type { BufferTable } from '../memory/buffer-table.ts';
import type { UserMemory } from '../memory/user-memory.ts';
import type { SubmissionTable } from './submission.ts';

/** A compute context. */
export interface ContextPort {
  readonly card: CardPort;
  readonly device: GaudiDevice;
  readonly userMemory: UserMemory;
  readonly buffers: BufferTable;
  readonly submissions: SubmissionTable;
  readonly counters: CsCounters;
}
