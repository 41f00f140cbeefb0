/**
 * Device memory that gaudi_ipc has registered under its own name: a block that gaudi_copy of the same context allocated, a part of one that the application
 * owns, or memory of others that was imported.
 */

import { type DmaMemory, type IpcHandle, ipcWrapArena } from '../../../hlthunk/index.ts';
import type { PartOfCard } from '../base/device-parts.ts';
import type { GaudiCard } from '../base/gaudi-cards.ts';
import { GaudiMemory } from '../base/gaudi-memory.ts';
import type { ImportedDmabuf } from '../base/imported-dmabuf.ts';
import { GAUDI_IPC_NAME } from './ipc-names.ts';

/** What peers import to reach registered memory: an arena, or a dma-buf that was imported here. */
export interface SharedSource {
  /** Unique in this process. */
  readonly generation: number;
  /** Bytes that peers import. */
  readonly byteLength: number;
  /** Byte of it at which the registered memory begins. */
  readonly offset: number;
  /** Makes a handle of it, whose descriptor is the caller's. Throws UcxError. */
  wrap(): IpcHandle;
  /**
   * Gives back what the registration has taken.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY, unless forced; then nothing has changed
   */
  end(isForced: boolean): void;
}

/** Registered device memory. */
export class IpcMemory extends GaudiMemory {
  readonly source: SharedSource;
  /** Whether the application may free the memory under its registration, which is deregistered all the same. */
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

/** Registers what was imported. */
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
