/**
 * Device memory that is registered with gaudi_ipc: an allocation of gaudi_copy of the same context, a part of a block of the application, or imported memory
 * of others.
 */

import { type DmaMemory, type IpcHandle, ipcWrapArena } from '../../../../hlthunk/index.ts';
import type { GaudiCard } from '../../base/card/gaudi-cards.ts';
import type { PartOfCard } from '../../base/memory/device-parts.ts';
import { GaudiMemory } from '../../base/memory/gaudi-memory.ts';
import type { ImportedDmabuf } from '../../base/memory/imported-dmabuf.ts';
import { GAUDI_IPC_NAME } from '../base/ipc-names.ts';

/** The object that peers import to access registered memory: an arena, or a dma-buf that was imported here. */
export interface SharedSource {
  /** Unique in this process. */
  readonly generation: number;
  /** Length in bytes. */
  readonly byteLength: number;
  /** Offset of the registered memory in it. */
  readonly offset: number;
  /** Creates a handle of it. The caller owns the descriptor. Throws UcxError. */
  wrap(): IpcHandle;
  /**
   * Releases the resources of the registration.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY, unless forced; nothing has changed then
   */
  end(isForced: boolean): void;
}

/** Registered device memory. */
export class IpcMemory extends GaudiMemory {
  readonly source: SharedSource;
  /** Whether the application may free the memory before the registration ends. It must be deregistered in any case. */
  readonly isOfApplication: boolean;
  #registered = true;

  constructor(card: GaudiCard, target: DmaMemory, source: SharedSource, isOfApplication: boolean) {
    super(GAUDI_IPC_NAME, card, target);
    this.source = source;
    this.isOfApplication = isOfApplication;
  }

  override get live(): boolean {
    return this.#registered && super.live;
  }

  /** Ends the registration. Throws like {@link SharedSource.end}. */
  end(isForced: boolean): void {
    this.source.end(isForced);
    this.#registered = false;
  }
}

/**
 * Registers a block that was allocated here, or a part of one.
 * @param onFree called when the block is about to be freed while it is registered here
 */
export function ipcBlock({ card, block, part }: Place, onFree: (memory: IpcMemory) => void): IpcMemory {
  const { arena, offset } = block;
  const stopWatching = block.onFree(() => onFree(memory));
  const source: SharedSource = {
    generation: arena.generation,
    byteLength: arena.byteLength,
    offset: offset + (part?.offset ?? 0),
    wrap: () => ipcWrapArena(card.device, block),
    end: () => {
      stopWatching();
      if (part !== undefined) block.endPart(part);
    },
  };
  const memory = new IpcMemory(card, part ?? block, source, part !== undefined);
  return memory;
}

/** Registers an imported dma-buf. */
export function ipcImport(imported: ImportedDmabuf): IpcMemory {
  const { card, mapping, offset } = imported;
  const source: SharedSource = {
    generation: mapping.generation,
    byteLength: offset + mapping.byteLength,
    offset,
    wrap: () => imported.wrap(),
    end: (isForced) => imported.close(isForced),
  };
  return new IpcMemory(card, mapping, source, false);
}

/** A block, and the part of it that is registered; undefined for all of it. */
type Place = Omit<PartOfCard, 'part'> & { readonly part: PartOfCard['part'] | undefined };
