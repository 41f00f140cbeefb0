/**
 * The datagram queue pair of an interface, for the messages that establish connections, which can be lost. The event loop reads received datagrams, so that
 * peers do not wait for progress.
 */

import { allocateScratch, EventAlarm, isSyscallError, type ScratchBlock } from '../../../sys/index.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import {
  GRH_BYTES,
  LinkLayer,
  QpState,
  QpType,
  RecvWr,
  SendFlag,
  SendWr,
  Wc,
  WcStatus,
  WrOpcode,
} from '../../../verbs/abi.ts';
import type { AddressHandle, AddressVector, CompletionChannel, QueuePair } from '../../../verbs/port.ts';
import { setDatagram, setSgList, writeRecvWr, writeSendWr, writeSge } from '../../../verbs/work-request.ts';
import type { IbConfig } from '../base/config.ts';
import type { IbPort } from '../base/device.ts';
import { CqReader, Opened, SlotMemory } from '../base/queues.ts';
import { CONNECT_BYTES, type ConnectMessage, packConnect, unpackConnect } from './layout.ts';

/** Messages that can be received before they are read, and sent before they are complete; further ones are dropped, and their sender repeats them. */
const RECEIVES = 64;
const SENDS = 32;
const SLOT_BYTES = 128;
/** Maximum number of cached address handles. */
const HANDLES_MAX = 256;
const IS_SEND = 0x1_0000;

/** Destination of a datagram. */
export interface DatagramTarget {
  readonly gid: Uint8Array;
  readonly lid: number;
  readonly qpNum: number;
  readonly qkey: number;
}

/** The path to a port. */
export function pathTo(
  port: IbPort,
  { SL, TRAFFIC_CLASS, HOP_LIMIT }: IbConfig,
  { gid, lid }: Pick<DatagramTarget, 'gid' | 'lid'>,
): AddressVector {
  return {
    dlid: lid,
    // Within an InfiniBand subnet the LID is sufficient.
    gid: port.attributes.linkLayer === LinkLayer.INFINIBAND ? undefined : gid,
    sgidIndex: port.gid.index,
    hopLimit: HOP_LIMIT,
    trafficClass: TRAFFIC_CLASS,
    serviceLevel: SL,
    port: port.number,
  };
}

export class Datagrams {
  readonly reader: CqReader;
  readonly qpNum: number;
  /** Key that a datagram must carry. */
  readonly qkey: number = Buffer.from(systemRandomBytes(4)).readUInt32LE() & 0x7fff_ffff;
  /** Reports received datagrams. */
  readonly channel: CompletionChannel;
  readonly #port: IbPort;
  readonly #config: IbConfig;
  readonly #qp: QueuePair;
  readonly #receives: SlotMemory;
  readonly #sends: SlotMemory;
  readonly #block: ScratchBlock;
  readonly #opened: Opened = new Opened();
  /** By destination, the most recently created at the end. */
  readonly #handles: Map<string, AddressHandle> = new Map();

  /** @throws SyscallError */
  constructor(port: IbPort, config: IbConfig) {
    this.#port = port;
    this.#config = config;
    const { device } = port;
    const opened = this.#opened;
    try {
      this.#block = allocateScratch(1024);
      opened.keep({ close: () => this.#block.free() });
      this.channel = opened.keep(device.context.createCompletionChannel());
      const cq = device.context.createCq(RECEIVES + SENDS, this.channel);
      this.reader = opened.keep(new CqReader(cq));
      this.#receives = opened.keep(new SlotMemory(device, RECEIVES, SLOT_BYTES));
      this.#sends = opened.keep(new SlotMemory(device, SENDS, SLOT_BYTES));
      this.#qp = opened.keep(
        device.pd.createQp({
          type: QpType.UD,
          sendCq: cq,
          receiveCq: cq,
          srq: undefined,
          maxSendWr: SENDS,
          maxReceiveWr: RECEIVES,
          maxSendSge: 1,
          maxReceiveSge: 1,
          maxInlineBytes: 0,
        }),
      );
      this.qpNum = this.#qp.qpNum;
      this.#qp.modify({ state: QpState.INIT, port: port.number, pkeyIndex: port.pkeyIndex, qkey: this.qkey });
      this.#qp.modify({ state: QpState.RTR });
      this.#qp.modify({ state: QpState.RTS, sqPsn: 0 });
    } catch (error) {
      opened.close();
      throw error;
    }
    for (let slot = this.#receives.take(); slot >= 0; slot = this.#receives.take()) this.#postReceive(slot);
  }

  /** Sends a datagram; false if no slot is free, or if the device has no path to the target, which a peer can forge. */
  send(message: ConnectMessage, target: DatagramTarget): boolean {
    const handle = this.#handleOf(target);
    if (handle === undefined) return false;
    const slot = this.#sends.take();
    if (slot < 0) return false;
    packConnect(message, this.#sends.bytes, slot * SLOT_BYTES);
    const { words, address } = this.#block;
    writeSendWr(words, 0, slot + IS_SEND, WrOpcode.SEND, SendFlag.SIGNALED);
    setDatagram(words, 0, handle.handle, target.qpNum, target.qkey);
    writeSge(words, SendWr.WORDS, this.#sends.addressOf(slot), CONNECT_BYTES, this.#sends.lkey);
    setSgList(words, 0, address + SendWr.WORDS * 4, 1);
    if (this.#qp.postSend(this.#block, 0) === 0) return true;
    this.#sends.give(slot);
    return false;
  }

  /** Reads the received datagrams; returns their number. */
  progress(onMessage: (message: ConnectMessage) => void): number {
    const { reader } = this;
    let count = 0;
    for (let left = reader.fill(); left > 0; left--) {
      const at = reader.next();
      const { words } = reader;
      const id = words[at + Wc.WR_ID]!;
      if (id >= IS_SEND) {
        this.#sends.give(id - IS_SEND);
        continue;
      }
      const isGood = words[at + Wc.STATUS] === WcStatus.SUCCESS;
      const from = id * SLOT_BYTES;
      const bytes = words[at + Wc.BYTE_LEN]!;
      const message = isGood ? unpackConnect(this.#receives.bytes.slice(from + GRH_BYTES, from + bytes)) : undefined;
      if (isGood) this.#postReceive(id);
      if (message === undefined) continue;
      count += 1;
      onMessage(message);
    }
    return count;
  }

  close(): void {
    for (const handle of this.#handles.values()) handle.close();
    this.#opened.close();
  }

  #handleOf(target: DatagramTarget): AddressHandle | undefined {
    const key = `${Buffer.from(target.gid).toString('hex')}/${target.lid}`;
    const known = this.#handles.get(key);
    if (known !== undefined) return known;
    let made: AddressHandle;
    try {
      made = this.#port.device.pd.createAh(pathTo(this.#port, this.#config, target));
    } catch (error) {
      if (isSyscallError(error)) return undefined;
      throw error;
    }
    for (const [oldest, handle] of this.#handles) {
      if (this.#handles.size < HANDLES_MAX) break;
      this.#handles.delete(oldest);
      handle.close();
    }
    this.#handles.set(key, made);
    return made;
  }

  #postReceive(slot: number): void {
    const { words, address } = this.#block;
    writeRecvWr(words, 0, slot, address + RecvWr.WORDS * 4);
    writeSge(words, RecvWr.WORDS, this.#receives.addressOf(slot), SLOT_BYTES, this.#receives.lkey);
    this.#qp.postReceive(this.#block, 0);
  }
}

/** Reads the datagrams of one interface from the event loop. */
export class DatagramEvents {
  readonly #datagrams: Datagrams;
  readonly #alarm: EventAlarm;
  readonly #onMessage: (message: ConnectMessage) => void;

  /** @throws SyscallError EMFILE */
  constructor(datagrams: Datagrams, onMessage: (message: ConnectMessage) => void) {
    this.#datagrams = datagrams;
    this.#onMessage = onMessage;
    this.#alarm = new EventAlarm(datagrams.channel.fd, () => {
      this.#datagrams.channel.consume();
      this.arm();
    });
  }

  /** Lets the event loop report the next datagram; reads those that have arrived already. */
  arm(): void {
    this.#datagrams.reader.cq.requestNotify();
    this.progress();
    this.#alarm.arm();
  }

  /** Reads the received datagrams. */
  progress(): void {
    this.#datagrams.progress(this.#onMessage);
  }

  close(): void {
    this.#alarm.close();
  }
}
