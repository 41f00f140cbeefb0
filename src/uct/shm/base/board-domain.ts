/** What the memory domains of shared memory have in common: they publish keys on boards, which peers on this node read. */

import { HostDomain } from '../../base/host-domain.ts';
import type { HostMemory } from '../../base/host-memory.ts';
import { KeyBoard } from '../../base/key-board.ts';
import { KeyBoardReader } from '../../base/key-board-reader.ts';

/** Base of such a memory domain. */
export abstract class BoardDomain extends HostDomain {
  protected readonly reader: KeyBoardReader;
  readonly #board: KeyBoard<HostMemory>;

  /**
   * @param registersPackable whether registered memory can have keys
   * @param folder where the boards are, also those of peers
   */
  constructor(name: string, registersPackable: boolean, folder?: string) {
    super(name, registersPackable);
    this.#board = new KeyBoard(name, folder);
    this.reader = new KeyBoardReader(name, folder);
  }

  /** What the row of a key tells peers about `memory`. */
  protected abstract payloadOf(memory: HostMemory): Int32Array;

  override close(): void {
    super.close();
    this.#board.close();
    this.reader.close();
  }

  protected packKey(memory: HostMemory, target: Uint8Array, offset: number): void {
    if (!this.#board.has(memory)) this.#board.publish(memory, this.payloadOf(memory));
    this.#board.pack(memory, target, offset);
  }

  protected revokeKey(memory: HostMemory): void {
    this.#board.revoke(memory);
  }
}
