/** The PDMA channels of a card that this process may use: chooses one for each direction of transfers, and maps its registers. */

import type { RegisterMapping } from '../../driver/port.ts';
import {
  type AsicProfile,
  channelBlockA,
  HL_MEM_OP,
  NO_USER_RESOURCE,
  PdmaChannelA,
  type PdmaChannels,
} from '../../uapi/index.ts';
import type { CardFile } from '../base/card-file.ts';
import { GaudiErrorCode, gaudiError } from '../base/gaudi-error.ts';
import type { HwIpInfo } from '../info/device-info.ts';
import { ChannelRoute, type ChannelRouteDevice } from './channel-route.ts';

/** Direction of transfers. */
export type DmaDirection = 'hostToDevice' | 'deviceToHost' | 'deviceToDevice';

/** The group of channels to prefer in each direction, as the vendor's software uses them (scal/configs/gaudi3/default.json). */
const PREFERRED_GROUP: Readonly<Record<DmaDirection, number>> = { hostToDevice: 1, deviceToHost: 2, deviceToDevice: 3 };

/** The channels of one card. */
export class DmaChannels {
  readonly #card: CardFile;
  readonly #profile: AsicProfile;
  readonly #channels: PdmaChannels;
  /** Bit n is set if users have channel n. The driver keeps one channel; which one depends on its version. */
  readonly #mask: number;
  /** User interrupts: the first, and their number. */
  readonly #firstInterrupt: number;
  readonly #interrupts: number;
  readonly #taken: Set<number> = new Set();

  /** @throws UcxError ERR_GAUDI_INVALID_PARAMS for a generation without channels */
  constructor(card: CardFile, info: HwIpInfo & { readonly profile: AsicProfile }) {
    const { channels } = info.profile;
    if (channels === undefined) {
      throw gaudiError(GaudiErrorCode.INVALID_PARAMS, `${card.name} has neither queues nor DMA channels for users`);
    }
    this.#card = card;
    this.#profile = info.profile;
    this.#channels = channels;
    this.#mask = Number(info.pdmaUserOwnedChMask);
    this.#firstInterrupt = info.firstAvailableInterruptId;
    this.#interrupts = info.firstAvailableInterruptId === NO_USER_RESOURCE ? 0 : info.numberOfUserInterrupts;
  }

  /** The reason why the card cannot execute transfers; undefined if it can. */
  get limitation(): string | undefined {
    return this.#mask === 0 ? `the driver of ${this.#profile.name} reports no DMA channel for users` : undefined;
  }

  /**
   * Opens a free channel. A configured channel is in use by other code of this process: the driver gives a card to one process only, and resets the
   * channels when it closes the card.
   * @throws UcxError ERR_GAUDI_CHANNEL_FAILED if none is free; ERR_GAUDI_* of mapping
   */
  open(device: ChannelRouteDevice, direction: DmaDirection, slots: number): ChannelRoute {
    for (const channel of this.#inOrder(direction)) {
      if (this.#taken.has(channel)) continue;
      const registers = this.#map(channel);
      if (registers.read(PdmaChannelA.DESC_SUBMIT_FIFO_CFG) !== 0) {
        registers.close();
        continue;
      }
      this.#taken.add(channel);
      return this.#route(device, direction, { channel, registers, slots });
    }
    const why = this.limitation ?? 'other code of this process uses all user channels';
    throw gaudiError(GaudiErrorCode.CHANNEL_FAILED, `${this.#card.name} has no free DMA channel: ${why}`);
  }

  #route(
    device: ChannelRouteDevice,
    direction: DmaDirection,
    opened: { readonly channel: number; readonly registers: RegisterMapping; readonly slots: number },
  ): ChannelRoute {
    try {
      return new ChannelRoute(device, {
        ...opened,
        engineId: this.#channels.firstEngineId + opened.channel,
        toDevice: direction === 'hostToDevice',
        interrupt: this.#interruptFor(),
        timeoutNs: this.#profile.defaultCsTimeoutSeconds * 1e9,
      });
    } catch (error) {
      opened.registers.close();
      this.#taken.delete(opened.channel);
      throw error;
    }
  }

  /** A user interrupt for the next route, from the last one down: programs use the first ones. */
  #interruptFor(): { readonly id: number; readonly doorbell: bigint } | undefined {
    const { msixDoorbell } = this.#profile.interrupts;
    if (msixDoorbell === undefined || this.#interrupts < this.#taken.size) return undefined;
    return { id: this.#firstInterrupt + this.#interrupts - this.#taken.size, doorbell: msixDoorbell };
  }

  /** The channels of users, those of the preferred group first. */
  #inOrder(direction: DmaDirection): readonly number[] {
    const { groups, perGroup } = this.#channels;
    const all = Array.from({ length: groups.length * perGroup }, (_, n) => n);
    const isPreferred = (channel: number): boolean => Math.floor(channel / perGroup) === PREFERRED_GROUP[direction];
    const usable = all.filter((channel) => ((this.#mask >>> channel) & 1) !== 0);
    return [...usable.filter(isPreferred), ...usable.filter((channel) => !isPreferred(channel))];
  }

  #map(channel: number): RegisterMapping {
    const address = this.#profile.cfg.start + BigInt(channelBlockA(this.#channels, channel));
    const what = `mapping of DMA channel ${channel}`;
    const block = this.#card.memory({ map_block_block_addr: address, op: HL_MEM_OP.MAP_BLOCK }, what);
    return this.#card.mapRegisters(block.block_size, block.block_handle, what);
  }
}
