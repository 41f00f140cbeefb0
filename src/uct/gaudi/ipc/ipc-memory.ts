/**
 * Device memory that gaudi_ipc has registered: a block that gaudi_copy of the same context allocated, under its own name.
 */

import { GaudiMemory } from '../base/gaudi-memory.ts';
import { GAUDI_IPC_NAME } from './ipc-names.ts';

/** A registered block of HBM. */
export class IpcMemory extends GaudiMemory {
  readonly #stopWatching: () => void;
  #registered = true;

  /** @param onFree called when the block is about to be freed while it is registered here */
  constructor(allocated: GaudiMemory, onFree: (memory: IpcMemory) => void) {
    super(GAUDI_IPC_NAME, allocated.card, allocated.block, allocated.byteLength);
    this.#stopWatching = allocated.onFree(() => onFree(this));
  }

  override get live(): boolean {
    return this.#registered && this.block.live;
  }

  /** Ends the registration; the block stays what it is. */
  end(): void {
    this.#registered = false;
    this.#stopWatching();
  }
}
