/** Queues of an open device: completion queues and their channels, shared receive queues, queue pairs. */

import { viewAt } from '../../sys/index.ts';
import { QpState, type QpType } from '../abi.ts';
import type {
  CompletionChannel,
  CompletionQueue,
  QpAttributes,
  QueuePair,
  SharedReceiveQueue,
  VerbsBlock,
} from '../port.ts';
import { ChannelLayout, QpLayout } from './layouts.ts';
import { check, Destroyable, type Device, setNonblocking } from './library.ts';
import { writeQpAttributes } from './struct-codec.ts';

export class Channel extends Destroyable implements CompletionChannel {
  readonly fd: number;
  readonly #device: Device;

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.destroyCompChannel);
    this.#device = device;
    this.fd = new DataView(viewAt(pointer, ChannelLayout.BYTES)).getInt32(ChannelLayout.FD, true);
    setNonblocking(this.fd);
  }

  consume(): void {
    const { functions, scratch } = this.#device;
    const { address, view } = scratch;
    // Acknowledged one by one: a queue with unacknowledged events cannot be destroyed.
    while (functions.getCqEvent(this.pointer, address, address + 8) === 0) {
      functions.ackCqEvents(Number(view.getBigUint64(0, true)), 1);
    }
  }
}

export class Cq extends Destroyable implements CompletionQueue {
  readonly #device: Device;

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.destroyCq);
    this.#device = device;
  }

  poll(block: VerbsBlock, count: number): number {
    return this.#device.pollCq(this.pointer, count, block.address);
  }

  requestNotify(): void {
    this.#device.requestNotify(this.pointer, 0);
  }
}

/** Addresses inside the block of a queue's work requests. Computed once, because passing a sum to a foreign function would allocate a heap number each time. */
class PostAddresses {
  readonly #byOffset: Map<number, number> = new Map();
  #block: VerbsBlock | undefined;

  of(block: VerbsBlock, offset: number): number {
    if (block !== this.#block) {
      this.#block = block;
      this.#byOffset.clear();
    }
    let address = this.#byOffset.get(offset);
    if (address === undefined) {
      address = block.address + offset;
      this.#byOffset.set(offset, address);
    }
    return address;
  }
}

export class Srq extends Destroyable implements SharedReceiveQueue {
  readonly #device: Device;
  readonly #addresses: PostAddresses = new PostAddresses();

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.destroySrq);
    this.#device = device;
  }

  postReceive(block: VerbsBlock, offset: number): number {
    const { postSrqReceive, scratch } = this.#device;
    return postSrqReceive(this.pointer, this.#addresses.of(block, offset), scratch.address);
  }
}

export class Qp extends Destroyable implements QueuePair {
  readonly qpNum: number;
  readonly maxInlineBytes: number;
  state: QpState = QpState.RESET;
  readonly #device: Device;
  readonly #type: QpType;
  readonly #sends: PostAddresses = new PostAddresses();
  readonly #receives: PostAddresses = new PostAddresses();

  constructor(device: Device, pointer: number, type: QpType, maxInlineBytes: number) {
    super(pointer, device.functions.destroyQp);
    this.#device = device;
    this.#type = type;
    this.maxInlineBytes = maxInlineBytes;
    this.qpNum = new DataView(viewAt(pointer, QpLayout.BYTES)).getUint32(QpLayout.QP_NUM, true);
  }

  modify(attributes: QpAttributes): void {
    const { functions, scratch } = this.#device;
    const mask = writeQpAttributes(scratch, attributes, this.#type);
    check(functions.modifyQp(this.pointer, scratch.address, mask), 'ibv_modify_qp', `to state ${attributes.state}`);
    this.state = attributes.state;
  }

  postSend(block: VerbsBlock, offset: number): number {
    const { postSend, scratch } = this.#device;
    return postSend(this.pointer, this.#sends.of(block, offset), scratch.address);
  }

  postReceive(block: VerbsBlock, offset: number): number {
    const { postReceive, scratch } = this.#device;
    return postReceive(this.pointer, this.#receives.of(block, offset), scratch.address);
  }
}
