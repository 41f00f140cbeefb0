/**
 * Device memory that gaudi_ipc has registered under its own name: a block that gaudi_copy of the same context allocated, or a part of one that the
 * application owns.
 */

import type { DeviceBlock, DevicePart } from '../../../hlthunk/index.ts';
import type { GaudiCard } from '../base/gaudi-cards.ts';
import { GaudiMemory } from '../base/gaudi-memory.ts';
import { GAUDI_IPC_NAME } from './ipc-names.ts';

/** Registered HBM. */
export class IpcMemory extends GaudiMemory {
  readonly #stopWatching: () => void;
  #registered = true;

  /** @param onFree called when the block is about to be freed while it is registered here */
  constructor(card: GaudiCard, block: DeviceBlock, part: DevicePart | undefined, onFree: (memory: IpcMemory) => void) {
    super(GAUDI_IPC_NAME, card, block, part);
    this.#stopWatching = block.onFree(() => onFree(this));
  }

  override get live(): boolean {
    return this.#registered && super.live;
  }

  /** Ends the registration; the block stays what it is. */
  end(): void {
    this.#registered = false;
    this.#stopWatching();
    if (this.part !== undefined) this.block.endPart(this.part);
  }
}
